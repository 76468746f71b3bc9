"""What a prompt costs: so many statements and commits from the claim to the release."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from helix_sessions.runtime import SessionRunner
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from tests.store.statements import needs_memory

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.one_machine("it counts the statements of one server"),
]

_TRANSACTIONS = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE")
_WRITES = ("INSERT", "UPDATE", "DELETE")


class Count:
    """The statements of a connection beside those that begin and end transactions, and its commits."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.commits = 0
        self._wrote = False

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if not sql.startswith(_TRANSACTIONS):
            self.statements.append(sql)
            self._wrote |= any(word in sql for word in _WRITES)
        if self._wrote and (sql == "COMMIT" or self._is_by_itself()):
            self.commits, self._wrote = self.commits + 1, False
        return result

    def committed(self) -> None:
        self.commits, self._wrote = self.commits + self._wrote, False

    def _is_by_itself(self) -> bool:
        return connection.vendor == "postgresql" and not connection.in_atomic_block


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Count]:
    count, commit = Count(), connection.commit

    def committed() -> None:
        commit()
        count.committed()

    with monkeypatch.context() as patched, connection.execute_wrapper(count):
        patched.setattr(connection, "commit", committed)
        yield count


def warm_up(store: SessionStore) -> None:
    """What a connection asks once."""
    store.create_session("warm", agent_type="writer")
    store.admit_input("warm", "hello")
    assert SessionRunner(ScriptedAgent()).sweep() == 1


def test_a_prompt_among_long_transcripts_is_planned_once(store: SessionStore, engine: str) -> None:
    """PostgreSQL plans a prepared statement anew each time if it takes the session at hand for a short one
    among long ones. That costs more than all else the statement does."""
    if engine != "postgresql":
        pytest.skip("SQLite plans a statement once in any case")
    needs_memory()
    for number in range(40):
        store.create_session(f"long-{number}", agent_type="writer")
        store.append_messages(f"long-{number}", [{"role": "user", "content": "hello"}] * 1000)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    for number in range(12):
        store.create_session(f"short-{number}", agent_type="writer")
        store.admit_input(f"short-{number}", "hello")
        assert SessionRunner(ScriptedAgent()).run(f"short-{number}").kind == "completed"
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements WHERE generic_plans >= 6")
        assert cursor.fetchall()
        cursor.execute("SELECT statement FROM pg_prepared_statements WHERE custom_plans > 6")
        assert cursor.fetchall() == []


@pytest.mark.parametrize("turns", [1, 2, 4])
def test_a_prompt(
    store: SessionStore, session: str, engine: str, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """At most 4 statements and 3 commits for a prompt that one turn answers, and 4 and 3 for each further
    turn with a tool."""
    warm_up(store)
    script = [calls("tool")] * (turns - 1) + ["done"]
    runner = SessionRunner(ScriptedAgent(script, tools={"tool": lambda arguments, turn: 1}))
    store.admit_input(session, "hello")
    with counted(monkeypatch) as count:
        driver = runner.claim()
        assert driver is not None
        assert runner.drive_claimed(driver).kind == "completed"
    assert store.get_lease(session) is None
    if engine == "postgresql":
        shown = "\n".join(sql[:300] for sql in count.statements)
        assert len(count.statements) <= 4 * turns, shown
    assert count.commits <= 3 + 3 * (turns - 1)


def test_an_admission(
    store: SessionStore, session: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One statement on a row that this connection knows, two otherwise."""
    if engine != "postgresql":
        pytest.skip("SQLite writes table by table")
    warm_up(store)
    with counted(monkeypatch) as count:
        store.admit_input(session, "first")
    assert len(count.statements) <= 2, count.statements
    with counted(monkeypatch) as count:
        store.admit_input(session, "second")
    assert len(count.statements) == 1, count.statements
