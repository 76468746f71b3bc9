"""Puts our session where the tests of the OpenAI Agents SDK have one of their own.

Tests find ours under the names `SQLiteSession`, `AsyncSQLiteSession`, `SQLAlchemySession` and, with branches,
`AdvancedSQLiteSession`. Tests that make none are not counted.
"""

from typing import Any

import django
import pytest

django.setup()

from helix_counting import Counting  # type: ignore[import-not-found]  # noqa: E402
from helix_session_exclusions import EXCLUDED  # type: ignore[import-not-found]  # noqa: E402

from helix_sessions.integrations.openai_agents import DjangoSession  # noqa: E402
from helix_sessions.integrations.openai_agents_branches import BranchingDjangoSession  # noqa: E402


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


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Counting("session", lambda: Made.count))
