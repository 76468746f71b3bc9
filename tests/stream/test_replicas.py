"""Readers on a standby: each event once and in order, by polling; one that is behind is waited for."""

import json
import subprocess
import sys

from tests.parallel import ROOT
from tests.torture.short_forms import PATIENCE, needs_postgresql, patient

pytestmark = patient


def test_readers_on_standbys(engine: str) -> None:
    """And when a standby was promoted that lacks what they have seen, they come to the end of their log."""
    needs_postgresql(engine, own_server=True)
    done = subprocess.run(
        [sys.executable, "-m", "tests.stream.replicas"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "on a standby": [1, 2, 3, 4],
        "on a standby, on a loop": [1, 2, 3, 4],
        "ahead": [5, 6],
        "a standby that is behind": [],
        "then": 7,
        "lost later": [8, 9],
        "a log that has lost what was seen": [],
    }
    assert "ReadOnlySqlTransaction" not in done.stderr, "a standby is no trouble"
