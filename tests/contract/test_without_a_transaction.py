"""The same promises where no transaction is around the call, as in most programs.

There PostgreSQL is written to in one statement when the connection wrote the session's row last, so what
is true inside a test's own transaction is shown once more outside of it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from helix_sessions.exceptions import SessionNotFound, StaleState
from helix_sessions.store import SessionStore
from helix_sessions.types import CasMismatch
from tests.contract import test_commits, test_events, test_messages, test_statuses
from tests.contract.calls import IDLE, MESSAGE_EVENT, RAISING, USER, Call
from tests.contract.test_documents import DOCUMENTS, exact
from tests.invariants import assert_invariants, dump
from tests.parallel import run_threads

pytestmark = pytest.mark.django_db(transaction=True)


class TestCommit(test_commits.TestCommit):
    pass


class TestStaging(test_commits.TestStaging):
    pass


class TestStale(test_commits.TestStale):
    pass


class TestReplay(test_commits.TestReplay):
    pass


class TestAppend(test_messages.TestAppend):
    pass


class TestIdempotency(test_events.TestIdempotency):
    pass


class TestCompareAndSet(test_statuses.TestCompareAndSet):
    pass


class TestCounters(test_statuses.TestCounters):
    pass


def sessions(store: SessionStore, calls: list[Call]) -> Iterator[tuple[Call, str]]:
    """For each call a session that is ready for it, and whose row this connection wrote last."""
    for number, call in enumerate(calls):
        session = store.create_session(f"{number} {call}", agent_type="writer").session_id
        store.append_messages(session, [USER])
        call.arrange(store, session)
        yield call, session


def elsewhere(call: Callable[[SessionStore], Any]) -> None:
    """Let somebody else, on another connection, do something."""
    [outcome] = run_threads(1, lambda _: call(SessionStore()))
    assert not isinstance(outcome, Exception), outcome


def test_a_write_raises_the_version_by_one_and_is_logged(store: SessionStore) -> None:
    for call, session in sessions(store, [*RAISING, MESSAGE_EVENT]):
        before = store.load_state(session)
        call.act(store, session)
        after = store.load_state(session)
        new = store.get_events(session, before.head_seq + 1)
        assert after.version == before.version + 1, call
        assert after.head_seq == before.head_seq + len(new), call
        assert call.event in [event.type for event in new]
        assert_invariants(session)


def test_another_version_is_refused(store: SessionStore) -> None:
    for call, session in sessions(store, RAISING):
        version = store.load_state(session).version
        before = dump()
        for wrong in (version - 1, version + 1):
            if call.name == "compare_and_set_status":
                answer = call.act(store, session, expected_version=wrong)
                assert answer == CasMismatch(current_status="active", current_version=version)
            else:
                with pytest.raises(StaleState):
                    call.act(store, session, expected_version=wrong)
        assert dump() == before, call
        call.act(store, session, expected_version=version)


def test_a_call_with_nothing_to_do_changes_nothing(store: SessionStore) -> None:
    for call, session in sessions(store, IDLE):
        before = dump()
        call.act(store, session)
        assert dump() == before, call


def test_what_somebody_else_wrote_meanwhile_is_seen(store: SessionStore) -> None:
    for call, session in sessions(store, [*RAISING, MESSAGE_EVENT]):
        before = store.load_state(session)
        elsewhere(lambda other, key=session: other.patch_metadata(key, {"theirs": 1}))  # type: ignore[misc]
        if call.name.startswith(("save_state", "suspend", "rewind")):  # these write the metadata they know
            call.act(store, session, expected_version=before.version + 1)
        else:
            call.act(store, session)
            assert store.load_state(session).metadata["theirs"] == 1, call
        assert store.load_state(session).version == before.version + 2, call
        assert_invariants(session)


def test_a_session_somebody_else_deleted_is_not_found(store: SessionStore) -> None:
    calls = [call for call in RAISING if call.name != "begin_turn"]  # which makes the session anew
    for call, session in sessions(store, [*calls, MESSAGE_EVENT]):
        elsewhere(lambda other, key=session: other.delete_session(key))  # type: ignore[misc]
        with pytest.raises(SessionNotFound):
            call.act(store, session)
    assert not any(dump().values())


def test_a_session_somebody_else_made_anew_is_the_new_one(store: SessionStore) -> None:
    for call, session in sessions(store, [*RAISING, MESSAGE_EVENT]):

        def renew(other: SessionStore, session: str = session, call: Call = call) -> None:
            other.delete_session(session)
            other.create_session(session, agent_type="other")
            call.arrange(other, session)

        elsewhere(renew)
        version = store.load_state(session).version
        call.act(store, session)
        state = store.load_state(session)
        assert (state.version, state.agent_type) == (version + 1, "other"), call
        assert_invariants(session)


def test_documents_come_back_equal_and_in_order(store: SessionStore, session: str) -> None:
    for value in DOCUMENTS.values():
        store.append_messages(session, [{"role": "user", "content": value}])
        record = store.emit_event(session, "note", value)
        [message] = store.get_messages(session, limit=1, newest_first=True).messages
        assert exact(message["content"]) == exact(value)
        assert exact(store.get_events(session, record.seq)[0].data) == exact(value)
        store.compare_and_set_status(session, ["active"], "active", interrupt_context=value)
        assert exact(store.load_state(session).interrupt_context) == exact(value)
