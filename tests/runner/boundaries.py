"""Deaths and failures at every boundary of what a runner does, and the sweep that comes afterwards.

A process is killed after the n-th commit that wrote something: between two of them the database is the same,
wherever a death is. A failure is raised instead of the n-th statement that reads by itself or begins a
transaction: one that fails later leaves nothing either (`tests/concurrency/test_failures.py`).
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from django.db import DatabaseError, OperationalError, connection, connections
from django.test import override_settings
from psycopg.pq import TransactionStatus

from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.store import SessionStore

_READS = ("SELECT", "PRAGMA", "BEGIN", "SAVEPOINT", "RELEASE", "ROLLBACK")
_MOST_SWEEPS = 8


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Something a runner does, which may be cut off anywhere. `act` is what is cut off, `sweep` is the sweep
    of another runner, `check` is what must be so when sweeps find nothing more."""

    prepare: Callable[["Place"], None]
    act: Callable[["Place"], Any]
    sweep: Callable[["Place"], int]
    check: Callable[["Place"], None]
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """A session, and the file that those who work on it write to."""

    session: str
    notes: Path

    def note(self, line: str) -> None:
        """What a tool does in the world; no transaction takes it back."""
        with self.notes.open("a") as file:
            file.write(f"{line}\n")

    def noted(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []


def die_everywhere(scenario: Scenario, directory: str, step: int = 1) -> int:
    """Kill the process at every boundary, or at one of `step`; at how many that was. To be called in a
    process of its own."""
    with override_settings(HELIX_SESSIONS=scenario.settings):
        for deaths, number in enumerate(count(_first(step), step)):
            place = Place(f"s{number}", Path(directory, f"notes {number}"))
            _do_not_wait_for_the_disk()
            scenario.prepare(place)
            if connection.vendor == "sqlite":
                connections.close_all()  # a child must not inherit one
            child = os.fork()
            if child == 0:
                _leave_to_the_parent()
                _die(scenario, place, number)
            _, status = os.waitpid(child, 0)
            killed = os.WIFSIGNALED(status)
            assert killed or os.WEXITSTATUS(status) == 0, f"it failed by itself before commit {number}"
            with _named(f"killed after commit {number}" if killed else "not killed"):
                _finish(scenario, place)
            if not killed:
                return deaths
    raise AssertionError


def fail_everywhere(scenario: Scenario, directory: Path, step: int = 1) -> int:
    """Let every statement outside a transaction fail once, or one of `step`; how many did."""
    _do_not_wait_for_the_disk()
    with override_settings(HELIX_SESSIONS=scenario.settings):
        for failures, number in enumerate(count(_first(step), step)):
            place = Place(f"f{number}", directory / f"notes {number}")
            scenario.prepare(place)
            fails = _FailAt(number)
            with connection.execute_wrapper(fails):
                try:
                    scenario.act(place)
                except (HelixSessionsError, DatabaseError):
                    assert fails.failed, "it failed by itself"
            with _named(f"statement {number} failed: {fails.failed}" if fails.failed else "nothing failed"):
                _finish(scenario, place)
            if not fails.failed:
                return failures
    raise AssertionError


def _first(step: int) -> int:
    """Where to begin: not at the same boundary on both engines."""
    return 1 if connection.vendor == "sqlite" else min(step, 2)


def _do_not_wait_for_the_disk() -> None:
    """No power is cut here; a process that dies has written what it has committed."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA synchronous = OFF")


def _finish(scenario: Scenario, place: Place) -> None:
    """Time passes, and somebody sweeps until there is nothing to sweep."""
    for _ in range(_MOST_SWEEPS):
        _let_leases_run_out()
        if not scenario.sweep(place):
            scenario.check(place)
            SessionStore().delete_session(place.session)
            return
    raise AssertionError("sweeps come to no end")


def _let_leases_run_out() -> None:
    store = SessionStore()
    for summary in store.list_sessions(limit=500).items:
        lease = store.get_lease(summary.session_id)
        if lease is not None:
            store.renew_lease(lease, 0)
    time.sleep(0.002)  # SQLite's clock counts milliseconds


@contextmanager
def _named(boundary: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{boundary}: {error!r}") from error


_inherited: list[Any] = []
"""Connections of the parent in a child, which would end them if it collected them."""


def _leave_to_the_parent() -> None:
    """In a child: open a connection of its own. The parent keeps its one: a new one is slow to begin."""
    _inherited.append(connection.connection)
    connection.connection = None


def _die(scenario: Scenario, place: Place, number: int) -> None:
    """In a child: act, and be killed after a commit. It never returns."""
    code = 1
    try:
        with _KillAfter(number).watching():
            scenario.act(place)
        code = 0
    finally:
        os._exit(code)


class _KillAfter:
    """Kills its process after the `number`-th commit that wrote something."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._wrote = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        commit = connection.commit

        def committed() -> None:
            commit()
            self._boundary()

        with patch.object(connection, "commit", committed), connection.execute_wrapper(self._executed):
            yield

    def _executed(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        self._wrote |= not sql.startswith((*_READS, "COMMIT"))
        if not connection.in_atomic_block and (connection.vendor == "postgresql" or sql == "COMMIT"):
            self._boundary()
        return result

    def _boundary(self) -> None:
        self._left -= self._wrote
        self._wrote = False
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class _FailAt:
    """Raises, instead of executing the `number`-th statement outside a transaction, what a database says
    that is away."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.failed = ""

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        self._left -= not _is_in_transaction()
        if self._left == 0 and not self.failed:
            self.failed = sql
            raise OperationalError("unable to open database file")
        return execute(sql, params, many, context)


def _is_in_transaction() -> bool:
    raw = connection.connection
    if raw is None:
        return False
    if connection.vendor == "postgresql":
        return bool(raw.info.transaction_status != TransactionStatus.IDLE)
    return bool(raw.in_transaction)
