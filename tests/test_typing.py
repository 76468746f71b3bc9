"""The types of the package, as the type checkers of a project that uses it see them.

`tests/consumer` has what must pass, and under an `ignore` what must not: a checker reports one without need.
"""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.parallel import ROOT

CONSUMER = ROOT / "tests" / "consumer"


def check(*words: str) -> None:
    if find_spec(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_strict(tmp_path: Path) -> None:
    options = ("--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={tmp_path}")
    check("mypy", *options, str(CONSUMER))


def test_pyright() -> None:
    check("pyright", "-p", str(CONSUMER), "--pythonpath", sys.executable)
