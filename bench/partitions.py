"""`python -m bench.partitions [--events N]`: messages and events in plain tables, and partitioned by hash.

Both databases are filled by the server with the same sessions, in the order in which many sessions grow side
by side. Then the same calls are timed on both in turn, events are deleted as retention does it, and the
tables vacuumed. At the end it says what another order of columns, and ids of 16 bytes, would save.
"""

import argparse
import json
import os
import random
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

from bench import payload
from bench.databases import DURABLE
from bench.fill import copy_session
from bench.maintenance import in_a_process, migrate
from bench.measure import Spread, Task, interleave
from bench.place import Place
from tests.postgres import private_server

FORMS = ("plain", "partitioned")
PARTITIONS = 16
TABLES = ("helix_sessions_event", "helix_sessions_message")
EVENTS_EACH = 101
MESSAGES_EACH = 50
BLOCK = 20
TEMPLATE = "template"
SESSION_ID = "lpad(to_hex(n), 8, '0') || '-0000-7000-8000-' || substr(md5(n::text), 1, 12)"
"""As long as a UUID, and in the order of time, as UUIDv7 is."""

SERVER = {**DURABLE, "shared_buffers": "1GB", "max_wal_size": "4GB", "maintenance_work_mem": "256MB"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.partitions", description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    each = f"messages among the {EVENTS_EACH} events of a session ({MESSAGES_EACH}); fewer spare the disk"
    parser.add_argument("--messages", type=int, default=MESSAGES_EACH, help=each)
    parser.add_argument("--output", type=Path, default=None, help="where the numbers go as JSON")
    arguments = parser.parse_args()
    sessions = arguments.events // EVENTS_EACH
    with private_server(**SERVER) as server, tempfile.TemporaryDirectory(prefix="helix_bench_") as folder:
        place = Place(server.url, Path(folder) / "unused.sqlite3", {"direct": server.port})
        for name in FORMS:
            place.execute(f"CREATE DATABASE {name}")
        urls = {"default": place.url(FORMS[0]), **{name: place.url(name) for name in FORMS}}
        os.environ["HELIX_BENCH_DATABASES"] = json.dumps(urls)
        os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"
        for name in FORMS:
            in_a_process(migrate, name)
        for table in TABLES:
            partition(place, "partitioned", table)
        import django

        django.setup()
        found: dict[str, object] = {"sessions": sessions, "events": sessions * EVENTS_EACH}
        for form in FORMS:
            filling = partial(fill, place, form, sessions, arguments.messages)
            found[f"{form}: fill, s"] = round(seconds(filling), 1)
            tell(found)
        place.settle(*FORMS)
        found |= calls(place, sessions)
        tell(found)
        for form in FORMS:
            found |= {f"{form}: {name}": value for name, value in retention(place, form, sessions).items()}
            found |= {f"{form}: {name}": value for name, value in sizes(place, form).items()}
        found |= layouts(place)
        tell(found)
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1))


def tell(found: dict[str, object]) -> None:
    print(json.dumps(found, indent=1), flush=True)


def seconds(run: Callable[[], object]) -> float:
    begin = perf_counter()
    run()
    return perf_counter() - begin


def partition(place: Place, database: str, table: str) -> None:
    """Put a table that is partitioned by session in the place of an empty one."""
    place.execute(f"ALTER TABLE {table} RENAME TO {table}_plain", database)
    like = "INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE INCLUDING INDEXES"
    place.execute(
        f"CREATE TABLE {table} (LIKE {table}_plain {like}) PARTITION BY HASH (session_id)", database
    )
    for number in range(PARTITIONS):
        place.execute(
            f"CREATE TABLE {table}_{number} PARTITION OF {table}"
            f" FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {number})",
            database,
        )
    place.execute(
        f"ALTER TABLE {table} ADD FOREIGN KEY (session_id) REFERENCES helix_sessions_session"
        " DEFERRABLE INITIALLY DEFERRED",
        database,
    )
    place.execute(f"DROP TABLE {table}_plain CASCADE", database)


def fill(place: Place, form: str, sessions: int, messages: int) -> None:
    """Make sessions of so many messages and 101 events, each block of their log after that of all others."""
    from django.db import connections

    from helix_sessions.store import SessionStore

    store = SessionStore(form)
    store.create_session(TEMPLATE, agent_type="bench", custom_state={"step": 1})
    for number in range(messages):
        store.append_messages(TEMPLATE, [payload.message(("user", "assistant")[number % 2], 300)])
    for _ in range(EVENTS_EACH - 1 - messages):
        store.emit_event(TEMPLATE, "progress", {"done": "a part of the work that was asked for", "of": 50})
    connections[form].close()
    copy_session(place, form, "helix_sessions_session", TEMPLATE, sessions, session_id=SESSION_ID)
    _copy(place, form, "helix_sessions_statesnapshot", sessions, "true")
    for first in range(0, EVENTS_EACH + 1, BLOCK):
        for table in TABLES:
            _copy(place, form, table, sessions, f"seq >= {first} AND seq < {first + BLOCK}")


def _copy(place: Place, form: str, table: str, sessions: int, where: str) -> None:
    columns = [
        name
        for (name,) in place.execute(
            f"SELECT attname FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0", form
        )
    ]
    values = ", ".join(SESSION_ID if name == "session_id" else f'"{name}"' for name in columns)
    names = ", ".join(f'"{name}"' for name in columns)
    place.execute(
        f"SET session_replication_role = replica; INSERT INTO {table} ({names})"  # the foreign keys hold
        f" SELECT {values} FROM generate_series(1, {sessions}) AS n, {table}"
        f" WHERE session_id = '{TEMPLATE}' AND {where}",
        form,
    )


def calls(place: Place, sessions: int) -> dict[str, object]:
    """The calls of a store, in turn on both forms, each on a session that was not touched for long."""
    from bench.contestants.ours import Ours

    ours = {form: Ours(place, using=form) for form in FORMS}
    steps = payload.steps()
    state = {"id": ""}

    numbers = {form: iter(random.Random(1).sample(range(1, sessions + 1), sessions)) for form in FORMS}

    def pick(form: str) -> None:
        row = f"SELECT {SESSION_ID} FROM (SELECT {next(numbers[form])} AS n) AS one"
        ((state["id"],),) = place.execute(row, form)
        ours[form].open(state["id"])

    timed: dict[str, Callable[[Ours], object]] = {
        "step": lambda one: one.step(state["id"], next(steps)),
        "append": lambda one: one.append(state["id"], next(steps).messages),
        "latest 50 messages": lambda one: one.latest(state["id"], 50),
        "page of events": lambda one: one.store.get_events(state["id"], 20, limit=50),
        "list": lambda one: one.list_newest(),
        "delete": lambda one: one.delete(state["id"]),
    }
    found: dict[str, object] = {}
    for name, call in timed.items():
        tasks = [Task(form, partial(call, ours[form]), partial(pick, form), repeat=1) for form in FORMS]
        for form, timing in interleave(tasks, 200, warm_up=20).items():
            spread = Spread.of(timing.seconds).scaled(1000)
            found[f"{form}: {name}, ms"] = [round(x, 3) for x in (spread.low, spread.middle, spread.high)]
    for one in ours.values():
        one.close()
    return found


def retention(place: Place, form: str, sessions: int) -> dict[str, object]:
    """Delete the first half of the log of every tenth session, as pruning does, then vacuum."""
    begin = "UPDATE helix_sessions_session SET first_seq = 51 WHERE session_id = %s"
    delete = "DELETE FROM helix_sessions_event WHERE session_id = %s AND seq < 51"
    import psycopg

    with psycopg.connect(place.url(form)) as connection:
        keys = connection.execute(
            f"SELECT session_id FROM helix_sessions_session, generate_series(10, {sessions}, 10) AS n"
            f" WHERE session_id = {SESSION_ID} LIMIT 5000"
        ).fetchall()
        start = perf_counter()
        for key in keys:
            connection.execute(begin, key)
            connection.execute(delete, key)
            connection.commit()
        pruned = perf_counter() - start
    vacuumed = seconds(lambda: place.execute("VACUUM helix_sessions_event", form))
    return {
        "prune a session, ms": round(pruned / len(keys) * 1000, 2),
        "vacuum events, s": round(vacuumed, 2),
    }


def sizes(place: Place, form: str) -> dict[str, object]:
    """Bytes of each row: in the table, and in its indexes."""
    found: dict[str, object] = {}
    for table in TABLES:
        ((rows,),) = place.execute(f"SELECT count(*) FROM {table}", form)
        query = (
            "SELECT sum(pg_table_size(oid)), sum(pg_indexes_size(oid)) FROM"
            f" pg_class WHERE relname ~ '^{table}(_[0-9]+)?$' AND relkind = 'r'"
        )
        ((heap, index),) = place.execute(query, form)
        found[f"{table}: bytes of a row"] = round(float(heap) / rows, 1)
        found[f"{table}: bytes of a row in indexes"] = round(float(index) / rows, 1)
    return found


_COLUMNS = """
SELECT attname, attlen > 0 FROM pg_attribute WHERE attrelid = '{table}'::regclass
AND attnum > 0 AND NOT attisdropped AND attname <> 'session_id' ORDER BY attnum
"""


def layouts(place: Place) -> dict[str, object]:
    """The plain tables again, compacted: as they are, with columns of a fixed length first, which need no
    padding then, and with ids as `uuid`."""
    found: dict[str, object] = {}
    keys = {"helix_sessions_event": "session_id, seq", "helix_sessions_message": "session_id, position, seq"}
    for table, key in keys.items():
        columns = place.execute(_COLUMNS.format(table=table), "plain")
        rest = ", ".join(f'"{name}"' for name, _ in columns)
        fixed = ", ".join(f'"{name}"' for name, has_length in columns if has_length)
        others = ", ".join(f'"{name}"' for name, has_length in columns if not has_length)
        text, uuid = (f"session_id::{kind} AS session_id" for kind in ('varchar(255) COLLATE "C"', "uuid"))
        forms = {
            "as it is": f"{text}, {rest}",
            "fixed columns first": f"{fixed}, {text}, {others}",
            "id as uuid": f"{uuid}, {rest}",
            "id as uuid, fixed columns first": f"{uuid}, {fixed}, {others}",
        }
        for label, selection in forms.items():
            place.execute(
                f"CREATE TABLE compact AS SELECT {selection} FROM {table}"
                f" WHERE session_id <> '{TEMPLATE}' LIMIT 1000000",
                "plain",
            )
            place.execute(f"ALTER TABLE compact ADD PRIMARY KEY ({key})", "plain")
            ((heap, index, rows),) = place.execute(
                "SELECT pg_table_size('compact'), pg_indexes_size('compact'), count(*) FROM compact", "plain"
            )
            found[f"{table}, {label}: bytes of a row, table and key"] = [
                round(size / rows, 1) for size in (heap, index)
            ]
            place.execute("DROP TABLE compact", "plain")
    return found


if __name__ == "__main__":
    main()
