"""Puts our session where the tests of the OpenAI Agents SDK have one of their own.

Tests find ours under the names `SQLiteSession`, `AsyncSQLiteSession`, `SQLAlchemySession` and, with branches,
`AdvancedSQLiteSession`. Tests that make none are not counted.
"""

from collections.abc import Iterator
from typing import Any

import django
import pytest

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connections  # noqa: E402
from helix_session_exclusions import EXCLUDED  # type: ignore[import-not-found]  # noqa: E402

from helix_sessions.integrations.openai_agents import DjangoSession  # noqa: E402
from helix_sessions.integrations.openai_agents_branches import BranchingDjangoSession  # noqa: E402

COUNTED = pytest.StashKey[set[str]]()
"""The tests that made a session."""


class Made(DjangoSession):
    """Ours, to be made as theirs are."""

    count = 0

    def __init__(self, session_id: str, *database: Any, session_settings: Any = None, **options: Any) -> None:
        super().__init__(session_id, session_settings=session_settings)
        Made.count += 1

    @classmethod
    def from_url(cls, session_id: str, **options: Any) -> "Made":
        return cls(session_id, **options)


class Session(Made):
    pass


class Branching(Made, BranchingDjangoSession):
    @property
    def _current_branch_id(self) -> str:
        """By this name the tests ask which branch is current."""
        return self._branch


async def _close(self: Session) -> None:
    Session.close(self)


REPLACED = {
    "SQLiteSession": type("SQLiteSession", (Session,), {}),
    "SQLAlchemySession": type("SQLAlchemySession", (Session,), {}),
    "AsyncSQLiteSession": type("AsyncSQLiteSession", (Session,), {"close": _close}),
    "AdvancedSQLiteSession": type("AdvancedSQLiteSession", (Branching,), {}),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module = vars(metafunc.module)
    for name, ours in REPLACED.items():
        if name in module:
            module[name] = ours


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept, left_out = [], []
    for item in items:
        if not isinstance(item, pytest.Function) or not set(REPLACED) & set(vars(item.module)):
            left_out.append(item)
            continue
        reason = EXCLUDED.get(item.path.name, {}).get(item.originalname)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
        kept.append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Each test leaves an empty database. One that makes no session is not counted."""
    before = Made.count
    result = yield
    if Made.count > before:
        item.session.stash[COUNTED].add(item.nodeid)
        call_command("flush", interactive=False, verbosity=0)
    connections.close_all()
    return result


def pytest_sessionstart(session: pytest.Session) -> None:
    session.stash[COUNTED] = set()
    session.config.stash[COUNTED] = session.stash[COUNTED]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    counted = config.stash[COUNTED]
    found = {
        outcome: len({report.nodeid for report in terminalreporter.getreports(outcome)} & counted)
        for outcome in ("passed", "failed", "error")
    }
    left_out = len(terminalreporter.getreports("skipped"))
    said = ", ".join(f"{count} {outcome}" for outcome, count in found.items() if count)
    terminalreporter.write_line(f"With our session: {said}; {left_out} left out.")
