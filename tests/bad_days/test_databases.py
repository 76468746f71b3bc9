"""The database cannot: full, too slow, out of connections. A clear error, nothing lost, and on it goes."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction
from rest_framework.test import APIClient

from helix_sessions.exceptions import SessionBusy, StoreUnavailable
from helix_sessions.store import SessionStore
from tests.concurrency.calls import each_call, prepare
from tests.concurrency.locks import row_held
from tests.invariants import assert_healthy, assert_invariants, dump
from tests.parallel import run_threads

SOME = (
    "save_state_and_promote_staging",
    "append_messages, many",
    "create_run",
    "stage_changes",
    "promote_staging",
    "emit_event",
    "clone_session",
    "delete_session",
)

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def option(**options: Any) -> Iterator[None]:
    """Connect with other options for a while."""
    settings = connection.settings_dict
    before = settings["OPTIONS"]
    connection.close()
    settings["OPTIONS"] = before | options
    try:
        yield
    finally:
        connection.close()
        if "pool" in options:
            connection.close_pool()  # type: ignore[attr-defined]
        settings["OPTIONS"] = before


def refused(call: Callable[[], Any]) -> None:
    """The call says that it cannot be done now, and changes nothing."""
    before = dump()
    with pytest.raises(StoreUnavailable):
        call()
    assert dump() == before


class TestStatementTimeout:
    @pytest.fixture(autouse=True)
    def only_there(self, engine: str) -> None:
        if engine != "postgresql":
            pytest.skip("SQLite has no statement timeout")

    def test_a_write_that_takes_too_long(self, store: SessionStore):
        prepare(store)
        with option(options="-c statement_timeout=700"), row_held("s"):
            refused(lambda: store.append_messages("s", [{"role": "user", "content": 1}]))
            refused(lambda: store.increment_step_count("s"))

        assert store.append_messages("s", [{"role": "user", "content": 1}]).message_count == 4
        assert_invariants("s")

    def test_of_other_calls(self, store: SessionStore):
        """Whichever statement of a write is the one that is cut off."""
        for name, call in each_call(store, *SOME):
            with option(options="-c statement_timeout=700"), row_held("s"):
                before = dump()
                try:
                    call()
                except (StoreUnavailable, SessionBusy):
                    assert dump() == before, name
            if store.session_exists("s"):
                assert_healthy("s")

    def test_on_a_connection_that_remembers_the_row(self, store: SessionStore):
        prepare(store)
        store.discard_staging("s")
        with option(options="-c statement_timeout=700"):
            store.increment_step_count("s")
            with row_held("s"):
                refused(lambda: store.increment_step_count("s"))
            assert store.increment_step_count("s") == 2
        assert_invariants("s")


class TestSerializationFailures:
    def test_are_told_as_busy(self, store: SessionStore, engine: str):
        if engine != "postgresql":
            pytest.skip("SQLite has one writer at a time")
        from psycopg import IsolationLevel

        prepare(store)
        with option(isolation_level=IsolationLevel.REPEATABLE_READ):
            with pytest.raises(SessionBusy):
                _count_on_an_old_snapshot(store)
            assert store.increment_step_count("s") == 2
        assert_invariants("s")


def _count_on_an_old_snapshot(store: SessionStore) -> None:
    with transaction.atomic():
        store.load_state("s")  # the snapshot is taken
        _elsewhere(lambda: store.increment_step_count("s"))
        store.increment_step_count("s")


def _elsewhere(call: Callable[[], Any]) -> None:
    [outcome] = run_threads(1, lambda _: call())
    assert not isinstance(outcome, Exception)


class TestConnections:
    @pytest.fixture(autouse=True)
    def only_there(self, engine: str) -> None:
        if engine != "postgresql":
            pytest.skip("SQLite has no connections to run out of")

    def test_a_pool_that_is_exhausted(self, store: SessionStore):
        pytest.importorskip("psycopg_pool")
        prepare(store)
        with option(pool={"min_size": 1, "max_size": 1, "timeout": 0.2}):
            with pool_held(), pytest.raises(StoreUnavailable):
                store.increment_step_count("s")
            assert store.increment_step_count("s") == 1
        assert_invariants("s")

    def test_a_server_without_a_free_connection(self, store: SessionStore):
        prepare(store)
        role = "helix_limited"
        settings = connection.settings_dict
        user = settings["USER"]
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x' CONNECTION LIMIT 0 IN ROLE pg_monitor")
        connection.close()
        password = settings["PASSWORD"]
        settings |= {"USER": role, "PASSWORD": "x"}
        try:
            with pytest.raises(StoreUnavailable):
                store.increment_step_count("s")
        finally:
            settings |= {"USER": user, "PASSWORD": password}
            connection.close()
            with connection.cursor() as cursor:
                cursor.execute(f"DROP ROLE {role}")
        assert store.increment_step_count("s") == 1
        assert_invariants("s")


@contextmanager
def pool_held() -> Iterator[None]:
    """The pool's only connection is with another thread."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            connection.ensure_connection()
            held.set()
            release.wait(60)
        finally:
            connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(30)
    try:
        yield
    finally:
        release.set()
        thread.join()


class TestLostConnections:
    @pytest.mark.parametrize(
        "call",
        [
            lambda store: store.increment_step_count("s"),
            lambda store: store.append_messages("s", [{"role": "user", "content": "m"}]),
            lambda store: store.update_run_status("s", "r", "completed"),
            lambda store: store.create_session("new", agent_type="agent"),
            lambda store: store.load_state("s"),
            lambda store: store.get_messages("s"),
            lambda store: store.get_events("s"),
            lambda store: store.list_runs("s"),
            lambda store: store.list_sessions(),
            lambda store: store.delete_session("s"),
        ],
    )
    def test_a_worker_just_tries_again(
        self, store: SessionStore, engine: str, call: Callable[[SessionStore], Any]
    ):
        """A process that is no request, where nobody closes connections for it."""
        if engine != "postgresql":
            pytest.skip("about PostgreSQL")
        prepare(store)
        store.discard_staging("s")
        store.set_interrupt_flag("s")
        backend = _backend()
        _elsewhere(lambda: _end_backend(backend))

        with pytest.raises((OperationalError, StoreUnavailable)):
            call(store)
        call(store)

        if store.session_exists("s"):
            assert_invariants("s")

    def test_over_http(self, store: SessionStore, engine: str, django_user_model: Any):
        """The server process of this connection is ended; the next request has another."""
        if engine != "postgresql":
            pytest.skip("about PostgreSQL")
        user = django_user_model.objects.create_user("ada")
        store.create_session("s", agent_type="agent", owner=user)
        api = APIClient()
        api.force_authenticate(user)
        backend = _backend()
        _elsewhere(lambda: _end_backend(backend))

        lost = api.post("/api/sessions/s/messages/", {"messages": [{"role": "user", "content": 1}]}, "json")
        assert (lost.status_code, lost.json()["code"]) == (503, "database_lost")
        assert lost["Retry-After"]

        connection.close()  # as Django does at the end of a request that failed
        again = api.post("/api/sessions/s/messages/", {"messages": [{"role": "user", "content": 1}]}, "json")
        assert again.status_code == 201
        assert store.get_message_count("s") == 1


def _backend() -> int:
    connection.ensure_connection()
    return int(connection.connection.info.backend_pid)


def _end_backend(number: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [number])


class TestFullDisk:
    def test_on_sqlite(self, store: SessionStore, engine: str):
        if engine != "sqlite":
            pytest.skip("PostgreSQL: see test_full_disk.py")
        large = {"role": "user", "content": "x" * 200_000}
        prepare(store)
        with _no_more_pages():
            refused(lambda: store.append_messages("s", [large] * 20))
            refused(
                lambda: store.create_session("new", agent_type="a", custom_state={"x": "y" * 4_000_000}),
            )
            refused(lambda: store.emit_event("s", "note", "x" * 4_000_000, idempotency_key="k"))
            assert store.get_message_count("s") == 3  # reading goes on

        assert store.append_messages("s", [large] * 20).message_count == 23
        assert_invariants("s")


@contextmanager
def _no_more_pages() -> Iterator[None]:
    with connection.cursor() as cursor:
        [pages] = cursor.execute("PRAGMA page_count").fetchone()
        [most] = cursor.execute("PRAGMA max_page_count").fetchone()
        cursor.execute(f"PRAGMA max_page_count = {pages + 20}")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA max_page_count = {most}")
