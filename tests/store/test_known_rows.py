"""A row that the connection wrote last is not read again, and a change by anybody else is never missed."""

import sqlite3
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection, connections, transaction

from helix_sessions.exceptions import Fenced, SessionNotFound
from helix_sessions.models import Session, StateSnapshot
from helix_sessions.store import SessionStore
from helix_sessions.store.engine import remembered_rows
from helix_sessions.store.engine.remembered_rows import KnownRow
from tests.parallel import run_threads
from tests.store.statements import MESSAGE, assert_gapless, needs_memory, reads_the_row, sent_by

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def written_last(store: SessionStore) -> None:
    needs_memory()
    store.create_session("s", agent_type="agent")
    store.append_messages("s", [MESSAGE])


def test_it_is_not_read_again(store: SessionStore):
    assert not reads_the_row(store)


def test_a_write_of_another_connection_is_noticed(store: SessionStore):
    run_threads(1, lambda _: store.set_interrupt_flag("s", "stop"))
    assert reads_the_row(store)
    assert store.check_interrupt_flag("s") is not None
    assert store.get_message_count("s") == 2


def test_a_write_of_this_connection_past_the_store_is_noticed(store: SessionStore):
    Session.objects.filter(session_id="s").update(step_count=41)
    assert store.increment_step_count("s") == 42


def test_a_write_of_another_connection_past_the_store_is_noticed(store: SessionStore):
    def operate(_: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE helix_sessions_session SET step_count = 41 WHERE session_id = 's'")

    assert run_threads(1, operate) == [None]
    assert store.increment_step_count("s") == 42


def test_two_connections_in_turn_lose_nothing(store: SessionStore):
    for _ in range(10):
        store.append_messages("s", [MESSAGE])
        run_threads(1, lambda _: store.append_messages("s", [MESSAGE]))
    assert store.get_message_count("s") == 21
    assert_gapless(store)


def test_after_a_caller_rolled_back_it_is_read_again(store: SessionStore):
    with transaction.atomic():
        store.append_messages("s", [MESSAGE])
        transaction.set_rollback(True)
    store.append_messages("s", [MESSAGE])
    assert store.get_message_count("s") == 2


def test_all_rows_of_one_write_are_known_by_one_mark(store: SessionStore):
    store.create_session("child", agent_type="agent", parent_session_id="s")
    sent = sent_by(lambda: store.settle_child("child", "completed"))
    assert sum("data_version" in sql for sql in sent) == (connection.vendor == "sqlite")
    assert not reads_the_row(store)
    assert not reads_the_row(store)


def test_it_is_the_same_only_if_all_it_is_known_by_is(store: SessionStore):
    """The number of its transaction, or the state of the file, may come again in another history."""
    here = connections["default"]

    def is_taken_for_another(**values: Any) -> bool:
        known = remembered_rows.recall(here, "s")
        assert known is not None
        assert not values.items() <= known.values.items()
        remembered_rows.remember(here, "s", KnownRow(known.row_version, {**known.values, **values}))
        return reads_the_row(store)

    for number in range(2):
        for name in ("version", "head_seq", "fence", "write_mark"):
            assert is_taken_for_another(**{name: 7_777}), name
        owner = None if number else "somebody"
        assert is_taken_for_another(lease_owner=owner), "lease_owner"
        store.acquire_lease("s", "a", 30)
    assert_gapless(store)


def test_each_write_leaves_a_mark_of_its_own(store: SessionStore):
    marks = set()
    for call in (
        lambda: store.append_messages("s", [MESSAGE]),
        lambda: store.patch_metadata("s", {"a": 1}),
        lambda: store.acquire_lease("s", "a", 30),
        lambda: store.emit_event("s", "note"),
        lambda: store.create_session("t", agent_type="agent"),
    ):
        call()
        marks |= set(Session.objects.values_list("write_mark", flat=True))
    assert None not in marks
    assert len(marks) == 5


def test_a_row_without_a_mark_is_read_first(store: SessionStore):
    """One that was last written before there were marks."""
    Session.objects.update(write_mark=None)
    store.admit_input("s", "hello")
    assert not reads_the_row(store)
    assert_gapless(store)


def test_a_backup_is_restored_through_the_connection(store: SessionStore, engine: str):
    if engine != "sqlite":
        pytest.skip("about SQLite")
    backup = sqlite3.connect(":memory:")
    connection.connection.backup(backup)
    mine = store.fenced(store.acquire_lease("s", "a", 30))
    for _ in range(4):
        mine.append_messages("s", [MESSAGE])
    backup.backup(connection.connection)
    with pytest.raises(Fenced):
        mine.append_messages("s", [MESSAGE])
    store.append_messages("s", [MESSAGE])
    assert store.get_message_count("s") == 2
    assert_gapless(store)


def test_another_owners_store_does_not_know_it(store: SessionStore, django_user_model: Any):
    ann, bob = (django_user_model.objects.create(username=name) for name in ("ann", "bob"))
    for owner in (ann, None):
        key = f"of {owner}"
        store.create_session(key, agent_type="agent", owner=owner)
        store.append_messages(key, [MESSAGE])
        assert not reads_the_row(store, key)
        with pytest.raises(SessionNotFound):
            SessionStore(owned_by=bob).append_messages(key, [MESSAGE])
        assert store.get_message_count(key) == 2
    store.append_messages("of ann", [MESSAGE])
    assert not reads_the_row(SessionStore(owned_by=ann), "of ann")


def test_what_belongs_to_the_write_besides_new_rows_is_done(store: SessionStore):
    """The state of a merge, which no checkpoint points at, goes with the commit that stores the next one."""
    state = store.save_state("s", replace(store.load_state("s"), custom_state={"a": 1}))
    store.merge_custom_state("s", [{"op": "set", "path": ["a"], "value": 2}])
    assert remembered_rows.recall(connections["default"], "s") is not None
    store.save_state_and_promote_staging("s", replace(state, custom_state={"a": 3}))
    kept = StateSnapshot.objects.filter(session_id="s").order_by("number")
    assert [row.document for row in kept] == [{"a": 1}, {"a": 3}]
    assert store.load_state("s").custom_state == {"a": 3}
