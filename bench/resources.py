"""What a step costs beside time: statements, round trips, WAL, and the processors of both sides."""

from pathlib import Path
from time import process_time

from bench import payload
from bench.contestants import CORE, SHARED, installed_peers
from bench.contestants.base import Contestant
from bench.contestants.by_hand import EVENTS_PER_STEP
from bench.databases import Arena
from bench.operations import Loop
from bench.place import Place
from bench.results import Results
from bench.scale import Scale

COUNTED_STEPS = 20
HISTORY = 100


def measure_resources(arena: Arena, scale: Scale, results: Results) -> None:
    """The step commit of each contestant, watched from outside."""
    kinds = [*CORE, *SHARED, *installed_peers()]
    _check_that_all_write_the_same(arena)
    counts = {kind.name: _statements_and_round_trips(arena, kind) for kind in kinds}
    results.add_numbers("resources per step", "statements", "", {k: [v[0]] for k, v in counts.items()})
    results.add_numbers("resources per step", "round trips", "", {k: [v[1]] for k, v in counts.items()})

    loops = {kind: Loop(kind(arena.place), HISTORY) for kind in kinds}
    wal: dict[str, list[float]] = {kind.name: [] for kind in kinds}
    client: dict[str, list[float]] = {kind.name: [] for kind in kinds}
    server: dict[str, list[float]] = {kind.name: [] for kind in kinds}
    for _ in range(scale.resource_rounds):
        for kind, loop in loops.items():
            steps = scale.resource_steps // (5 if kind.slow else 1)
            loop.begin()
            loop.step()
            arena.place.execute("CHECKPOINT")
            position = _wal_position(arena.place)
            busy = _server_seconds(arena.place, kind.database)
            start = process_time()
            for _ in range(steps):
                loop.step()
            client[kind.name].append((process_time() - start) / steps * 1000)
            server[kind.name].append((_server_seconds(arena.place, kind.database) - busy) / steps * 1000)
            wal[kind.name].append((_wal_position(arena.place) - position) / steps)
    for loop in loops.values():
        loop.contestant.close()
    results.add_numbers("resources per step", "WAL", "bytes", wal)
    results.add_numbers("resources per step", "client CPU", "ms", client)
    if all(map(all, server.values())):
        results.add_numbers("resources per step", "server CPU", "ms", server)
        both = {name: [a + b for a, b in zip(client[name], server[name], strict=True)] for name in client}
        results.add_numbers("resources per step", "CPU of both", "ms", both)


def _statements_and_round_trips(arena: Arena, kind: type[Contestant]) -> tuple[float, float]:
    loop = Loop(kind(arena.place, "counted"), HISTORY)
    loop.begin()
    for _ in range(COUNTED_STEPS):
        loop.step()  # by now the drivers have prepared what they prepare
    before = arena.counting.counted()
    for _ in range(COUNTED_STEPS):
        loop.step()
    after = arena.counting.counted()
    loop.contestant.close()
    return (after[0] - before[0]) / COUNTED_STEPS, (after[1] - before[1]) / COUNTED_STEPS


def _check_that_all_write_the_same(arena: Arena) -> None:
    steps = payload.steps()
    for kind, table in zip(CORE, ("event", "event", "helix_sessions_event"), strict=True):
        contestant = kind(arena.place)
        contestant.create(f"counted-{kind.name}")
        sql = f"SELECT count(*) FROM {table} WHERE session_id = 'counted-{kind.name}'"
        ((before,),) = arena.place.execute(sql, kind.database)
        contestant.step(f"counted-{kind.name}", next(steps))
        ((after,),) = arena.place.execute(sql, kind.database)
        contestant.close()
        if after - before != EVENTS_PER_STEP:
            raise AssertionError(f"{kind.name} wrote {after - before} events, not {EVENTS_PER_STEP}.")


def _wal_position(place: Place) -> int:
    ((position,),) = place.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
    return int(position)


def _server_seconds(place: Place, database: str) -> float:
    """Seconds the database's backends were on a processor, 0 where Linux does not tell."""
    rows = place.execute(
        f"SELECT pid FROM pg_stat_activity WHERE datname = '{database}' AND backend_type = 'client backend'"
    )
    try:
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for (pid,) in rows) / 1e9
    except OSError:
        return 0.0
