"""Two cells: the test database, and another with the same tables. Django's tests allow no database that the
settings do not name, so what a test says is done in a process of its own."""

import importlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from traceback import format_exc
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection, connections

from helix_sessions.store import SessionStore
from tests.copies import template
from tests.parallel import run_processes


@dataclass(frozen=True)
class Cells:
    """A store on each, and the owner whose sessions move."""

    here: SessionStore
    there: SessionStore
    owner: Any
    name: str
    """Of the other database."""


@pytest.fixture(scope="session")
def other_cell(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The name of the other database."""
    if connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
        pytest.skip("the pooler knows one database")
    if connection.vendor != "postgresql":
        path = tmp_path_factory.mktemp("cells") / "other.sqlite3"
        _copy_file(Path(connection.settings_dict["NAME"]), path)
        yield str(path)
        return
    with django_db_blocker.unblock(), connection._nodb_cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS helix_cell")
        cursor.execute(f"CREATE DATABASE helix_cell {template()}")
    yield "helix_cell"
    with django_db_blocker.unblock(), connection._nodb_cursor() as cursor:
        cursor.execute("DROP DATABASE helix_cell WITH (FORCE)")


def _copy_file(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other)


def know_second(name: str) -> None:
    """Make the other database known to this process."""
    connections.settings["second"] = {**deepcopy(connections.settings["default"]), "NAME": name}


def in_cells(test: Callable[[Cells], None]) -> Callable[..., None]:
    """Run a test in a process that knows both databases."""

    @wraps(test)
    def run(other_cell: str) -> None:
        (failure,) = run_processes(1, _call, test.__module__, test.__name__, other_cell, timeout=300)
        if failure:
            pytest.fail(str(failure), pytrace=False)

    del run.__wrapped__  # type: ignore[attr-defined]
    run.body = test  # type: ignore[attr-defined]
    return run


def join_cells(database: str) -> Cells:
    """Both databases, empty but for the owner."""
    know_second(database)
    call_command("flush", database="second", interactive=False, verbosity=0, inhibit_post_migrate=True)
    owner = get_user_model().objects.create_user("alice")
    return Cells(SessionStore("default"), SessionStore("second"), owner, database)


def _call(index: int, module: str, name: str, database: str) -> str:
    try:
        getattr(importlib.import_module(module), name).body(join_cells(database))
    except BaseException:
        return format_exc()
    finally:
        connections.close_all()
    return ""
