"""LangGraph's own tests with our saver: `python -m tests.peers.langgraph CHECKOUT [pytest arguments]`.

`--python` is an interpreter that has what LangGraph's tests need, and what this project needs. The code under
test is that of the checkout, so that tests and library are of the same version.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.postgres import find_binaries, install_wheel, private_server

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
ENGINES = ("sqlite", "postgresql")
OF_THEIR_STORES = [f"--ignore=tests/{name}.py" for name in ("test_store", "test_async_store", "test_ttl")]
SUITES = {
    "langgraph": ["tests"],
    "checkpoint-sqlite": ["tests", "--asyncio-mode=auto", *OF_THEIR_STORES],
    "checkpoint-postgres": ["tests", "--asyncio-mode=auto", *OF_THEIR_STORES],
}
LIBRARIES = (
    *("langgraph", "checkpoint", "prebuilt", "checkpoint-sqlite", "checkpoint-postgres"),
    *("checkpoint-conformance", "sdk-py"),
)
"""Together they are one namespace package: `langgraph`."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.peers.langgraph", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("checkout", type=Path, help="a checkout of langchain-ai/langgraph")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the tests")
    parser.add_argument("--engine", choices=ENGINES, help="run on this engine only")
    parser.add_argument("--suite", choices=[*SUITES], help="run this suite only")
    chosen, arguments = parser.parse_known_args()
    failed = 0
    for engine in [chosen.engine] if chosen.engine else ENGINES:
        with database(engine) as url:
            migrate(chosen.python, url)
            for suite in [chosen.suite] if chosen.suite else SUITES:
                print(f"== {suite} on {engine}", flush=True)
                failed |= _run(chosen.checkout.resolve(), suite, chosen.python, url, arguments)
    return failed


@contextmanager
def database(engine: str) -> Iterator[str]:
    if engine == "sqlite":
        with tempfile.TemporaryDirectory() as directory:
            yield f"sqlite:///{directory}/peers.sqlite3"
        return
    if find_binaries() is None:
        install_wheel()
    with private_server() as server:
        yield server.url


def environment(url: str) -> dict[str, str]:
    return {
        **os.environ,
        "DATABASE_URL": url,
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "HELIX_SECRET_KEY": "peers",
        "HELIX_DEBUG": "0",
        "NO_DOCKER": "true",
        "DJANGO_ALLOW_ASYNC_UNSAFE": "true",  # some of the tests make sync calls inside an event loop
    }


def migrate(python: str, url: str) -> None:
    subprocess.run(
        [python, "manage.py", "migrate", "--verbosity", "0"],
        cwd=REPOSITORY,
        env=environment(url),
        check=True,
    )


def _run(checkout: Path, suite: str, python: str, url: str, arguments: list[str]) -> int:
    library = checkout / "libs" / suite
    paths = [library, *(checkout / "libs" / each for each in LIBRARIES), HERE / "plugins", REPOSITORY]
    options = [f"-p{name}" for name in ("helix_saver", "no:cacheprovider", "no:django")]
    command = [python, "-m", "pytest", *options, "-o", "addopts="]
    chosen = [each for each in arguments if each.startswith("tests/")]
    suite_arguments = [each for each in SUITES[suite] if not (chosen and each == "tests")]
    return subprocess.run(
        [*command, *suite_arguments, *arguments],
        cwd=library,
        env={**environment(url), "PYTHONPATH": os.pathsep.join(map(str, paths)), "HELIX_PEER": suite},
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
