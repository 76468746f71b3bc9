"""The clock of one machine is wrong. Leases go by the database's, so nobody waits by the wrong one."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from helix_sessions.runtime import SessionRunner
from helix_sessions.runtime.scripted import ScriptedAgent
from helix_sessions.store import SessionStore
from helix_sessions.types import Lease
from tests.runner.test_activities import said, whole
from tests.runner.test_ownership import in_thread

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def _only_there(engine: str) -> None:
    if engine != "postgresql":
        pytest.skip("SQLite has one machine, and one clock.")


@pytest.fixture
def shift(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    """Set the clock of this process forward, or back."""
    real = timezone.now
    return lambda by: monkeypatch.setattr(timezone, "now", lambda: real() + by)


Shift = Callable[[timedelta], None]


def test_a_request_to_stop_is_made_by_one_that_is_ahead(
    store: SessionStore, session: str, shift: Shift
) -> None:
    """It would think that the owner's time is over, and that there is nobody to stop."""
    store.acquire_lease(session, "elsewhere", 60)
    shift(HOUR)
    stopped = SessionRunner(ScriptedAgent()).interrupt(session, "enough", timeout=0.05)
    assert stopped.error is not None, "it waited for the owner"
    request = store.peek_interrupt_flag(session)
    assert request is not None
    assert request.reason == "enough"


def test_one_that_is_ahead_waits_for_the_owner(store: SessionStore, session: str, shift: Shift) -> None:
    """Without taking a lease that is live by the clock of the database."""
    waiting, tried = threading.Event(), []

    class Watched(SessionStore):
        def get_lease(self, session_id: str) -> Lease | None:
            tried.append(session_id)  # it waits for whoever has the lease
            return super().get_lease(session_id)

        def is_lease_live(self, lease: Lease) -> bool:
            live = super().is_lease_live(lease)
            waiting.set()
            return live

    lease = store.acquire_lease(session, "elsewhere", 60)
    shift(HOUR)
    thread, outcomes = in_thread(lambda: SessionRunner(ScriptedAgent(), store=Watched()).run(session))
    assert waiting.wait(20)
    mine = store.fenced(lease)
    run = mine.begin_turn(session, message="hello").run
    mine.update_run_status(session, run.run_id, "completed", output="by the owner")
    store.release_lease(lease)
    thread.join(20)
    assert [(outcome.kind, outcome.output) for outcome in outcomes] == [("completed", "by the owner")]
    assert tried


def test_one_that_is_behind_takes_over_in_time(store: SessionStore, session: str, shift: Shift) -> None:
    """It would wait for a dead owner until its own clock says that the lease is over."""
    store.admit_input(session, "hello")
    lease = store.acquire_lease(session, "dead", 0.3)
    assert store.is_lease_live(lease)
    shift(-HOUR)
    thread, outcomes = in_thread(lambda: SessionRunner(ScriptedAgent()).run(session))
    thread.join(20)
    assert [outcome.kind for outcome in outcomes] == ["completed"]
    assert not store.is_lease_live(lease)
    assert said(store, session) == [("user", "hello"), ("assistant", "hello")]
    whole(store, session)
