"""A campaign run briefly, from a test."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.parallel import ROOT
from tests.postgres import find_binaries

PATIENCE = 300
"""Seconds; most campaigns need five. A machine that does other things as well takes its time."""
patient = pytest.mark.timeout(PATIENCE + 20)


def run_campaign(name: str, engine: str, rounds: int, *options: str) -> dict[str, Any]:
    """The figures of a campaign in a process of its own, with choices of its own; it prints their seed."""
    chosen = [name, "--engine", engine, "--rounds", str(rounds), *options, "--here"]
    command = [sys.executable, "-m", "tests.torture", *chosen]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def needs_postgresql(engine: str, *, own_server: bool = False) -> None:
    """Skip where the test is about PostgreSQL, or about a server that it may break, and there is none."""
    if engine != "postgresql":
        pytest.skip("about PostgreSQL")
    if own_server and find_binaries() is None:
        pytest.skip("no PostgreSQL server of our own can be started here: there are no binaries")
