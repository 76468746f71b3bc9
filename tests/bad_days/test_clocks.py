"""One of two machines has a wrong clock: what it writes carries its times, and decides nothing for others."""

from datetime import timedelta

import pytest
from django.utils import timezone

from helix_sessions.exceptions import StillWaiting
from helix_sessions.store import SessionStore
from tests.bad_days.test_extremes import clock as clock
from tests.contract.suspended import asked, suspended
from tests.invariants import assert_invariants

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


def test_a_deadline_is_not_passed_because_a_clock_was_ahead(store: SessionStore, clock: list[timedelta]):
    """Time within the session is that of the machine that was ahead; who resumes looks at its own clock."""
    suspended(store, "s", asked("a", deadline=timezone.now() + HOUR / 2))
    clock[0] = HOUR
    store.patch_metadata("s", {"by": "the machine that is ahead"})
    clock[0] = timedelta(0)

    assert store.settle_expired_calls() == 0
    with pytest.raises(StillWaiting):
        store.resume("s")
    store.submit_tool_result("s", "a", result=1)
    assert [message["content"] for message in store.resume("s").tool_messages] == [1]
    assert_invariants("s")
