"""Puts our saver where LangGraph's tests have one of their own.

The fixtures `sync_checkpointer` and `async_checkpointer` give ours. Tests that make a saver themselves find
ours under the name of the one in memory, on SQLite or on PostgreSQL. Tests that need none are not run.
"""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import django
import pytest

django.setup()

from helix_counting import Counting  # type: ignore[import-not-found]  # noqa: E402
from helix_exclusions import EXCLUDED  # type: ignore[import-not-found]  # noqa: E402

from helix_sessions.integrations.langgraph import DjangoSaver  # noqa: E402

VARIANT = "memory"
"""Ours is called as the first of theirs is, because recorded answers are found by the name of a test."""
FIXTURES = ("sync_checkpointer", "async_checkpointer")
THEIR_DATABASE = ("conn", "clear_test_db")
SYNC = ("InMemorySaver", "MemorySaver", "SqliteSaver", "PostgresSaver")
ASYNC = ("AsyncSqliteSaver", "AsyncPostgresSaver")
SAVERS = ("_saver", "_base_saver", "_pool_saver", "_pipe_saver")
"""Context managers of the suite on PostgreSQL, each of which opens a saver."""


class Saver(DjangoSaver):
    """Ours, to be opened as theirs are."""

    made = 0

    def __init__(self, *arguments: Any, serde: Any = None, **options: Any) -> None:
        super().__init__(serde=serde)
        Saver.made += 1

    def setup(self) -> None:
        pass

    @classmethod
    @contextmanager
    def from_conn_string(cls, *arguments: Any, **options: Any) -> Iterator["Saver"]:
        yield cls()


class AsyncSaver(Saver):
    async def setup(self) -> None:  # type: ignore[override]
        pass

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, *arguments: Any, **options: Any) -> AsyncIterator["AsyncSaver"]:  # type: ignore[override]
        yield cls()


@contextmanager
def open_saver(*arguments: Any) -> Iterator[Saver]:
    yield Saver()


@asynccontextmanager
async def open_async_saver(*arguments: Any) -> AsyncIterator[AsyncSaver]:
    yield AsyncSaver()


async def rows_of(saver: Saver, thread_id: str) -> dict[str, list[Any]]:
    """What the tests of pruning read from the tables, as `list` tells it."""
    found: dict[str, list[Any]] = {"checkpoints": [], "writes": [], "blobs": []}
    async for one in saver.alist({"configurable": {"thread_id": thread_id}}):
        named = one.config["configurable"]
        place = (named["checkpoint_ns"], named["checkpoint_id"])
        versions = one.checkpoint["channel_versions"]
        found["checkpoints"].append(place)
        found["writes"] += [
            (*place, task, index) for index, (task, *_) in enumerate(one.pending_writes or ())
        ]
        found["blobs"] += [
            (place[0], channel, versions[channel]) for channel in one.checkpoint["channel_values"]
        ]
    return {table: sorted(rows) for table, rows in found.items()}


def nothing(**fixtures: Any) -> None:
    pass


def opened(request: Any) -> Saver:
    return Saver()


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One variant of the fixtures: ours."""
    for name in FIXTURES:
        for fixture in metafunc._arg2fixturedefs.get(name, ()):
            fixture.params, fixture.func = [VARIANT], opened  # type: ignore[misc]
    for name in THEIR_DATABASE:
        for fixture in metafunc._arg2fixturedefs.get(name, ()):
            fixture.func = nothing  # type: ignore[misc]
    module = vars(metafunc.module)
    for name in SYNC:
        if name in module:
            module[name] = Saver
    for name in ASYNC:
        if name in module:
            module[name] = AsyncSaver
    if "_rows" in module:
        module["_rows"] = rows_of
    for name in SAVERS:
        if name in module:
            module[name] = open_async_saver if "AsyncPostgresSaver" in module else open_saver


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept, left_out = [], []
    for item in items:
        if not isinstance(item, pytest.Function) or not _needs_a_saver(item):
            left_out.append(item)
            continue
        reason = _reason(item)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
        kept.append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


def _needs_a_saver(item: pytest.Function) -> bool:
    if set(FIXTURES) & set(item.fixturenames):
        return True
    return any(value in (Saver, AsyncSaver) for value in vars(item.module).values())


def _reason(item: pytest.Function) -> str:
    name = f"{item.path.name}::{item.originalname}"
    return str(EXCLUDED[os.environ["HELIX_PEER"]].get(name, ""))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Counting("saver", lambda: Saver.made))
