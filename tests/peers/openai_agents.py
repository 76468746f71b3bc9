"""The OpenAI Agents SDK's own session tests with ours: `python -m tests.peers.openai_agents CHECKOUT`.

`--python` is an interpreter that has what the SDK's tests need, and what this project needs. The code under
test is that of the checkout, so that tests and library are of the same version. Everything else is passed to
pytest.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.peers import langgraph as runner

SUITES = (
    "tests/memory/test_session.py",
    "tests/memory/test_session_limit.py",
    "tests/extensions/memory/test_async_sqlite_session.py",
    "tests/extensions/memory/test_advanced_sqlite_session.py",
    "tests/extensions/memory/test_sqlalchemy_session.py",
    "tests/extensions/memory/test_encrypt_session.py",
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.peers.openai_agents", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("checkout", type=Path, help="a checkout of openai/openai-agents-python")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the tests")
    parser.add_argument("--engine", choices=runner.ENGINES, help="run on this engine only")
    chosen, arguments = parser.parse_known_args()
    failed = 0
    for engine in [chosen.engine] if chosen.engine else runner.ENGINES:
        with runner.database(engine) as url:
            runner.migrate(chosen.python, url)
            print(f"== the session tests of the OpenAI Agents SDK on {engine}", flush=True)
            failed |= _run(chosen.checkout.resolve(), chosen.python, url, arguments)
    return failed


def _run(checkout: Path, python: str, url: str, arguments: list[str]) -> int:
    paths = [checkout / "src", checkout, runner.HERE / "plugins", runner.REPOSITORY]
    options = ["-phelix_session", "-pno:cacheprovider", "-pno:django", "-oaddopts=", "-oasyncio_mode=auto"]
    suites = [] if any(each.startswith("tests/") for each in arguments) else SUITES
    return subprocess.run(
        [python, "-m", "pytest", *options, *suites, *arguments],
        cwd=checkout,
        env={**runner.environment(url), "PYTHONPATH": os.pathsep.join(map(str, paths))},
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
