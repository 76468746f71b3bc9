"""The test database as `migrate` left it, for tests that need one more: to migrate takes seconds."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

EMPTY = "HELIX_TEST_EMPTY"
"""The variable that names it, for processes too."""


@contextmanager
def empty_database_kept() -> Iterator[None]:
    """Keep a copy of the database, which has its tables and no rows yet, for the length of the block."""
    from django.db import connection

    name = str(connection.settings_dict["NAME"])
    connection.close()
    if connection.vendor == "sqlite":
        kept = f"{name}.empty"
        shutil.copyfile(name, kept)
    else:
        kept = f"{name}_empty"
        with connection._nodb_cursor() as cursor:
            cursor.execute(f'DROP DATABASE IF EXISTS "{kept}"')
            cursor.execute(f'CREATE DATABASE "{kept}" TEMPLATE "{name}"')
    os.environ[EMPTY] = kept
    yield
    del os.environ[EMPTY]
    if connection.vendor == "postgresql":
        with connection._nodb_cursor() as cursor:
            cursor.execute(f'DROP DATABASE "{kept}"')


def copy_file(path: str) -> None:
    """Make this SQLite database a copy, if there is one to copy."""
    if kept := os.environ.get(EMPTY):
        shutil.copyfile(kept, path)


def template() -> str:
    """What `CREATE DATABASE` says to make a copy, if there is one to copy."""
    kept = os.environ.get(EMPTY)
    return f'TEMPLATE "{kept}"' if kept else ""
