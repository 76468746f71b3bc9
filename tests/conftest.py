"""What every test may ask for."""

from __future__ import annotations

import gc
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import hypothesis
import pytest

from tests import parallel, rows
from tests.copies import copy_file, empty_database_kept, template
from tests.lengths import IN_TARGETS, LONG, at_length

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.plugin import DjangoDbBlocker

    from helix_sessions.store import AsyncSessionStore, SessionStore

TESTS = Path(__file__).parent

hypothesis.settings.register_profile("short", deadline=None, print_blob=True)
hypothesis.settings.register_profile("long", deadline=None, print_blob=True, max_examples=at_length(1000))
hypothesis.settings.load_profile("long" if LONG else "short")


def pytest_configure() -> None:
    """Let SIGTERM clean up as Ctrl-C does: tests may have servers running."""

    def interrupt(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


ONCE = (
    "api/test_docs.py",
    "api/test_generated_client.py",
    "api/test_http_reference.py",
    "api/test_schema.py",
    "attack/test_roles.py",
    "attack/test_xss.py",
    "contract/test_values.py",
    "docs/test_chat_pages.py",
    "docs/test_guarantees.py",
    "docs/test_links.py",
    "docs/test_references.py",
    "docs/test_security.py",
    "encryption/test_codec.py",
    "integrations/test_extras.py",
    "messages/",
    "models/test_session_columns.py",
    "observe/test_logs.py",
    "schedules/test_cron.py",
    "store/test_async_parity.py",
    "store/test_ids.py",
    "stream/test_batches.py",
    "stream/test_fragment_cursor.py",
    "stream/test_fragment_writer.py",
    "test_architecture.py",
    "test_bench.py",
    "test_deploy_checks.py",
    "test_distribution.py",
    "test_run.py",
    "test_setting_checks.py",
    "test_tooling.py",
    "test_typing.py",
    "torture/test_linearizability.py",
    "torture/test_sequential.py",
    "writes/",
)
"""Folders and files that have nothing to do with the database's engine: they are run on SQLite alone."""

SLOW = (
    "admin/test_accessible.py",
    "admin/test_browser.py",
    "api/test_generated_client.py",
    "attack/test_xss.py",
    "demo/test_browser.py",
    "docs/test_tutorial.py",
    "examples/",
    "frontends/test_browser.py",
    "stream/test_replicas.py",
    "stream/test_servers.py",
    "test_typing.py",
    "torture/test_failover.py",
)
"""What only `make test-all` runs: real browsers, servers of several kinds, standbys, projects that are made
as the documentation says, and type checkers on a project that uses the package (`make lint` reads it too)."""

LATER_ON_POSTGRESQL = (
    "admin/test_actions.py",
    "admin/test_base.py",
    "admin/test_contexts.py",
    "admin/test_documents.py",
    "admin/test_pages.py",
    "admin/test_rows.py",
    "admin/test_truth.py",
    "admin/test_waiting.py",
    "agents/",
    "api/test_actions.py",
    "api/test_conditions.py",
    "api/test_fuzz.py",
    "api/test_in_a_project.py",
    "api/test_limits.py",
    "api/test_outputs.py",
    "api/test_problems.py",
    "api/test_tickets.py",
    "api/test_tokens.py",
    "api/test_who_may.py",
    "attack/test_brute_force.py",
    "attack/test_foreign_ids.py",
    "attack/test_mass_assignment.py",
    "attack/test_number_forms.py",
    "attack/test_requests_out.py",
    "attack/test_tampering.py",
    "demo/",
    "docs/test_examples.py",
    "docs/test_site.py",
    "docs/test_suspend_and_resume.py",
    "docs/test_tutorial.py",
    "examples/",
    "frontends/",
    "integrations/test_google_adk.py",
    "integrations/test_langgraph.py",
    "integrations/test_langgraph_older_forms.py",
    "integrations/test_langgraph_oracle.py",
    "integrations/test_langgraph_strict.py",
    "integrations/test_openai_agents.py",
    "integrations/test_openai_branches.py",
    "integrations/test_pages.py",
    "integrations/test_pydantic_ai.py",
    "runtime/test_ready_sources.py",
    "stream/test_servers.py",
    "stream/test_sse.py",
    "test_sample.py",
)
"""Folders and files that reach the database through the store alone: `make test` runs them on SQLite, and
`make test-all` on PostgreSQL too."""

LATER_ON_SQLITE = (
    "cells/test_killed_moves.py",
    "models/test_upgrade_under_load.py",
    "store/test_routers.py",
    "torture/test_crashes.py",
    "torture/test_races.py",
)
"""Campaigns and tests of several databases that `make test` runs on PostgreSQL, and `make test-all` on SQLite
too."""


def _on_sqlite() -> bool:
    from django.conf import settings

    engine: str = settings.DATABASES["default"]["ENGINE"]
    return engine.endswith("sqlite3")


def _later() -> tuple[str, ...]:
    """What `make test` leaves to `make test-all` on this engine; nothing of what a developer names."""
    if not IN_TARGETS:
        return ()
    return LATER_ON_SQLITE if _on_sqlite() else LATER_ON_POSTGRESQL


def _name(path: Path) -> str:
    """Of a file or folder, as the tables have it."""
    name = path.as_posix().removeprefix(f"{TESTS.as_posix()}/")
    return f"{name}/" if path.is_dir() else name


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Do not even import what this run leaves out: frameworks take seconds."""
    left_out = (() if _on_sqlite() else ONCE) + (() if LONG else _later())
    return True if _name(collection_path).startswith(left_out) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what the tables name, and leave out what runs on the other engine."""
    from tests import citus

    slow = SLOW + _later()
    for item in items:
        marker = item.get_closest_marker("one_machine")
        if marker and citus.WORKERS:
            item.add_marker(pytest.mark.skip(reason=f"not on a cluster: {marker.args[0]}"))
        # What is in a transaction that changes several nodes cannot be asked for everything.
        if citus.WORKERS and item.get_closest_marker("django_db"):
            item.add_marker(pytest.mark.django_db(transaction=True), append=False)
        name = _name(item.path)
        if name.startswith(slow):
            item.add_marker(pytest.mark.slow)
        if name.startswith(ONCE):
            item.add_marker(pytest.mark.once)
    if not _on_sqlite():
        left = [item for item in items if item.get_closest_marker("once")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("once")]


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of garbage collections, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tell `rows.each` whether what a row writes is committed."""
    marker = item.get_closest_marker("django_db")
    rows.committed = marker is not None and bool(marker.kwargs.get("transaction"))


@pytest.fixture(scope="session", autouse=True)
def _quick_flush() -> Iterator[None]:
    """After a test that committed, delete what it wrote."""
    from django.test import TransactionTestCase

    from tests.resets import delete_rows

    with patch.object(TransactionTestCase, "_fixture_teardown", lambda self: delete_rows()):
        yield


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Put SQLite's test database into a file: threads and processes share it."""
    from django.conf import settings

    from tests import citus

    database = settings.DATABASES["default"]
    citus.drop_test_database(database)
    if database["ENGINE"].endswith("sqlite3"):
        database["TEST"]["NAME"] = str(tmp_path_factory.mktemp("database") / "tests.sqlite3")


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Keep a copy where there is nothing in between; distribute the tables where `HELIX_TEST_CITUS` names a
    cluster, to which the copy does not belong."""
    from tests import citus

    kept = ExitStack()
    with django_db_blocker.unblock():
        if not os.environ.get("HELIX_TEST_POOLED"):
            kept.enter_context(empty_database_kept())
        if citus.WORKERS:
            citus.distribute_test_database()
    yield
    with django_db_blocker.unblock():
        kept.close()


@pytest.fixture
def store() -> SessionStore:
    """A store on the default database."""
    from helix_sessions.store import SessionStore

    return SessionStore()


@pytest.fixture
def astore() -> AsyncSessionStore:
    """The awaitable store on the default database."""
    from helix_sessions.store import AsyncSessionStore

    return AsyncSessionStore()


@pytest.fixture
def engine() -> str:
    """`sqlite` or `postgresql`."""
    from django.db import connection

    return connection.vendor


@pytest.fixture
def run_threads():
    """`run_threads(count, function)`, see `tests.parallel`."""
    return parallel.run_threads


@pytest.fixture
def run_processes():
    """`run_processes(count, function, *arguments)`, see `tests.parallel`."""
    return parallel.run_processes


@pytest.fixture
def second(tmp_path: Path) -> Iterator[str]:
    """The name of another database, which has no rows."""
    from django.db import connection

    if connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
        pytest.skip("the pooler knows one database")
    if connection.vendor != "postgresql":
        name = str(tmp_path / "second.sqlite3")
        copy_file(name)
        yield name
        return
    with connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS helix_second")
        cursor.execute(f"CREATE DATABASE helix_second {template()}")
    yield "helix_second"
    with connection.cursor() as cursor:
        cursor.execute("DROP DATABASE helix_second WITH (FORCE)")
