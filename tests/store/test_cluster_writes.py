"""The writes of a Citus cluster, which a single PostgreSQL takes too: all statements of a write at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.contrib.auth import get_user_model
from django.db import InternalError, connection, connections, transaction
from django.utils import timezone

from helix_sessions.exceptions import (
    SessionExists,
    SessionMoved,
    SessionNotFound,
    StaleState,
    StoreUnavailable,
)
from helix_sessions.models import Event, Message, MovedOwner, Session
from helix_sessions.models.moves import LEFT
from helix_sessions.store import SessionStore
from helix_sessions.store.driving.claims import claim_next
from helix_sessions.store.engine import claiming, remembered_rows, turns
from helix_sessions.store.engine.citus import CitusDialect
from helix_sessions.store.engine.spending import key_of_owner
from tests import citus
from tests.parallel import wait_until
from tests.rows import each
from tests.store.statements import MESSAGE, assert_gapless, needs_memory, reads_the_row, sent_by

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _cluster(engine: str) -> Iterator[None]:
    if engine != "postgresql":
        pytest.skip("about PostgreSQL")
    needs_memory()
    with citus.spoken():
        yield


@pytest.fixture
def session(store: SessionStore) -> str:
    store.create_session("s", agent_type="agent")
    store.append_messages("s", [MESSAGE])
    return "s"


def recalled() -> Any:
    return remembered_rows.recall(connections["default"], "s")


def pipelines(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What is sent at once from here on."""
    from helix_sessions.store.engine import citus as module

    sent: list[list[str]] = []
    send = module._Pipeline._send

    def note(self: Any, statements: Any) -> None:
        listed = list(statements)
        sent.append([sql for sql, _ in listed])
        send(self, listed)

    monkeypatch.setattr(module._Pipeline, "_send", note)
    return sent


def test_a_write_on_a_remembered_row_is_one_round_trip(
    store: SessionStore, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = pipelines(monkeypatch)
    store.append_messages(session, [MESSAGE])
    [statements] = sent
    assert (statements[0], statements[-1]) == ("BEGIN", "COMMIT")
    assert not any(sql.startswith("SELECT") for sql in statements)
    assert_gapless(store)


def test_statements_that_are_watched_are_the_same(store: SessionStore, session: str) -> None:
    assert not reads_the_row(store)
    sent = sent_by(lambda: store.append_messages(session, [MESSAGE]))
    assert (sent[0], sent[-1]) == ("BEGIN", "COMMIT")
    assert_gapless(store)


@each("knows", [False, True])
def test_a_write_that_names_its_version_reads_the_row_of_another_connection_without_a_lock(
    store: SessionStore, session: str, knows: bool
) -> None:
    here, before = connections["default"], recalled()
    store.append_messages(session, [MESSAGE])
    version = store.load_state(session).version
    if knows:  # as if another connection had made that write
        remembered_rows.remember(here, session, before)
    else:
        remembered_rows.forget(here, session)
    sent = sent_by(lambda: store.append_messages(session, [MESSAGE], expected_version=version))
    read, begin, *_, end = sent
    assert read.startswith("SELECT xmin")
    assert "FOR " not in read
    assert (begin, end) == ("BEGIN", "COMMIT")
    with pytest.raises(StaleState):
        store.append_messages(session, [MESSAGE], expected_version=version)
    assert store.get_message_count(session) == 3
    assert_gapless(store)


def test_a_row_that_was_changed_past_the_store_is_read_again(store: SessionStore, session: str) -> None:
    Session.objects.update(step_count=41)
    assert store.increment_step_count(session) == 42
    assert recalled() is not None
    assert_gapless(store)


def test_of_a_session_that_is_gone_nothing_is_written(store: SessionStore, session: str) -> None:
    for model in (Message, Event, Session):
        with connection.cursor() as cursor:
            cursor.execute("SET session_replication_role = replica")
            cursor.execute(f"DELETE FROM {model._meta.db_table} WHERE session_id = 's'")
            cursor.execute("SET session_replication_role = DEFAULT")
    assert recalled() is not None
    with pytest.raises(SessionNotFound):
        store.append_messages(session, [MESSAGE])
    assert not Event.objects.exists()
    store.create_session("s", agent_type="agent")  # the connection is usable


def test_a_node_that_is_lost_before_the_commit_has_written_nothing(
    store: SessionStore, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from helix_sessions.store.engine import flush

    def lost(_work: Any) -> Iterator[Any]:
        yield "DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '08006'; END $$", ()

    with monkeypatch.context() as patch:
        patch.setattr(flush, "insert_statements", lost)
        with pytest.raises(StoreUnavailable):
            store.append_messages(session, [MESSAGE])
    store.append_messages(session, [MESSAGE])
    assert store.get_message_count(session) == 2
    assert_gapless(store)


def test_an_internal_error_is_a_commit_whose_outcome_is_unknown() -> None:
    error = InternalError("could not commit transaction for shard")
    error.__cause__ = psycopg.errors.InternalError_()
    assert CitusDialect().is_outcome_unknown(error)
    error.__cause__ = psycopg.errors.InvalidCursorDefinition()
    assert not CitusDialect().is_outcome_unknown(error)


def test_what_was_spent_and_how_limits_stand_go_with_the_write(store: SessionStore, session: str) -> None:
    store.set_spend_limit(scope="all", window="total", tokens=100)
    store.create_run(session, run_id="r")
    usage = {"input_tokens": 5, "output_tokens": 6}
    store.update_run_status(session, "r", "completed", usage=usage)
    [status] = store.spend_status()
    assert status.used_tokens == 11


def test_of_an_owner_who_has_moved_no_session_is_created(store: SessionStore) -> None:
    user = get_user_model().objects.create_user("alice")
    MovedOwner.objects.create(
        tenant=key_of_owner(user.pk), state=LEFT, cell="second", since=datetime(2100, 1, 1, tzinfo=UTC)
    )
    with pytest.raises(SessionMoved):
        store.create_session("s", agent_type="agent", owner=user)
    assert not Session.objects.exists()
    store.create_session("s", agent_type="agent")
    with pytest.raises(SessionExists):
        store.create_session("s", agent_type="agent")


def test_in_the_callers_transaction(store: SessionStore, session: str) -> None:
    with transaction.atomic():
        store.append_messages(session, [MESSAGE])
        store.set_expiry(session, datetime(2100, 1, 1, tzinfo=UTC))
        transaction.set_rollback(True)
    assert store.get_message_count(session) == 1
    store.append_messages(session, [MESSAGE] * 100)
    assert store.get_message_count(session) == 101
    assert_gapless(store)


def claimed(store: SessionStore) -> str | None:
    driver = claim_next(store, "worker", 60)
    return None if driver is None else driver.session_id


@contextmanager
def locked(session_id: str) -> Iterator[None]:
    """Another connection has the session's row, as a worker has that is frozen in the middle of a write. Who
    waits for it fails."""
    database = connection.settings_dict
    other = psycopg.connect(
        host=database["HOST"],
        port=database["PORT"] or None,
        dbname=database["NAME"],
        user=database["USER"],
        password=database["PASSWORD"] or None,
    )
    with other, connection.cursor() as cursor:
        other.execute("SELECT FROM helix_sessions_session WHERE session_id = %s FOR UPDATE", [session_id])
        cursor.execute("SET lock_timeout = '5s'")
        yield
        cursor.execute("RESET lock_timeout")


@pytest.fixture(params=["all that is due", "step by step"])
def look(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a claim finds the next session: among few that are due, or among many."""
    monkeypatch.setattr(turns, "DUE_READ", 50 if request.param == "all that is due" else 0)
    turns._crowds.clear()
    return str(request.param)


def test_a_claim_is_one_query_and_one_statement_of_its_session(store: SessionStore) -> None:
    for name in ("a", "b"):
        store.create_session(name, agent_type="agent")
        store.admit_input(name, "go")
    sent = sent_by(lambda: claimed(store))
    assert [sql.split()[0] for sql in sent] == ["SELECT", "BEGIN", "SET", "SET", "SET", "WITH", "COMMIT"]
    assert "LIMIT" in sent[0]


def test_after_a_claim_the_first_write_reads_nothing(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_session("s", agent_type="agent")
    store.admit_input("s", "go")
    sent = pipelines(monkeypatch)
    assert claimed(store) == "s"
    [statements] = sent
    assert (statements[0], statements[-1]) == ("BEGIN", "COMMIT")
    assert recalled() is not None
    assert not reads_the_row(store)


def test_among_many_that_are_due_the_turns_are_the_same(store: SessionStore) -> None:
    """Few are read at once and put in order here; of many each step asks every node."""
    for owner in range(3):
        user = get_user_model().objects.create_user(f"owner {owner}")
        for number in range(4):
            name = f"{owner} {number}"
            store.create_session(name, agent_type="agent", owner=user, priority=number // 3)
            store.admit_input(name, "go")
    orders = []
    for due_read in (50, 5, 0):
        with mock.patch.object(turns, "DUE_READ", due_read):
            turns._crowds.clear()
            claiming._turns[("default", None)] = ""
            orders.append([claimed(store) for _ in range(13)])
        Session.objects.update(lease_owner=None, runnable_at=timezone.now(), deferred=False)
    assert orders[0][-1] is None
    assert len(set(orders[0])) == 13
    assert orders[1:] == [orders[0]] * 2


def test_a_claim_passes_over_a_session_that_another_has_locked(store: SessionStore, look: str) -> None:
    for name in ("frozen", "next"):
        store.create_session(name, agent_type="agent")
        store.admit_input(name, "go")
    with locked("frozen"):
        assert claimed(store) == "next"
        assert claimed(store) is None
    assert claimed(store) == "frozen"


def test_a_claim_does_not_wait_for_a_late_session_that_another_has_locked(
    store: SessionStore, look: str
) -> None:
    """A worker may be frozen in the middle of a write, with its lease over."""
    for name in ("frozen", "late"):
        store.create_session(name, agent_type="agent")
        store.admit_input(name, "go")
        assert claim_next(store, "frozen worker", 0.01) is not None
    wait_until(lambda: not any(store.get_occupancy(name).owner for name in ("frozen", "late")))
    with locked("frozen"):
        assert claimed(store) == "late"
        assert claimed(store) is None
    assert claimed(store) == "frozen"
