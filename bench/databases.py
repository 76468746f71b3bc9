"""The servers of one run: a private PostgreSQL that is as durable as any, and SQLite files."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.contestants import CORE, installed_peers
from bench.contestants.base import Contestant
from bench.contestants.by_hand import ByHand, ByHandJsonb
from bench.contestants.ours import ALIASES, SECOND_ALIASES
from bench.contestants.sqlite_by_hand import SqliteByHand
from bench.place import Place, Route
from bench.proxy import Proxy, proxy
from tests.postgres import private_server

DURABLE = {"fsync": True, "synchronous_commit": True, "full_page_writes": True}
"""PostgreSQL's defaults, said aloud because the tests' server is quicker than that."""

ONE_WAY_DELAY = 0.0005
LISTS = ("list_small", "list_large")
CLAIMS = ("claims_few", "claims_some", "claims_many")


@dataclass(frozen=True)
class Arena:
    """The databases, and the proxy that counts."""

    place: Place
    counting: Proxy


@contextmanager
def arena() -> Iterator[Arena]:
    """Start everything, make every table, and set Django up."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="helix_bench_"))
        server = stack.enter_context(private_server(**DURABLE))
        counting = stack.enter_context(proxy(server.port))
        delaying = stack.enter_context(proxy(server.port, ONE_WAY_DELAY))
        ports: dict[Route, int] = {"direct": server.port, "counted": counting.port, "delayed": delaying.port}
        place = Place(server.url, Path(directory) / "ours.sqlite3", ports)
        kinds: list[type[Contestant]] = [*CORE, ByHandJsonb, *installed_peers()]
        for name in sorted({kind.database for kind in kinds} | {*LISTS, *CLAIMS}):
            place.execute(f"CREATE DATABASE {name}")
        _set_up_django(place)
        for kind in kinds:
            kind.prepare(place)
        SqliteByHand.prepare(place)
        for name in LISTS:
            ByHand.prepare(place, name)
        stack.callback(_close_django)
        yield Arena(place, counting)


def _set_up_django(place: Place) -> None:
    import django
    from django.core.management import call_command

    made = {"default": place.url("ours"), **{name: place.url(name) for name in (*LISTS, *CLAIMS)}}
    made["sqlite"] = f"sqlite:///{place.sqlite}"
    routes = {
        alias: place.url("ours", route)
        for aliases in (ALIASES, SECOND_ALIASES)
        for route, alias in aliases.items()
    }
    os.environ["HELIX_BENCH_DATABASES"] = json.dumps(routes | made)
    os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"
    django.setup()
    for alias in made:
        call_command("migrate", database=alias, verbosity=0)


def _close_django() -> None:
    from django.db import connections

    connections.close_all()
