"""Google ADK's own tests of its services with ours: `python -m tests.peers.adk CHECKOUT [pytest arguments]`.

`--python` is an interpreter that has what ADK's tests need, and what this project needs. The library under
test is the one that is installed there. Everything else is passed to pytest.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.peers import langgraph as runner

SUITES = (
    "tests/unittests/sessions/test_session_service.py",
    "tests/unittests/artifacts/test_artifact_service.py",
    "tests/unittests/memory/test_in_memory_memory_service.py",
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.peers.adk", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("checkout", type=Path, help="a checkout of google/adk-python")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the tests")
    parser.add_argument("--engine", choices=runner.ENGINES, help="run on this engine only")
    chosen, arguments = parser.parse_known_args()
    failed = 0
    for engine in [chosen.engine] if chosen.engine else runner.ENGINES:
        with runner.database(engine) as url, tempfile.TemporaryDirectory() as blobs:
            runner.migrate(chosen.python, url)
            print(f"== the tests of ADK's services on {engine}", flush=True)
            failed |= _run(chosen.checkout.resolve(), chosen.python, url, blobs, arguments)
    return failed


def _run(checkout: Path, python: str, url: str, blobs: str, arguments: list[str]) -> int:
    paths = [runner.HERE / "plugins", runner.REPOSITORY]
    options = ["-phelix_adk", "-pno:cacheprovider", "-pno:django", "-oaddopts=", "-oasyncio_mode=auto"]
    named = [each for each in arguments if each.startswith("tests/")]
    suites = [] if named else [each for each in SUITES if (checkout / each).exists()]
    return subprocess.run(
        [python, "-m", "pytest", *options, *suites, *arguments],
        cwd=checkout,
        env={
            **runner.environment(url),
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "HELIX_PEER_BLOBS": blobs,
        },
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
