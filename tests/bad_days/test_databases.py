"""The database cannot: full, too slow, out of connections. A clear error, nothing lost, and on it goes."""

import socket
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
from tests.concurrency.locks import elsewhere, row_held
from tests.invariants import assert_healthy, assert_invariants, dump
from tests.parallel import run_threads
from tests.torture.proxy import distant

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


SAID = {"messages": [{"role": "user", "content": 1}]}
READS: dict[str, Callable[[SessionStore], Any]] = {
    "load_state": lambda store: store.load_state("s"),
    "session_exists": lambda store: store.session_exists("s"),
    "get_messages": lambda store: store.get_messages("s"),
    "get_events": lambda store: store.get_events("s"),
    "list_runs": lambda store: store.list_runs("s"),
    "list_inputs": lambda store: store.list_inputs("s"),
    "list_sessions": lambda store: store.list_sessions(),
    "list_unattended": lambda store: store.list_unattended(),
    "list_checkpoints": lambda store: store.list_checkpoints("s"),
    "get_instructions": lambda store: store.get_instructions("agent"),
}
WRITES: dict[str, Callable[[SessionStore], Any]] = {
    "increment_step_count": lambda store: store.increment_step_count("s"),
    "append_messages": lambda store: store.append_messages("s", [{"role": "user", "content": "m"}]),
    "update_run_status": lambda store: store.update_run_status("s", "r", "completed"),
    "create_session": lambda store: store.create_session("new", agent_type="agent"),
    "delete_session": lambda store: store.delete_session("s"),
    "set_instructions": lambda store: store.set_instructions("agent", "Be brief."),
    "prune_idempotency_keys": lambda store: store.prune_idempotency_keys(),
}


def lose_the_connection() -> None:
    """The server process of this connection is ended, as by a restart."""
    backend = _backend()
    _elsewhere(lambda: _end_backend(backend))


class TestLostConnections:
    """In a process that is no request, where nobody closes connections for it."""

    @pytest.fixture(autouse=True)
    def only_there(self, engine: str) -> None:
        if engine != "postgresql":
            pytest.skip("about PostgreSQL")

    @pytest.mark.parametrize("name", READS)
    def test_a_read_says_so_and_is_just_tried_again(self, store: SessionStore, name: str):
        prepare(store)
        lose_the_connection()

        with pytest.raises(StoreUnavailable):
            READS[name](store)
        READS[name](store)

    @pytest.mark.parametrize("name", WRITES)
    def test_a_write_is_just_tried_again(self, store: SessionStore, name: str):
        prepare(store)
        store.discard_staging("s")
        store.set_interrupt_flag("s")
        lose_the_connection()

        with pytest.raises((OperationalError, StoreUnavailable)):
            WRITES[name](store)
        WRITES[name](store)

        if store.session_exists("s"):
            assert_invariants("s")

    def test_before_the_commit_it_is_known_that_nothing_was_written(self, store: SessionStore):
        prepare(store)
        lose_the_connection()

        with pytest.raises(StoreUnavailable):
            store.delete_session("s")

        assert store.session_exists("s")

    def test_in_the_middle_of_a_transaction_of_the_caller(self, store: SessionStore):
        prepare(store)

        def work() -> None:
            with transaction.atomic():
                store.increment_step_count("s")
                lose_the_connection()
                store.load_state("s")

        with pytest.raises(StoreUnavailable):
            work()
        assert store.load_state("s").step_count == 0
        assert_invariants("s")

    @pytest.mark.parametrize("name", READS)
    def test_a_line_that_is_cut(self, store: SessionStore, name: str):
        """No word from the server, as when a machine or a network dies."""
        prepare(store)
        with distant(int(connection.settings_dict["PORT"]), 0.0) as (port, cut_off):
            with at_port(port):
                READS[name](store)
                cut_off()
                with pytest.raises(StoreUnavailable):
                    READS[name](store)
            READS[name](store)

    def test_a_server_that_is_not_there(self, store: SessionStore):
        prepare(store)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        connection.close()
        with at_port(port):
            for call in (*READS.values(), *WRITES.values()):
                with pytest.raises(StoreUnavailable):
                    call(store)
        for call in READS.values():
            call(store)
        assert_healthy("s")


def test_a_read_that_takes_too_long(store: SessionStore, engine: str):
    if engine != "postgresql":
        pytest.skip("SQLite has no statement timeout")
    prepare(store)
    with option(options="-c statement_timeout=700"), table_held(), pytest.raises(StoreUnavailable):
        store.load_state("s")
    assert store.load_state("s").version


def table_held() -> Any:
    """Nobody reads the sessions while this lasts."""
    return elsewhere(
        lambda: connection.cursor().execute("LOCK TABLE helix_sessions_session IN ACCESS EXCLUSIVE MODE")
    )


@contextmanager
def at_port(port: int) -> Iterator[None]:
    """The database is looked for there; a connection that is lost is not kept beyond."""
    settings = connection.settings_dict
    before = {name: settings[name] for name in ("HOST", "PORT")}
    connection.close()
    settings |= {"HOST": "127.0.0.1", "PORT": port}
    try:
        yield
    finally:
        settings |= before


class TestLostOverHttp:
    @pytest.fixture(autouse=True)
    def only_there(self, engine: str) -> None:
        if engine != "postgresql":
            pytest.skip("about PostgreSQL")

    @pytest.fixture
    def api(self, store: SessionStore, django_user_model: Any) -> APIClient:
        user = django_user_model.objects.create_superuser("ada")
        store.create_session("s", agent_type="agent", owner=user)
        api = APIClient()
        api.force_authenticate(user)
        return api

    @pytest.mark.parametrize("audited", [False, True])
    @pytest.mark.parametrize(
        "ask",
        [
            lambda api: api.get("/api/sessions/s/"),
            lambda api: api.get("/api/sessions/"),
            lambda api: api.get("/api/sessions/s/messages/"),
            lambda api: api.post("/api/sessions/s/messages/", SAID, "json"),
            lambda api: api.post("/api/sessions/s/messages/", SAID, "json", headers={"Idempotency-Key": "k"}),
            lambda api: api.delete("/api/sessions/s/"),
        ],
    )
    def test_is_told_as_a_problem_and_just_asked_again(
        self, api: APIClient, settings: Any, audited: bool, ask: Callable[[APIClient], Any]
    ):
        settings.HELIX_SESSIONS = {**getattr(settings, "HELIX_SESSIONS", {}), "AUDIT_TRAIL": audited}
        lose_the_connection()

        lost = ask(api)
        assert lost.status_code == 503
        assert lost["Content-Type"] == "application/problem+json"
        assert lost.json()["code"] in ("database_lost", "store_unavailable")
        assert lost["Retry-After"]

        assert ask(api).status_code < 300

    @pytest.mark.parametrize("audited", [False, True])
    def test_while_there_is_no_server(self, api: APIClient, settings: Any, audited: bool):
        settings.HELIX_SESSIONS = {**getattr(settings, "HELIX_SESSIONS", {}), "AUDIT_TRAIL": audited}
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        with at_port(port):
            for answer in (api.get("/api/sessions/s/"), api.post("/api/sessions/s/messages/", SAID, "json")):
                assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
                assert answer["Retry-After"]
        assert api.get("/api/sessions/s/").status_code == 200

    def test_a_read_does_not_speak_of_writes(self, api: APIClient):
        lose_the_connection()
        assert "A write may" not in api.get("/api/sessions/s/").json()["detail"]


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
        cursor.execute("VACUUM")  # pages that were left free would be used first
        [pages] = cursor.execute("PRAGMA page_count").fetchone()
        [most] = cursor.execute("PRAGMA max_page_count").fetchone()
        cursor.execute(f"PRAGMA max_page_count = {pages + 20}")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA max_page_count = {most}")
