"""Every test on SQLite and on PostgreSQL: `python -m tests.run [--engine NAME] [pytest arguments]`.

PostgreSQL is the one at `DATABASE_URL`, else a private server made for this run.
"""

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.pgbouncer import pgbouncer
from tests.postgres import PostgresUnavailable, find_binaries, install_wheel, private_server
from tests.side_by_side import Lane, heed_signals, run_beside

ENGINES = ("sqlite", "postgresql")

TESTS_FAILED = 1
"""The exit code of pytest for it. Any other, of a crash for example, stands."""

WAITING = ("concurrency", "runner", "stream", "torture")
"""Folders whose tests wait more than they compute: they are run beside the others, on their own database."""

HURRIED = {"full_page_writes": False, "synchronous_commit": False}
"""Settings of the servers that no test crashes."""


def main() -> int:
    """Run pytest once on each engine, side by side, and return the first failure's exit code, or 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__, allow_abbrev=False)
    parser.add_argument("--engine", choices=ENGINES, help="run on this engine only")
    parser.add_argument("--pgbouncer", action="store_true", help="put PgBouncer before PostgreSQL")
    parser.add_argument("--long", action="store_true", help="run what is long instead of what is not")
    parser.add_argument("--beside", metavar="COMMAND", help="run this command at the same time")
    parser.add_argument("--again", action="store_true", help="run what failed once more, alone, and name it")
    chosen, pytest_arguments = parser.parse_known_args()
    heed_signals()

    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes would compile the same files
    if chosen.pgbouncer:
        os.environ["HELIX_TEST_POOLED"] = "1"
    if chosen.long:
        os.environ["HELIX_TEST_LONG"] = "1"
        pytest_arguments = ["-m", "slow or hypothesis", *pytest_arguments]
    named = any(map(_is_path, pytest_arguments))
    if not named:
        os.environ["HELIX_TEST_TARGET"] = "1"
    lanes, codes = [], {}
    with ExitStack() as stack:
        for name, engine, selection in _parts(not named, chosen.engine):
            try:
                database = stack.enter_context(_database(engine))
            except PostgresUnavailable as error:
                print(error, file=sys.stderr, flush=True)
                codes[name] = 1
            else:
                files = stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
                pytest = [sys.executable, "-m", "pytest", *selection, *pytest_arguments]
                pytest.append(f"--override-ini=cache_dir={files}/cache")
                # Otherwise other runs of pytest would remove what this one still uses.
                lanes.append(Lane(name, pytest, {**database, "PYTEST_DEBUG_TEMPROOT": files}))
        if chosen.beside:
            lanes.append(Lane("checks", shlex.split(chosen.beside), {}))
        codes |= run_beside(lanes)
        if chosen.again:
            codes |= _run_again([lane for lane in lanes if codes[lane.name] == TESTS_FAILED])
    for name, code in codes.items():
        print(f"{name}: {f'FAILED, exit code {code}' if code else 'passed'}", flush=True)
    return next(filter(None, codes.values()), 0)


def _run_again(lanes: list[Lane]) -> dict[str, int]:
    """Run the failed tests of each lane once more, one lane after the other; its exit code is the new one.

    What passes now depends on what else the machine does. That is a fault of the test, and said.
    """
    codes: dict[str, int] = {}
    for lane in lanes:
        print(f"\n=== {lane.name}: what failed, once more and alone ===", flush=True)
        command = [*lane.command, "--last-failed", "--last-failed-no-failures=none", "-rfEp"]
        codes |= run_beside([Lane(lane.name, command, lane.environment)])
        if not codes[lane.name]:
            print(f"{lane.name}: FLAKY, the tests above failed beside others and passed alone", flush=True)
    return codes


def _parts(everything: bool, engine: str | None) -> list[tuple[str, str, list[str]]]:
    """The runs of pytest: each one's name, its engine, and what of the tests it runs."""
    engines = [engine] if engine else ENGINES
    if not everything or _given_url():
        return [(name, name, []) for name in engines]
    waiting = [f"tests/{folder}" for folder in WAITING]
    others = [f"--ignore={folder}" for folder in waiting]
    return [part for name in engines for part in ((name, name, others), (f"{name}, waiting", name, waiting))]


def _is_path(argument: str) -> bool:
    return Path(argument.partition("::")[0]).exists()


def _given_url() -> str | None:
    url = os.environ.get("DATABASE_URL", "")
    return url if url.startswith(("postgres://", "postgresql://")) else None


@contextmanager
def _database(engine: str) -> Iterator[dict[str, str]]:
    """What chooses the engine's database in the environment."""
    if engine == "sqlite":
        yield {"DATABASE_URL": ""}
        return
    with ExitStack() as stack:
        url = _given_url()
        if url is None:
            if find_binaries() is None:
                install_wheel()
            url = stack.enter_context(private_server(**HURRIED)).url
        if os.environ.get("HELIX_TEST_POOLED"):
            url = stack.enter_context(pgbouncer(url, pool_size=30)).url
        yield {"DATABASE_URL": url}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
