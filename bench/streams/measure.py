"""The measurements of live events, and their rows."""

import asyncio
import multiprocessing
import random
import threading
import time

from bench.contestants import NOTIFYING
from bench.contestants.notifying import OursSilent
from bench.databases import Arena
from bench.measure import Spread, p99
from bench.results import Results, Row
from bench.scale import Scale
from bench.streams.server import Reader, Server, open_all, server
from bench.writers import Writer, rate

SECTION = "live events"
READERS_PER_SESSION, EVENTS, PER_SECOND = 10, 400, 20
STREAMS, MOST_STREAMS = 200, 5_000
MANY = 1_000
MISSING = f"frames that did not arrive, {MOST_STREAMS:,} streams"


def measure_streams(arena: Arena, scale: Scale, results: Results) -> None:
    """Latency, memory, the price of NOTIFY, and readers that come and go."""
    for streams in scale.streams:
        with server() as serving:
            milliseconds, missing = asyncio.run(_latency(serving, streams))
        if streams == MOST_STREAMS:
            _add(results, MISSING, missing, f"of {len(milliseconds) + missing:,}")
        _add(results, frame("p50", streams), Spread.of(milliseconds), "ms")
        _add(results, frame("p99", streams), p99(milliseconds), "ms")
    with server() as serving:
        more, listeners = asyncio.run(_memory(serving, arena))
        _add(results, "memory for 1,000 streams", more, "MB")
        _add(results, "connections that listen", listeners, "")
    _price_of_notify(arena, scale, results)
    for using in ("default", "sqlite"):
        total, reconnects = (10_000, 100) if scale.writer_rounds > 3 else (2_000, 20)
        wrong = _come_and_go(using, total, reconnects)
        _add(results, f"events lost or doubled, {using}", wrong, f"of {total:,}")


def frame(quantile: str, streams: int) -> str:
    """The operation's name in the tables."""
    return f"commit to frame, {quantile}, {streams:,} streams"


def _add(results: Results, operation: str, value: Spread | float, unit: str) -> None:
    spread = value if isinstance(value, Spread) else Spread(value, value, value)
    results.rows.append(Row(SECTION, operation, "ours", spread, unit))


async def _latency(serving: Server, streams: int) -> tuple[list[float], int]:
    """Milliseconds from a commit in this process to its frame at each reader of the session, and how many
    frames did not arrive."""
    from helix_sessions.store import SessionStore

    store = SessionStore()
    ids = [f"stream-{streams}-{n}" for n in range(streams // READERS_PER_SESSION)]
    await asyncio.to_thread(lambda: [store.create_session(key, agent_type="bench") for key in ids])
    readers = [Reader(ids[n % len(ids)]) for n in range(streams)]
    tasks = await open_all(serving, readers)
    committed: dict[tuple[str, int], float] = {}

    def write() -> None:
        chance = random.Random(1)
        for _ in range(EVENTS):
            key = chance.choice(ids)
            event = store.emit_event(key, "progress", {"text": "x" * 200})
            committed[key, event.seq] = time.perf_counter()
            time.sleep(chance.expovariate(PER_SECOND))

    await asyncio.to_thread(write)
    await asyncio.sleep(1)
    for task in tasks:
        task.cancel()
    awaited = [
        (reader.arrived.get(seq), at)
        for (key, seq), at in committed.items()
        for reader in readers
        if reader.session_id == key
    ]
    arrived = [max(0.0, (then - at) * 1000) for then, at in awaited if then is not None]
    return arrived, len(awaited) - len(arrived)


async def _memory(serving: Server, arena: Arena) -> tuple[float, int]:
    from helix_sessions.store import SessionStore

    store = SessionStore()
    ids = [f"many-{n}" for n in range(MANY)]
    await asyncio.to_thread(lambda: [store.create_session(key, agent_type="bench") for key in ids])
    warm = await open_all(serving, [Reader(key) for key in ids[:20]])
    before = serving.memory()
    tasks = await open_all(serving, [Reader(key) for key in ids])
    more = serving.memory() - before
    listeners = arena.place.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'helix_sessions'"
        " AND query LIKE 'LISTEN%'"
    )[0][0]
    for task in [*warm, *tasks]:
        task.cancel()
    return more, listeners


def _price_of_notify(arena: Arena, scale: Scale, results: Results) -> None:
    writers = [Writer(arena.place) for _ in range(16)]
    rates: dict[str, list[float]] = {kind.name: [] for kind in NOTIFYING}
    try:
        for number in range(scale.writer_rounds * 2):
            for kind in NOTIFYING if number % 2 else NOTIFYING[::-1]:
                rates[kind.name].append(rate(writers, kind.name, scale.writer_seconds))
    finally:
        for writer in writers:
            writer.end()
    results.add_numbers(SECTION, "writers: 16", "steps/s", rates, base=OursSilent.name)


def _emit(using: str, count: int) -> None:
    import django

    django.setup()
    from helix_sessions.store import SessionStore

    store = SessionStore(using=using)
    for n in range(count):
        store.emit_event("busy", "progress", {"n": n})


def _come_and_go(using: str, total: int, reconnects: int) -> int:
    """How many events a reader missed or saw twice that left and came back at random; its listening
    connection is ended each time on PostgreSQL."""
    from django.db import connections

    from helix_sessions.store import SessionStore

    store = SessionStore(using=using)
    store.create_session("busy", agent_type="bench")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_emit, args=(using, total // 8)) for _ in range(8)]
    for process in processes:
        process.start()
    seen: list[int] = []
    stops = [*sorted(random.Random(1).sample(range(1, total), reconnects)), total]
    for stop in stops:
        with store.subscribe("busy", after=seen[-1] if seen else 1) as tail:
            while len(seen) < stop:
                seen.append(next(tail).seq)
        if connections[using].vendor == "postgresql":
            threading.Thread(target=_end_listeners, args=(using,)).start()
    for process in processes:
        process.join()
    expected = list(range(2, total + 2))
    return len(set(expected) ^ set(seen)) + (len(seen) - len(set(seen))) + (seen != sorted(seen))


def _end_listeners(using: str) -> None:
    from django.db import connections

    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'helix_sessions' AND pid <> pg_backend_pid()"
        )
    connections[using].close()
