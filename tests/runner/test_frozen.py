"""A worker that is stopped for longer than its lease, as when its machine is paused, and then goes on."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from helix_sessions.exceptions import SessionBusy, StoreUnavailable
from helix_sessions.runtime import SessionRunner, ToolResult, TurnContext
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from helix_sessions.store.engine.dialect import table_by_table
from helix_sessions.types import Lease
from tests.invariants import assert_valid_transcript, dump
from tests.parallel import Worker
from tests.runner.test_activities import said, whole

pytestmark = pytest.mark.django_db(transaction=True)

TTL = 0.5


def freeze() -> None:
    """Stop this process until somebody lets it go on."""
    os.kill(os.getpid(), signal.SIGSTOP)


def freeze_between_renewals() -> None:
    """The same, and not while the lease is renewed."""
    with RENEWAL:
        freeze()


RENEWAL = threading.Lock()
RENEWED = threading.Event()


class OneAtATime(SessionStore):
    """Renews a lease when nothing is about to freeze."""

    def renew_lease(self, lease: Lease, ttl: float) -> Lease:
        with RENEWAL:
            return super().renew_lease(lease, ttl)


class FreezesInRenewal(SessionStore):
    """Freezes when it is about to write the renewal of a lease."""

    def renew_lease(self, lease: Lease, ttl: float) -> Lease:
        def freeze_before_the_write(execute: Any, sql: str, *rest: Any) -> Any:
            if "UPDATE" in sql and not RENEWED.is_set():
                RENEWED.set()
                freeze()
            return execute(sql, *rest)

        with connection.execute_wrapper(freeze_before_the_write):
            return super().renew_lease(lease, ttl)


def pay(notes: str) -> ToolResult:
    """The work of a tool: something outside that cannot be undone, and a write to the state."""
    with Path(notes).open("a") as file:
        file.write("paid\n")
    return ToolResult("paid", [{"op": "append", "path": ["paid"], "values": [1]}])


def in_the_model_call(session: str, notes: str) -> str:
    """In another process, as all of these."""

    def think(turn: TurnContext) -> dict[str, Any]:
        freeze_between_renewals()
        return calls("pay")

    return _drive(ScriptedAgent([think], tools={"pay": lambda *_: pay(notes)}), session)


def in_a_tool(session: str, notes: str) -> str:
    def pay_and_freeze(*_: Any) -> ToolResult:
        paid = pay(notes)
        freeze_between_renewals()
        return paid

    return _drive(ScriptedAgent([calls("pay")], tools={"pay": pay_and_freeze}), session)


def in_one_of_two_tools(session: str, notes: str) -> str:
    """When the other has ended and its result is logged."""

    def wait_and_freeze(*_: Any) -> None:
        _until(lambda: SessionStore().get_events(session, types=["tool_responded"]))
        freeze_between_renewals()

    tools = {"pay": lambda *_: pay(notes), "wait": wait_and_freeze}
    return _drive(ScriptedAgent([calls("pay", "wait")], tools=tools), session)


def in_a_renewal(session: str, notes: str) -> str:
    def wait_for_it(turn: TurnContext) -> str:
        RENEWED.wait(30)
        return "it was only slow"

    return _drive(ScriptedAgent([wait_for_it]), session, FreezesInRenewal())


def in_a_transaction(session: str, idle_timeout: int | None) -> str:
    """With the session's row locked, on SQLite the whole file."""
    if idle_timeout is not None:
        connection.settings_dict["OPTIONS"] = {
            "options": f"-c idle_in_transaction_session_timeout={idle_timeout}"
        }

    def freeze_before_the_run(execute: Any, sql: str, *rest: Any) -> Any:
        if 'INSERT INTO "helix_sessions_run"' in sql:
            freeze()
        return execute(sql, *rest)

    with table_by_table(), connection.execute_wrapper(freeze_before_the_run):
        return _drive(ScriptedAgent(["it was only slow"]), session)


def _drive(agent: ScriptedAgent, session: str, store: SessionStore | None = None) -> str:
    store = store or OneAtATime()
    return SessionRunner(agent, store=store, owner="frozen", lease_ttl=TTL).run(session).kind


def _until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def frozen(function: Callable[..., str], *arguments: Any) -> Iterator[Callable[[], str | Exception]]:
    """A process that calls the function and has frozen; call what is yielded to let it go on and end."""
    worker = Worker(function, *arguments)
    try:
        worker.wait_until_ready()
        worker.go()
        number = worker.process.pid
        assert number is not None
        look = ["ps", "-o", "state=", "-p", str(number)]
        _until(lambda: subprocess.run(look, capture_output=True).stdout.strip().startswith(b"T"))

        def thawed() -> str | Exception:
            os.kill(number, signal.SIGCONT)
            return worker.result(30)

        yield thawed
    finally:
        worker.kill()


def _is_free(store: SessionStore, session: str) -> bool:
    return store.get_occupancy(session).owner is None


def test_nothing_of_it_is_written_and_no_tool_runs_twice(
    store: SessionStore, tmp_path: Path, engine: str
) -> None:
    """Wherever it froze: the session was ended by another, whose outcome it shares."""
    places = [(in_the_model_call, 0), (in_a_tool, 1), (in_one_of_two_tools, 1)]
    if engine == "postgresql":  # on SQLite every write locks the file
        places.append((in_a_renewal, 0))
    for where, times in places:
        session, notes = where.__name__, tmp_path / where.__name__
        store.create_session(session, agent_type="writer")
        store.admit_input(session, "go")
        ran: list[Any] = []
        agent = ScriptedAgent(["by another"], tools={"pay": ran.append, "wait": ran.append})
        with frozen(where, session, str(notes)) as thawed:
            _until(store.list_abandoned)
            assert SessionRunner(agent).sweep() == 1, where
            before = dump()
            assert thawed() == "completed", where
        assert dump() == before, where
        assert (ran, notes.read_text() if times else "") == ([], "paid\n" * times), where
        assert said(store, session)[-1] == ("assistant", "by another"), where
        assert_valid_transcript(session)
        whole(store, session)
    assert store.load_state("in_one_of_two_tools").custom_state == {"paid": [1]}, "what was logged is kept"


def test_with_a_lock_it_keeps_others_out_until_it_goes_on(
    store: SessionStore, session: str, settings: Any, engine: str
) -> None:
    """They are told so in `LOCK_TIMEOUT`, and nothing is broken afterwards."""
    settings.HELIX_SESSIONS = {"LOCK_TIMEOUT": 0.1}
    if engine == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 100")
    store.admit_input(session, "go")
    with frozen(in_a_transaction, session, None) as thawed:
        _until(lambda: _is_free(store, session))
        with pytest.raises(SessionBusy):
            store.acquire_lease(session, "another", 60)
        assert SessionRunner(ScriptedAgent()).sweep() == 0
        assert thawed() == "completed"
    connection.close()
    assert said(store, session)[-1] == ("assistant", "it was only slow")
    whole(store, session)


def test_a_lock_is_bounded_by_what_the_server_allows_an_idle_transaction(
    store: SessionStore, session: str, engine: str
) -> None:
    if engine != "postgresql":
        pytest.skip("On SQLite a lock goes with its process.")
    store.admit_input(session, "go")
    with frozen(in_a_transaction, session, 200) as thawed:
        _until(lambda: _is_free(store, session))
        assert SessionRunner(ScriptedAgent(["by another"])).sweep() == 1
        before = dump()
        assert isinstance(thawed(), StoreUnavailable)
    assert dump() == before
    assert said(store, session)[-1] == ("assistant", "by another")
    whole(store, session)
