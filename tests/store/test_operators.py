"""Calls in an operator's name: the call and its entry in the log, or neither."""

import pytest

from helix_sessions.exceptions import SessionNotFound
from helix_sessions.store import SessionStore
from helix_sessions.store.maintenance.operators import operate

pytestmark = pytest.mark.django_db(transaction=True)

BY = {"id": 7, "username": "ann"}


def test_both_are_logged(store: SessionStore):
    store.create_session("s", agent_type="a")
    version = operate(
        store, "s", "pause", lambda: store.update_status("s", "paused"), by=BY, reason="It is late."
    )
    assert version == 2
    [change, entry] = store.get_events("s", 2)
    assert change.type == "status_changed"
    assert (entry.type, entry.data) == (
        "operator_action",
        {"action": "pause", "reason": "It is late.", "by": BY},
    )


def test_a_call_that_fails_leaves_nothing(store: SessionStore):
    store.create_session("s", agent_type="a")

    def fail() -> None:
        store.update_status("s", "paused")
        store.update_status("absent", "paused")

    with pytest.raises(SessionNotFound):
        operate(store, "s", "pause", fail, by=BY, reason="It is late.")
    assert store.load_state("s").status == "active"
    assert store.load_state("s").head_seq == 1


def test_a_log_that_cannot_be_written_undoes_the_call(store: SessionStore):
    store.create_session("s", agent_type="a")
    with pytest.raises(SessionNotFound):
        operate(store, "s", "delete", lambda: store.delete_session("s"), by=BY, reason="It is late.")
    assert store.session_exists("s")
