"""Memories against LangGraph's PostgresStore: `python -m bench.memory [--sizes 10000 1000000] [--only …]`.

Both are on one server, in a database of their own, with the same memories: a hundred of each user. Calls are
made in turn, for users that are chosen at random; a ratio below 1 means that ours is quicker.

The peer has no full text: beside our search by words stands its listing of the same namespace, and `put` is
measured once more after the peer was given an index of words as ours has. It has an index of its vectors,
which a million of them take an hour to fill one by one: it is made after them. Vectors need pgvector on the
server; without it they are not compared. `DATABASE_URL` names another server than a private one.
"""

import argparse
import os
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

import psycopg

from bench.measure import Task, Timing, interleave, ratio
from bench.report import number as digits
from tests.postgres import private_server

DIMS = 384
OF_EACH_USER = 100
DURABLE = {"fsync": True, "synchronous_commit": True, "full_page_writes": True}
_WORDS = [
    f"{first}{second}"
    for first in ("ka", "lo", "mi", "nu", "pe", "ra", "su", "ti")
    for second in ("ban", "del", "fir", "gon", "hul", "jas", "kor", "lim", "mov", "nep")
]


def text(seed: int) -> str:
    """Twenty words, the same for the same number."""
    return " ".join(random.Random(seed).choices(_WORDS, k=20)) + f" number{seed}"


def embed(texts: list[str]) -> list[list[float]]:
    """Vectors that have no meaning and cost next to nothing."""
    return [[random.Random(each).random() - 0.5 for _ in range(4)] * (DIMS // 4) for each in texts]


class Ours:
    """`MemoryStore`, with or without vectors."""

    def __init__(self, *, near: bool) -> None:
        from helix_sessions.memory import MemoryStore

        self.store = MemoryStore(embed=embed if near else None)

    def fill(self, page: list[tuple[tuple[str, ...], str, dict[str, Any]]]) -> None:
        self.store.batch(
            [{"op": "put", "namespace": place, "key": key, "value": value} for place, key, value in page]
        )

    def put(self, place: tuple[str, ...], key: str, value: dict[str, Any]) -> None:
        self.store.put(place, key, value)

    def get(self, place: tuple[str, ...], key: str) -> None:
        assert self.store.get(place, key) is not None

    def find(self, place: tuple[str, ...], query: str) -> None:
        assert 0 < len(self.store.search(place, query=query)) <= 10

    def list(self, place: tuple[str, ...]) -> None:
        assert len(self.store.search(place)) == 10


class Theirs:
    """LangGraph's PostgresStore."""

    def __init__(self, url: str, stack: ExitStack, *, near: bool) -> None:
        from langgraph.store.postgres import PostgresStore

        index: Any = {"dims": DIMS, "embed": embed, "fields": ["text"]} if near else None
        self.store = stack.enter_context(PostgresStore.from_conn_string(url, index=index))
        self.store.setup()
        self.searches = self.missed = 0
        """An approximate index is asked first and filtered then: a search may find fewer than there are."""

    def fill(self, page: list[tuple[tuple[str, ...], str, dict[str, Any]]]) -> None:
        from langgraph.store.base import PutOp

        self.store.batch([PutOp(place, key, value) for place, key, value in page])

    def put(self, place: tuple[str, ...], key: str, value: dict[str, Any]) -> None:
        self.store.put(place, key, value)

    def get(self, place: tuple[str, ...], key: str) -> None:
        assert self.store.get(place, key) is not None

    def find(self, place: tuple[str, ...], query: str) -> None:
        self.searches += 1
        self.missed += len(self.store.search(place, query=query)) < 10

    def list(self, place: tuple[str, ...]) -> None:
        assert len(self.store.search(place)) == 10


def fill(contestant: Ours | Theirs, size: int) -> None:
    page = []
    for number in range(size):
        page.append((user(number // OF_EACH_USER), f"key-{number}", {"text": text(number), "n": number}))
        if len(page) == 500:
            contestant.fill(page)
            page = []
    contestant.fill(page)


def user(number: int) -> tuple[str, ...]:
    return ("users", f"user-{number:07}")


@contextmanager
def server() -> Iterator[str]:
    """The address of a server, ours to fill."""
    if given := os.environ.get("DATABASE_URL"):
        yield given
        return
    with private_server(**DURABLE) as started:
        yield started.url


def has_pgvector(url: str) -> bool:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchone()
        return found is not None


def compare(url: str, size: int, rounds: int, *, near: bool) -> list[tuple[str, Timing, Timing]]:
    """The operations at this size, ours and theirs."""
    base = url.rsplit("/", 1)[0]
    names = [f"memory_{who}_{size}_{'near' if near else 'plain'}" for who in ("ours", "theirs")]
    with psycopg.connect(url, autocommit=True) as admin, ExitStack() as stack:
        for name in names:
            admin.execute(f"CREATE DATABASE {name}")
            if near:
                with psycopg.connect(f"{base}/{name}", autocommit=True) as inside:
                    inside.execute("CREATE EXTENSION IF NOT EXISTS vector")
        _use(f"{base}/{names[0]}")
        ours, theirs = Ours(near=near), Theirs(f"{base}/{names[1]}", stack, near=near)
        fill(ours, size)
        with _without_index_of_vectors(f"{base}/{names[1]}"):
            fill(theirs, size)
        for name in names:
            with psycopg.connect(f"{base}/{name}", autocommit=True) as inside:
                inside.execute("VACUUM ANALYZE")
        timed = [
            (what, *_timed(ours_call, theirs_call, rounds=rounds))
            for what, ours_call, theirs_call in _operations(ours, theirs, size, near=near)
        ]
        if not near:
            _index_words(f"{base}/{names[1]}")
            timed.append(
                (
                    "put (theirs with an index of words)",
                    *_timed(*_puts(ours, theirs, 2 * size), rounds=rounds),
                )
            )
        if theirs.missed:
            print(
                f"(theirs found fewer than 10 of a user's {OF_EACH_USER} in {theirs.missed} of"
                f" {theirs.searches} searches by vector)"
            )
        return timed


@contextmanager
def _without_index_of_vectors(url: str) -> Iterator[None]:
    """Drop the indexes of vectors for the length of the block, and make them in one go after it."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(
            "SELECT indexname, indexdef FROM pg_indexes"
            " WHERE schemaname = 'public' AND indexdef ~ 'hnsw|ivfflat'"
        ).fetchall()
        for name, _ in found:
            connection.execute(f'DROP INDEX "{name}"')
        yield
        connection.execute("SET maintenance_work_mem = '4GB'")
        connection.execute("SET max_parallel_maintenance_workers = 2")
        for _, definition in found:
            connection.execute(definition)


def _index_words(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE INDEX ON store USING gin (to_tsvector('simple', value ->> 'text'))")


def _puts(ours: Ours, theirs: Theirs, size: int) -> Iterator[Any]:
    """New memories of users chosen at random, numbered from `size` on; each puts its own."""
    for one in (ours, theirs):
        chance, fresh = random.Random(size), count(size)

        def call(one: Any = one, chance: Any = chance, fresh: Any = fresh) -> None:
            number = next(fresh)
            place = user(chance.randrange(size) // OF_EACH_USER)
            one.put(place, f"key-{number}", {"text": text(number), "n": number})

        yield call


def _operations(ours: Ours, theirs: Theirs, size: int, *, near: bool) -> list[tuple[str, Any, Any]]:
    chance = random.Random(size)

    def some() -> int:
        return chance.randrange(size)

    def get(one: Ours | Theirs) -> Any:
        def call() -> None:
            number = some()
            one.get(user(number // OF_EACH_USER), f"key-{number}")

        return call

    def of_user(act: Any) -> Any:
        def call() -> None:
            number = some()
            act(user(number // OF_EACH_USER), number)

        return call

    listed = of_user(lambda place, _: theirs.list(place))
    if near:
        return [
            ("put with a vector", *_puts(ours, theirs, size)),
            (
                "search by vector, one user",
                of_user(lambda place, number: ours.find(place, text(number))),
                of_user(lambda place, number: theirs.find(place, text(number))),
            ),
        ]
    return [
        ("put", *_puts(ours, theirs, size)),
        ("get", get(ours), get(theirs)),
        ("list the newest, one user", of_user(lambda place, _: ours.list(place)), listed),
        (
            "search by words, one user (theirs: list)",
            of_user(lambda place, number: ours.find(place, text(number).split()[0])),
            listed,
        ),
        (
            "search by a rare word, all users (theirs: list)",
            of_user(lambda _, number: ours.find((), f"number{number}")),
            listed,
        ),
    ]


def _timed(ours: Any, theirs: Any, *, rounds: int) -> tuple[Timing, Timing]:
    timings = interleave([Task("ours", ours), Task("theirs", theirs)], rounds)
    return timings["ours"], timings["theirs"]


def _use(url: str) -> None:
    """Point Django at a database, and make the tables."""
    import django
    from django.apps import apps
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connections

    from project.database import database_from_url

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    if not apps.ready:
        django.setup()
    connections.close_all()
    connection = connections["default"]
    made = {**settings.DATABASES["default"], **database_from_url(url)}
    settings.DATABASES["default"].update(made)
    connection.settings_dict.update(made)
    vars(connection).pop("_helix_sessions_pgvector", None)
    call_command("migrate", verbosity=0)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.memory", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--sizes", nargs="+", type=int, default=[10_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", choices=("words", "vectors"), help="compare this only")
    chosen = parser.parse_args()
    with server() as url:
        os.environ["DATABASE_URL"] = url
        with_vectors = has_pgvector(url)
        print(f"| memories | operation | ratio | quartiles | ours, ms | theirs, ms |\n|{'---|' * 6}")
        for size in chosen.sizes:
            for near in (False, True) if with_vectors else (False,):
                if chosen.only == ("words" if near else "vectors"):
                    continue
                for what, ours, theirs in compare(url, size, chosen.rounds, near=near):
                    found = ratio(ours, theirs)
                    quartiles = f"{digits(found.low)}-{digits(found.high)}"
                    quiet = [digits(timing.quiet * 1000) for timing in (ours, theirs)]
                    print(
                        f"| {size:,} | {what} | {digits(found.middle)} | {quartiles} | {' | '.join(quiet)} |"
                    )
        if not with_vectors:
            print("\npgvector is not on this server, so vectors were not compared.")


if __name__ == "__main__":
    main()
