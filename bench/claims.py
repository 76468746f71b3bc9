"""What it costs to find the next session among few and many: with owners that take turns, with bounds on what
runs at once, behind one owner's flood, and right after a mass deletion."""

from contextlib import nullcontext
from time import perf_counter
from typing import Any

from django.test import override_settings

from bench.databases import CLAIMS, Arena
from bench.fill import copy_session
from bench.loop_workers import LOOP_AGENT
from bench.measure import Spread, Task, interleave
from bench.place import Place
from bench.results import Results, Row
from bench.scale import Scale

SECTION = "claims"
OURS = "ours"
DUE = 10
BOUNDS = {"CONCURRENCY": {"owner": 5, f"agent_type:{LOOP_AGENT}": 100}}
LEASED = 50
"""Beside those that are counted, so many run already: that is what bounds have to count."""


def measure_claims(arena: Arena, scale: Scale, results: Results) -> None:
    sizes = (DUE, scale.small_list, scale.large_list)
    claims = _Claims(arena.place, sizes, scale.rounds, results)
    claims.measure("claim among {size:,}")
    claims.measure("claim among {size:,}, bounded", bounds=BOUNDS)
    claims.flood()
    claims.measure("claim among {size:,}, a tenth of them one owner's that wait")
    claims.delete()


class _Claims:
    def __init__(self, place: Place, sizes: tuple[int, ...], rounds: int, results: Results) -> None:
        from helix_sessions.store import SessionStore

        self._place = place
        self._sizes = sizes
        self._rounds = rounds
        self._results = results
        self._stores = {database: SessionStore(database) for database in CLAIMS}
        for database, size in zip(CLAIMS, sizes, strict=True):
            self._stores[database].create_session("first", agent_type=LOOP_AGENT)
            copy_session(
                *(place, database, "helix_sessions_session", "first", size + LEASED),
                runnable_at="CASE WHEN n % 10 = 0 THEN now() + interval '1 day' END",
                deferred="n % 10 = 0",
                owner_id="n % 1000 + 1",
            )
            place.execute(
                "UPDATE helix_sessions_session SET lease_owner = 'another', lease_token = 't',"
                " lease_expires_at = now() + interval '1 day', runnable_at = now() + interval '1 day',"
                f" deferred = true, owner_id = 999 WHERE session_id IN ({_named(size + 1, size + LEASED)})",
                database,
            )

    def measure(self, named: str, bounds: dict[str, Any] | None = None) -> None:
        self._place.settle(*CLAIMS)
        tasks = [
            self._task(database, size, bounds) for database, size in zip(CLAIMS, self._sizes, strict=True)
        ]
        timings = interleave(tasks, self._rounds)
        few = f"{self._sizes[0]:,}"
        for size in self._sizes:
            ends = {OURS: timings[f"{size:,}"], "few": timings[few]}
            self._results.add_timings(SECTION, named.format(size=size), ends, "few", only=OURS)

    def _task(self, database: str, size: int, bounds: dict[str, Any] | None) -> Task:
        def before() -> None:
            self._place.execute(
                "UPDATE helix_sessions_session SET runnable_at = now() - interval '1 minute',"
                " deferred = false, lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL,"
                f" attempts = 0 WHERE session_id IN ({_named(1, DUE)})",
                database,
            )

        def claim() -> None:
            with override_settings(HELIX_SESSIONS=bounds) if bounds else nullcontext():
                assert self._claim(database) is not None

        return Task(f"{size:,}", claim, before, repeat=DUE)

    def _claim(self, database: str) -> Any:
        from helix_sessions.runtime.loop.runner import claim_next

        return claim_next(self._stores[database], "bench", 60.0, agent_types=[LOOP_AGENT])

    def flood(self) -> None:
        """Those that were to run later belong to one owner, and want to run now."""
        for database in CLAIMS:
            self._place.execute(
                "UPDATE helix_sessions_session SET owner_id = 1, deferred = false,"
                " runnable_at = now() - interval '1 hour'"
                " WHERE runnable_at > now() + interval '1 hour' AND lease_owner IS NULL",
                database,
            )

    def delete(self) -> None:
        """All that waited are deleted at once, and nothing was vacuumed since."""
        largest, size = CLAIMS[-1], self._sizes[-1]
        self._place.execute("ALTER TABLE helix_sessions_session SET (autovacuum_enabled = off)", largest)
        self._place.execute(
            "DELETE FROM helix_sessions_session"
            " WHERE runnable_at IS NOT NULL AND lease_owner IS DISTINCT FROM 'another'",
            largest,
        )
        took = []
        for _ in range(DUE + 1):
            began = perf_counter()
            assert self._claim(largest) is None
            took.append((perf_counter() - began) * 1000)
        self._add(f"first look after {size // 10:,} that waited were deleted", Spread.of(took[:1]))
        self._add(f"the next looks after {size // 10:,} that waited were deleted", Spread.of(took[1:]))

    def _add(self, operation: str, spread: Spread) -> None:
        self._results.rows.append(Row(SECTION, operation, OURS, spread, "ms", None, OURS))


def _named(first: int, last: int) -> str:
    return ", ".join(f"'filled-{number}'" for number in range(first, last + 1))
