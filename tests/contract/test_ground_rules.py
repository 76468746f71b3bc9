"""Section 1: what holds for every write. Concurrency and crashes are shown in `tests/concurrency`."""

import contextlib
import inspect
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from helix_sessions.exceptions import SessionNotFound, StaleState
from helix_sessions.store import SessionStore
from helix_sessions.types import CasMismatch, CheckpointMeta
from tests.contract.calls import IDLE, KEEPING, MESSAGE_EVENT, RAISING, READING, USER, Call
from tests.invariants import assert_invariants, dump
from tests.rows import each

pytestmark = pytest.mark.django_db

raising = each("call", RAISING, ids=str)
idle = each("call", IDLE, ids=str)


@contextlib.contextmanager
def rolled_back() -> Iterator[None]:
    """A transaction that ends without a commit."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def place(store: SessionStore, session: str) -> tuple[int, int]:
    state = store.load_state(session)
    return state.version, state.head_seq


def test_every_call_with_an_expected_version_is_in_the_table() -> None:
    takes = {
        name
        for name, method in inspect.getmembers(SessionStore, inspect.isfunction)
        if not name.startswith("_") and "expected_version" in inspect.signature(method).parameters
    }
    only_checking = {"check_session_version", "delete_session"}
    assert takes - only_checking == {call.name for call in RAISING}


@raising
def test_a_write_raises_the_version_by_one_and_appends_the_event_that_names_it(
    store: SessionStore, session: str, call: Call
) -> None:
    call.arrange(store, session)
    version, head = place(store, session)

    call.act(store, session)

    new = store.get_events(session, head + 1)
    assert place(store, session) == (version + 1, head + len(new))
    assert [event.seq for event in new] == list(range(head + 1, head + 1 + len(new)))
    assert call.event in [event.type for event in new]
    assert_invariants(session)


def test_an_emitted_message_raises_the_version(store: SessionStore, session: str) -> None:
    version, head = place(store, session)
    MESSAGE_EVENT.act(store, session)
    assert place(store, session) == (version + 1, head + 1)


@each("call", KEEPING, ids=str)
def test_staging_and_plain_events_leave_the_version(store: SessionStore, session: str, call: Call) -> None:
    call.arrange(store, session)
    version, head = place(store, session)

    call.act(store, session)

    assert place(store, session) == (version, head + (1 if call.event else 0))
    assert [event.type for event in store.get_events(session, head + 1)] == [call.event] * bool(call.event)


@raising
def test_the_expected_version_is_accepted(store: SessionStore, session: str, call: Call) -> None:
    call.arrange(store, session)
    version, _ = place(store, session)
    call.act(store, session, expected_version=version)
    assert place(store, session)[0] == version + 1


@each("off_by", [-1, 1, 1000])
@raising
def test_another_version_is_refused_with_what_the_store_saw(
    store: SessionStore, session: str, call: Call, off_by: int
) -> None:
    call.arrange(store, session)
    version, _ = place(store, session)
    before = dump()

    if call.name == "compare_and_set_status":
        answer = call.act(store, session, expected_version=version + off_by)
        assert answer == CasMismatch(current_status="active", current_version=version)
    else:
        with pytest.raises(StaleState) as caught:
            call.act(store, session, expected_version=version + off_by)
        stale = caught.value
        assert (stale.expected_version, stale.current_version, stale.current_status) == (
            version + off_by,
            version,
            "active",
        )

    assert dump() == before


@idle
def test_a_call_with_nothing_to_do_changes_nothing(store: SessionStore, session: str, call: Call) -> None:
    store.append_messages(session, [USER])
    call.arrange(store, session)
    before = dump()
    call.act(store, session)
    assert dump() == before


@idle
def test_a_call_with_nothing_to_do_still_checks_the_version(
    store: SessionStore, session: str, call: Call
) -> None:
    call.arrange(store, session)
    version, _ = place(store, session)
    with pytest.raises(StaleState):
        call.act(store, session, expected_version=version + 1)


def test_reading_changes_nothing(store: SessionStore, session: str) -> None:
    store.create_run(session, run_id="r")
    store.create_checkpoint(session, {"checkpoint_id": "c"})
    before = dump()
    for call in READING:
        call.act(store, session)
    store.list_sessions()
    store.session_exists(session)
    store.attach(session)
    assert dump() == before


def test_a_new_session_is_at_version_one_with_one_event(store: SessionStore) -> None:
    state = store.create_session("new", agent_type="writer")
    assert (state.version, state.head_seq) == (1, 1)
    [event] = store.get_events("new")
    assert (event.seq, event.type) == (1, "session_started")


def test_numbers_never_go_back(store: SessionStore, session: str) -> None:
    store.append_messages(session, [USER] * 3)
    _, head = place(store, session)
    store.truncate_messages(session, 0)
    assert place(store, session)[1] == head + 1


@each(
    "call",
    [call for call in [*RAISING, *KEEPING, *IDLE, *READING, MESSAGE_EVENT] if call.name != "begin_turn"],
    ids=str,
)
def test_an_unknown_session_is_not_found(store: SessionStore, call: Call) -> None:
    if call.name == "cleanup_orphaned_staging":
        call = replace(
            call, act=lambda s, k: s.cleanup_orphaned_staging(older_than=timedelta(0), session_id=k)
        )
    with pytest.raises(SessionNotFound) as caught:
        call.act(store, "unknown")
    assert caught.value.session_id == "unknown"
    assert not store.session_exists("unknown")


def test_an_unknown_session_may_be_asked_for_deleted_and_attached(store: SessionStore) -> None:
    assert store.session_exists("unknown") is False
    assert store.delete_session("unknown") is None
    assert store.attach("unknown") == 1


@each("call", [*RAISING, MESSAGE_EVENT, *KEEPING], ids=str)
def test_a_write_joins_the_transaction_around_it(store: SessionStore, session: str, call: Call) -> None:
    call.arrange(store, session)
    before = dump()

    with rolled_back():
        call.act(store, session)
    assert dump() == before

    with transaction.atomic():
        call.act(store, session)
        written = dump()
    assert dump() == written
    assert_invariants(session)


@raising
def test_a_refusal_leaves_the_transaction_around_it_usable(
    store: SessionStore, session: str, call: Call
) -> None:
    call.arrange(store, session)
    with transaction.atomic():
        with contextlib.suppress(StaleState):
            call.act(store, session, expected_version=1000)
        call.act(store, session)
    assert_invariants(session)


@pytest.mark.django_db(transaction=True)
def test_creation_deletion_and_branching_join_the_transaction_around_them(store: SessionStore) -> None:
    store.create_session("s", agent_type="writer")
    before = dump()
    with rolled_back():
        store.create_session("other", agent_type="writer")
        store.clone_session("s", "branch")
        store.delete_session("s")
        store.attach("attached")
    assert dump() == before


@pytest.mark.django_db(transaction=True)
def test_several_writes_commit_with_the_transaction_around_them(store: SessionStore) -> None:
    with transaction.atomic():
        store.create_session("s", agent_type="writer")
        store.append_messages("s", [USER])
        store.update_status("s", "completed", output={"done": True})
    state = store.load_state("s")
    assert (state.version, state.message_count, state.status) == (3, 1, "completed")
    assert_invariants("s")


@pytest.mark.django_db(transaction=True)
def test_the_callers_lock_timeout_is_left_alone(store: SessionStore, engine: str) -> None:
    if engine != "postgresql":
        pytest.skip("SQLite has no such setting")
    from django.db import connection

    def lock_timeout() -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            return cursor.fetchone()[0]

    store.create_session("s", agent_type="writer")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '1234ms'")
        store.append_messages("s", [USER])
        with pytest.raises(StaleState):
            store.append_messages("s", [USER], expected_version=99)
        assert lock_timeout() == "1234ms"
    assert lock_timeout() == "0"


def test_a_repeated_commit_writes_nothing(store: SessionStore, session: str) -> None:
    meta = CheckpointMeta(checkpoint_id="c")
    state = store.load_state(session)
    first = store.save_state_and_promote_staging(session, state, [USER], meta)
    before = dump()
    again = store.save_state_and_promote_staging(session, state, [USER], meta)
    assert again == replace(first, replayed=True)
    assert dump() == before
