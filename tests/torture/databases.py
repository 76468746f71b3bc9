"""A database of a campaign's own, made new and thrown away."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from tests.copies import copy_file, template
from tests.postgres import private_server


@contextmanager
def database(engine: str) -> Iterator[str]:
    """The address of a database without rows: a file, or on the server at `DATABASE_URL` or a private one."""
    if engine == "sqlite":
        with tempfile.TemporaryDirectory(prefix="helix_sessions_torture_") as directory:
            path = Path(directory) / "torture.sqlite3"
            copy_file(str(path))
            yield f"sqlite:///{path}"
        return
    given = os.environ.get("DATABASE_URL", "")
    if given.startswith("postgres"):
        with _database_on(given) as url:
            yield url
    else:
        with private_server() as server:
            yield server.url


@contextmanager
def _database_on(server: str) -> Iterator[str]:
    name = f"torture_{secrets.token_hex(4)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" {template()}')
        try:
            yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextmanager
def copy_of_database(number: int) -> Iterator[None]:
    """Let this process have its own copy of the database that `use` has set up; nobody is connected to it."""
    from django.db import connection

    given = connection.settings_dict["NAME"]
    name = f"{given}_{number}"
    if connection.vendor == "sqlite":
        shutil.copyfile(given, name)
    else:
        _on_server(f'CREATE DATABASE "{name}" TEMPLATE "{given}"')
    connection.settings_dict["NAME"] = name
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = given
        if connection.vendor != "sqlite":
            _on_server(f'DROP DATABASE "{name}" WITH (FORCE)')


def _on_server(statement: str) -> None:
    """Execute it while connected to none of the databases that it is about."""
    elsewhere = urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path="/template1"))
    with psycopg.connect(elsewhere, autocommit=True) as connection:
        connection.execute(statement)


def use(url: str) -> None:
    """Set Django up on this database, with its tables. Once in a process."""
    os.environ["DATABASE_URL"] = url
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connections

    call_command("migrate", verbosity=0)
    connections.close_all()  # those that are forked from here open their own
