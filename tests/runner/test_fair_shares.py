"""Priorities, owners in turn, and bounds on what runs at once, over all workers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone

from helix_sessions.conf import Conf
from helix_sessions.exceptions import InvalidInput
from helix_sessions.models import Session
from helix_sessions.runtime import SessionRunner, TurnContext, TurnOutcome
from helix_sessions.runtime.loop.runner import claim_next, claim_session
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from helix_sessions.store.engine import claiming, turns
from helix_sessions.store.engine.claiming import NoShare
from helix_sessions.store.engine.dialect import dialect_of, table_by_table
from helix_sessions.store.engine.postgres import PortablePostgresDialect
from helix_sessions.values.shares import Bounds
from tests.parallel import ROOT, joined_database_environment, run_processes, run_threads, wait_until
from tests.resets import delete_rows
from tests.rows import each

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 10_000


@pytest.fixture
def owners(django_user_model: Any) -> list[Any]:
    return [django_user_model.objects.create_user(name) for name in ("ada", "bob", "cyd")]


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    return lambda **bounds: monkeypatch.setattr(
        Conf, "CONCURRENCY", {k.replace("__", ":"): v for k, v in bounds.items()}
    )


def add(store: SessionStore, session_id: str, owner: Any = None, **admitted: Any) -> None:
    store.create_session(session_id, agent_type=admitted.pop("agent_type", "writer"), owner=owner)
    store.admit_input(session_id, "hello", **admitted)


_floods: list[str] = []


@pytest.fixture(autouse=True)
def _ebb() -> Iterator[None]:
    """After a flood, leave no room of deleted rows to the next test, which would wade through it."""
    yield
    if _floods:
        _floods.clear()
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("TRUNCATE helix_sessions_session CASCADE")
        delete_rows()


def flood(owner_id: str, count: int, *, runnable_at: str, prefix: str = "flood") -> None:
    """So many sessions of an owner, as copies of the first; the values are expressions of `n`."""
    _floods.append(prefix)
    columns = [field.column for field in Session._meta.concrete_fields]
    values = {"session_id": f"'{prefix}-' || n", "owner_id": owner_id, "runnable_at": runnable_at}
    named = ", ".join(f'"{name}"' for name in columns)
    copied = ", ".join(values.get(name, f's."{name}"') for name in columns)
    series = f"WITH RECURSIVE series (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < {count})"
    table = "helix_sessions_session"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({named}) {series} SELECT {copied} FROM series,"
            f" (SELECT * FROM {table} WHERE session_id = 'first') s"
        )
        cursor.execute("ANALYZE" if connection.vendor == "sqlite" else f"ANALYZE {table}")


def priority_of(session_id: str) -> int:
    return int(Session.objects.get(session_id=session_id).priority)


def ago(seconds: int) -> str:
    if connection.vendor == "sqlite":
        return f"datetime('now', '{-seconds} seconds')"
    return f"now() - interval '{seconds} seconds'"


def claimed(store: SessionStore, count: int, **how: Any) -> list[str]:
    found = [claim_next(store, "worker", 60, **how) for _ in range(count)]
    return [driver.session_id for driver in found if driver is not None]


class TestTurns:
    @each(("many", "one"), [(0, 1), (1, 0)])
    def test_many_sessions_of_one_owner_delay_another_by_one_turn(
        self, store: SessionStore, owners: list[Any], many: int, one: int
    ) -> None:
        store.create_session("first", agent_type="writer")
        flood(str(owners[many].pk), MANY, runnable_at=ago(3600))
        runner = SessionRunner(ScriptedAgent())
        runner.drive_claimed(runner.claim())  # type: ignore[arg-type]
        add(store, "other", owners[one])
        driver = runner.claim()
        assert driver is not None
        assert driver.session_id == "other", "it starts when the turn under way has ended"
        # The same in a process that has served nobody yet.
        driver.release(at=timezone.now())
        claiming._turns.clear()
        assert "other" in claimed(store, 2)

    def test_each_owner_in_turn_and_the_longest_waiting_of_each(
        self, store: SessionStore, owners: list[Any]
    ) -> None:
        ada, bob, cyd = owners
        for number in range(3):
            for owner in (ada, cyd):
                add(store, f"{owner}{number}", owner)
        add(store, "nobody", None, agent_type="other")
        add(store, "bob", bob)
        found = claimed(store, 8)
        assert len(found) == 8
        rounds = [found[:4], found[4:6], found[6:]]
        assert [sorted(name[:3] for name in some) for some in rounds] == [
            ["ada", "bob", "cyd", "nob"],
            ["ada", "cyd"],
            ["ada", "cyd"],
        ]
        assert [name for name in found if name.startswith("ada")] == ["ada0", "ada1", "ada2"]
        assert claimed(store, 1) == []

    def test_of_the_agent_types_that_are_asked_for(self, store: SessionStore, owners: list[Any]) -> None:
        ada, bob, _ = owners
        for number in range(2):
            add(store, f"ada-x{number}", ada, agent_type="x")
            add(store, f"ada-y{number}", ada, agent_type="y")
        add(store, "bob-y", bob, agent_type="y")
        add(store, "bob-z", bob, agent_type="z", priority=5)
        found = claimed(store, 6, agent_types=["x", "y"])
        assert "bob-y" in found[:2]
        assert [name for name in found if name != "bob-y"] == ["ada-x0", "ada-y0", "ada-x1", "ada-y1"]

    def test_a_store_of_one_owner(self, store: SessionStore, owners: list[Any]) -> None:
        ada, bob, _ = owners
        add(store, "ada", ada)
        add(store, "urgent", ada, priority=1)
        add(store, "bob", bob, priority=5)
        assert claimed(SessionStore(owned_by=ada), 3) == ["urgent", "ada"]

    def test_workers_at_once_take_different_ones(self, store: SessionStore, owners: list[Any]) -> None:
        for number in range(24):
            add(store, f"s{number}", owners[number % 3])
        found = run_threads(6, lambda index: claimed(SessionStore(), 6))
        names = [name for some in found for name in some]  # type: ignore[union-attr]
        assert sorted(names) == sorted(set(names))
        assert len(names) == 24

    def test_what_becomes_due_takes_its_turn_too(self, store: SessionStore, owners: list[Any]) -> None:
        """Retries, requests for later, sessions of dead workers: their time had to come first."""
        ada, bob, _ = owners
        for name, owner in (("later", bob), ("dead", ada)):
            store.create_session(name, agent_type="writer", owner=owner)
        store.request_run("later", at=timezone.now() + timedelta(hours=1))
        store.request_run("dead")
        assert claimed(store, 2) == ["dead"]
        assert set(Session.objects.values_list("deferred", flat=True)) == {True}
        past = timezone.now() - timedelta(seconds=1)
        Session.objects.update(runnable_at=past)
        Session.objects.filter(session_id="dead").update(lease_expires_at=past)
        assert sorted(claimed(store, 3)) == ["dead", "later"]


class TestPriority:
    def test_it_goes_before_the_owners_turns(self, store: SessionStore, owners: list[Any]) -> None:
        ada, bob, _ = owners
        for priority in (0, -10, 10, 3):
            add(store, f"ada{priority}", ada, priority=priority)
        add(store, "bob0", bob)
        store.create_session("bob4", agent_type="writer", owner=bob, priority=4)
        store.admit_input("bob4", "hello")
        found = claimed(store, 6)
        assert found[:3] == ["ada10", "bob4", "ada3"]
        assert sorted(found[3:5]) == ["ada0", "bob0"]
        assert found[5:] == ["ada-10"]

    def test_that_of_an_input_holds_until_the_session_comes_to_rest(self, store: SessionStore) -> None:
        store.create_session("s", agent_type="writer", priority=2)
        assert priority_of("s") == 2
        store.admit_input("s", "not urgent", priority=-5)
        assert priority_of("s") == -5
        store.admit_input("s", "as the session", delivery="queue")
        assert priority_of("s") == 2
        store.admit_input("s", "urgent", priority=9, delivery="queue")
        store.admit_input("s", "less so", priority=1, delivery="queue")
        assert priority_of("s") == 9
        SessionRunner(ScriptedAgent()).sweep()
        assert store.list_inputs("s") == []
        assert priority_of("s") == 2

    @each("priority", [-11, 11, 1.5, True, "1"])
    def test_beyond_its_range_it_is_refused(self, store: SessionStore, priority: Any) -> None:
        store.create_session("s", agent_type="writer")
        with pytest.raises(InvalidInput):
            store.admit_input("s", "hello", priority=priority)
        with pytest.raises(InvalidInput):
            store.create_session("other", agent_type="writer", priority=priority)
        assert store.list_inputs("s") == []
        assert not store.session_exists("other")

    def test_sub_agents_and_branches_have_that_of_their_session(self, store: SessionStore) -> None:
        store.create_session("parent", agent_type="writer", priority=6)
        store.admit_input("parent", "hello")
        agent = ScriptedAgent([calls("ask", prompt="find out")])
        agent.subagents = {"ask": "helper"}  # type: ignore[attr-defined]
        SessionRunner(agent, agent_types=["writer"]).sweep()
        assert Session.objects.get(agent_type="helper").priority == 6
        assert priority_of(store.clone_session("parent", "branch").session_id) == 6


class TestBounds:
    def test_of_each_owner_and_of_an_agent_type(
        self, store: SessionStore, owners: list[Any], bound: Callable[..., None]
    ) -> None:
        ada, bob, _ = owners
        bound(owner=2, agent_type__research=3)
        for number in range(4):
            for owner in (ada, bob):
                add(store, f"{owner}{number}", owner)
            add(store, f"nobody{number}")
            add(store, f"research{number}", agent_type="research")
        found = claimed(store, 20)
        kinds = [name.rstrip("0123456789") for name in found]
        assert {kind: kinds.count(kind) for kind in kinds} == {"ada": 2, "bob": 2, "nobody": 4, "research": 3}

    def test_a_share_comes_back_with_the_lease(
        self, store: SessionStore, owners: list[Any], bound: Callable[..., None]
    ) -> None:
        bound(owner=1)
        for number in range(3):
            add(store, f"s{number}", owners[0])
        first = claim_next(store, "worker", 60)
        assert first is not None
        assert claimed(store, 1) == []
        first.release()
        second = claim_next(store, "dies", 60)
        assert second is not None
        assert claimed(store, 1) == []
        past = timezone.now() - timedelta(seconds=1)
        Session.objects.filter(session_id=second.session_id).update(lease_expires_at=past, runnable_at=past)
        assert len(claimed(store, 1)) == 1

    def test_a_session_that_is_named_waits_for_its_share(
        self, store: SessionStore, owners: list[Any], bound: Callable[..., None]
    ) -> None:
        bound(owner=1)
        for name in ("a", "b"):
            add(store, name, owners[0])
        held = claim_session(store, "a", "worker", 60)
        assert held is not None
        with pytest.raises(NoShare):
            claim_session(store, "b", "worker", 60, forced=True)
        runner = SessionRunner(ScriptedAgent())
        assert runner.wake("b").kind == "idle"
        outcomes = run_threads(2, lambda index: runner.run("b").kind if index else _later(held.release))
        assert outcomes[1] == "completed"

    def test_a_drive_inside_another_does_not_wait_for_itself(
        self, store: SessionStore, owners: list[Any], bound: Callable[..., None]
    ) -> None:
        bound(owner=1)
        add(store, "outer", owners[0])
        add(store, "inner", owners[0])

        def drive(arguments: Any, turn: TurnContext) -> str:
            return SessionRunner(ScriptedAgent()).run("inner").kind

        agent = ScriptedAgent([calls("drive"), "done"], tools={"drive": drive})
        assert SessionRunner(agent).run("outer").kind == "completed"
        assert store.list_inputs("inner") == []

    @each("bounds", [{}, {"owner": 3}, {"owner": 100, "agent_type:watched": 5}])
    def test_claims_at_once_never_go_beyond(
        self, store: SessionStore, owners: list[Any], monkeypatch: pytest.MonkeyPatch, bounds: dict[str, int]
    ) -> None:
        monkeypatch.setattr(Conf, "CONCURRENCY", bounds)
        for number in range(30):
            add(store, f"s{number}", owners[number % 2], agent_type="watched")
        rounds = run_threads(8, lambda index: claimed(SessionStore(), 4))
        found = [name for some in rounds for name in some]  # type: ignore[union-attr]
        expected = 30 if not bounds else 6 if bounds["owner"] == 3 else 5
        assert len(found) == len(set(found)) == Session.objects.leased(timezone.now()).count() == expected

    def test_processes_keep_to_them_from_beginning_to_end(
        self, store: SessionStore, owners: list[Any]
    ) -> None:
        for number in range(30):
            add(store, f"s{number}", owners[number % 2], agent_type="watched")
        found = run_processes(3, sweep_watching)
        assert all(isinstance(some, list) for some in found), found
        seen = [most for some in found for most in some]  # type: ignore[union-attr]
        assert len(seen) == 30
        assert max(seen) <= 2
        assert Session.objects.filter(pending_inputs__gt=0).count() == 0

    def test_the_share_of_a_killed_worker_comes_back(
        self, store: SessionStore, owners: list[Any], tmp_path: Any
    ) -> None:
        for number in range(4):
            add(store, f"s{number}", owners[0], agent_type="sleepy")
        environment = {**os.environ, **joined_database_environment(), "PYTHONUNBUFFERED": "1"}
        environment["DJANGO_SETTINGS_MODULE"] = "tests.runner.fair_settings"
        command = [sys.executable, "manage.py", "run_sessions", "--concurrency", "4", "--poll", "0.05"]
        worker = subprocess.Popen(
            [*command, "--lease", "1"], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL
        )
        try:
            wait_until(lambda: _leased() == 2)
            time.sleep(0.2)
            assert _leased() == 2, "two of four threads have nothing to do"
            worker.send_signal(signal.SIGKILL)
            worker.wait()
            with_bounds = {"owner": 2}
            saved, Conf.CONCURRENCY = Conf.CONCURRENCY, with_bounds  # type: ignore[misc]
            try:
                taken = wait_until(lambda: claimed(store, 1))
                taken += wait_until(lambda: claimed(store, 1))
                assert claimed(store, 1) == []
            finally:
                Conf.CONCURRENCY = saved  # type: ignore[misc]
        finally:
            with suppress(ProcessLookupError):
                worker.kill()
            worker.wait()


def _leased() -> int:
    return Session.objects.leased(timezone.now()).count()


def _later(act: Callable[[], Any]) -> None:
    time.sleep(0.1)
    act()


class Watched:
    """Notes how many sessions of the same owner run while it does."""

    client_tools = ()
    approval_tools = ()

    def __init__(self) -> None:
        self.tools: dict[str, Any] = {}
        self.seen: list[int] = []

    def run_turn(self, turn: TurnContext) -> TurnOutcome:
        rows = Session.objects.filter(owner_id=Session.objects.get(session_id=turn.session_id).owner_id)
        self.seen.append(rows.leased().count())
        time.sleep(0.01)
        return TurnOutcome("done")


def sweep_watching(index: int) -> list[int]:
    """Until nothing is left, in a process of its own."""
    Conf.CONCURRENCY = {"owner": 2}  # type: ignore[misc]
    agent = Watched()
    deadline = time.monotonic() + 60
    while Session.objects.filter(pending_inputs__gt=0).exists() and time.monotonic() < deadline:
        SessionRunner(agent).sweep()
        time.sleep(0.005)
    connections.close_all()
    return agent.seen


@pytest.mark.one_machine("it reads the plan of one server")
class TestCost:
    """However many sessions there are, a claim looks at few rows."""

    def test_the_plan_among_many(self, store: SessionStore, owners: list[Any], engine: str) -> None:
        store.create_session("first", agent_type="writer")
        future = ago(-3600 * 24)
        flood(str(owners[0].pk), 20_000, runnable_at=ago(60))
        flood("NULL", 20_000, runnable_at="NULL", prefix="idle")
        flood("CAST(1000 + n AS integer)", 5_000, runnable_at=future, prefix="paused")
        Session.objects.filter(session_id__startswith="paused").update(deferred=True)
        add(store, "other", owners[1], priority=0)
        assert "other" in claimed(store, 2)
        if engine == "postgresql":
            for bounds in (None, Bounds(4, {"writer": 1000})):
                read = list(_rows_read(bounds))
                assert sum(read) < 100, read
        else:
            for plan in _plans(store):
                assert "helix_session_turn_idx" in plan or "helix_session_deferred_idx" in plan, plan
                assert "TEMP B-TREE" not in plan, plan

    @pytest.mark.parametrize("joined", [False, True])
    def test_it_is_not_compiled(self, store: SessionStore, engine: str, joined: bool) -> None:
        """PostgreSQL compiles (JIT) what it expects to cost more than `jit_above_cost`: half a second for a
        claim of a millisecond. What it expects depends on how bloated the index is, so no query is safe."""
        if engine != "postgresql":
            return
        add(store, "first")
        with _explained() as plans, transaction.atomic() if joined else nullcontext():
            with connection.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM helix_sessions_session WHERE status <> 'x'")
            if not any("JIT:" in plan for plan in plans):
                pytest.skip("This server does not compile.")
            plans.clear()
            assert claimed(store, 1) == ["first"]
        claims = [plan for plan in plans if "WITH RECURSIVE given" in plan]
        assert claims
        assert not [plan for plan in claims if "JIT:" in plan]

    def test_a_transaction_of_the_caller_compiles_again_after_it(self, engine: str) -> None:
        if engine != "postgresql":
            return
        with connection.cursor() as cursor:
            cursor.execute("SET jit = on")
            with transaction.atomic(), dialect_of(connection).uncompiled(connections["default"]):
                cursor.execute("SHOW jit")
                assert cursor.fetchone() == ("off",)
            cursor.execute("SHOW jit")
            assert cursor.fetchone() == ("on",)


@contextmanager
def _explained() -> Iterator[list[str]]:
    """The plans of what this connection runs, as it was run. Everything is dear enough to be compiled."""
    connection.close()  # a claim on it may have ended compiling
    connection.ensure_connection()
    plans: list[str] = []
    settings = {
        "auto_explain.log_min_duration": "0",
        "auto_explain.log_analyze": "on",
        "client_min_messages": "log",
        "jit": "on",
        "jit_above_cost": "0",
    }
    with connection.cursor() as cursor:
        cursor.execute("LOAD 'auto_explain'")
        for name, value in settings.items():
            cursor.execute(f"SET {name} = '{value}'")
    raw = connection.connection
    raw.add_notice_handler(lambda notice: plans.append(str(notice.message_primary)))
    try:
        yield plans
    finally:
        connection.close()


def _rows_read(bounds: Bounds | None) -> Iterator[int]:
    """How many rows each scan of the sessions' table gave or dropped."""
    dialect = dialect_of(connection)
    selection = turns.selection(dialect, 1, bounds, owned=False)
    sql = claiming._claim_next_sql(dialect, selection, lazily=False)
    params = turns.parameters(timezone.now(), "", ["writer"], bounds)
    with connection.cursor() as cursor:
        taken = ["bench", "token", "60 seconds", "60 seconds", "1"]
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", [*params, *taken])
        [[document]] = cursor.fetchall()
    plan = json.loads(document) if isinstance(document, str) else document
    waiting = [plan[0]["Plan"]]
    while waiting:
        node = waiting.pop()
        waiting += node.get("Plans", [])
        if node.get("Relation Name") == "helix_sessions_session":
            assert "Seq Scan" not in node["Node Type"], node
            dropped = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
            yield int((node["Actual Rows"] + dropped) * node["Actual Loops"])


def _plans(store: SessionStore) -> Iterator[str]:
    """How SQLite finds what a claim asks for, query by query."""
    asked: list[tuple[str, Any]] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        asked.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        assert claim_next(store, "worker", 60, agent_types=["writer"]) is not None
    for sql, params in asked:
        if "runnable_at" in sql and "priority" in sql and sql.startswith("SELECT") and '"fence"' not in sql:
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN QUERY PLAN {sql}", params)
                yield " ".join(row[3] for row in cursor.fetchall())


def test_without_one_statement_a_session_is_claimed_once(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where statements cannot be joined, another may be faster between the look and the lock."""
    monkeypatch.setattr(PortablePostgresDialect, "searches_unlocked", True)  # as on a cluster
    for number in range(12):
        add(store, f"s{number}")

    def claimed(index: int) -> list[str]:
        found = []
        while (driver := claim_next(store, f"worker-{index}", 60)) is not None:
            found.append(driver.session_id)
        return found

    with table_by_table():
        claims: Any = run_threads(6, claimed)
    found = [key for keys in claims for key in keys]
    assert sorted(found) == sorted(f"s{number}" for number in range(12))
    assert set(Session.objects.values_list("fence", flat=True)) == {1}
