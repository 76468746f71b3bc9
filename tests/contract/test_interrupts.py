"""The interrupt flag. That exactly one of many pollers sees it is shown in `tests/concurrency`."""

import pytest
from django.utils import timezone

from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from tests.invariants import assert_invariants
from tests.rows import each

pytestmark = pytest.mark.django_db


@each("reason", [None, "", "stop", "é\x00\n", "x" * 5000])
def test_it_is_seen_once(store: SessionStore, session: str, reason: str | None) -> None:
    before = timezone.now()
    store.set_interrupt_flag(session, reason)
    request = store.check_interrupt_flag(session)
    assert request is not None
    assert request.reason == reason
    assert before <= request.requested_at <= timezone.now()
    assert store.check_interrupt_flag(session) is None
    assert_invariants(session)


def test_without_a_flag_there_is_nothing_to_see(store: SessionStore, session: str) -> None:
    assert store.check_interrupt_flag(session) is None


def test_it_can_be_taken_back(store: SessionStore, session: str) -> None:
    store.set_interrupt_flag(session, "stop")
    store.clear_interrupt_flag(session)
    assert store.check_interrupt_flag(session) is None


def test_the_last_reason_stands(store: SessionStore, session: str) -> None:
    store.set_interrupt_flag(session, "first")
    store.set_interrupt_flag(session, "second")
    request = store.check_interrupt_flag(session)
    assert request is not None
    assert request.reason == "second"
    assert store.check_interrupt_flag(session) is None


def test_another_store_sees_it(store: SessionStore, session: str) -> None:
    store.set_interrupt_flag(session, "stop")
    request = SessionStore().check_interrupt_flag(session)
    assert request is not None
    assert request.reason == "stop"


def test_peeking_leaves_it(store: SessionStore, session: str) -> None:
    assert store.peek_interrupt_flag(session) is None
    store.set_interrupt_flag(session, "stop")
    version = store.load_state(session).version
    peeked = store.peek_interrupt_flag(session)
    assert store.load_state(session).version == version
    assert store.check_interrupt_flag(session) == peeked is not None


def test_setting_and_seeing_are_logged(store: SessionStore, session: str) -> None:
    store.set_interrupt_flag(session, "stop")
    store.check_interrupt_flag(session)
    assert [(event.type, event.data) for event in store.get_events(session, 2)] == [
        ("interrupt_requested", {"reason": "stop"}),
        ("interrupt_cleared", {"reason": "stop"}),
    ]


def test_the_status_is_not_touched(store: SessionStore, session: str) -> None:
    store.set_interrupt_flag(session, "stop")
    assert store.load_state(session).status == "active"


def test_nothing_of_a_request_stays_when_it_is_taken(store: SessionStore, session: str) -> None:
    for take in (store.check_interrupt_flag, store.clear_interrupt_flag):
        store.set_interrupt_flag(session, "a secret reason")
        take(session)
        row = Session.objects.get(session_id=session)
        assert (row.interrupt_reason, row.interrupt_requested_at) == (None, None)
