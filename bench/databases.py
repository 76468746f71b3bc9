"""The servers of one run: a private PostgreSQL that is as durable as any, and an SQLite file."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.contestants.floor import Floor, FloorJsonb
from tests.postgres import private_server

DURABLE = {"fsync": True, "synchronous_commit": True, "full_page_writes": True}
"""PostgreSQL's defaults, said aloud because the tests' server is quicker than that."""

MADE_BY_DJANGO = {"default": "ours", "list_small": "list_small", "list_large": "list_large"}
"""Aliases and the databases they name."""

OTHERS = ("floor", "floor_jsonb")


@dataclass(frozen=True)
class Place:
    """Where the databases of this run are."""

    server: str
    sqlite: Path

    def url(self, database: str) -> str:
        """The address of one of the server's databases."""
        return f"{self.server.rpartition('/')[0]}/{database}"

    def execute(self, sql: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement as the superuser, outside a transaction."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []


@contextmanager
def databases() -> Iterator[Place]:
    """Start everything, make every table, and set Django up."""
    with tempfile.TemporaryDirectory(prefix="helix_bench_") as directory, private_server(**DURABLE) as server:
        place = Place(server.url, Path(directory) / "bench.sqlite3")
        for name in (*MADE_BY_DJANGO.values(), *OTHERS):
            place.execute(f"CREATE DATABASE {name}")
        Floor.prepare(place.url("floor"))
        FloorJsonb.prepare(place.url("floor_jsonb"))
        _set_up_django(place)
        yield place
        _close_django()


def _set_up_django(place: Place) -> None:
    import django
    from django.core.management import call_command

    aliases = {alias: place.url(name) for alias, name in MADE_BY_DJANGO.items()}
    aliases["sqlite"] = f"sqlite:///{place.sqlite}"
    os.environ["HELIX_BENCH_DATABASES"] = json.dumps(aliases)
    os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"
    django.setup()
    for alias in aliases:
        call_command("migrate", database=alias, verbosity=0)


def _close_django() -> None:
    from django.db import connections

    connections.close_all()
