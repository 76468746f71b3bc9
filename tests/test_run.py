"""The run of the tests itself: progress is shown while it lasts, and an interrupt ends all of it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.conftest import LATER_ON_POSTGRESQL, LATER_ON_SQLITE, ONCE, SLOW, TESTS
from tests.parallel import ROOT
from tests.rows import each

STUBBORN = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
pathlib.Path(sys.argv[1]).write_text(str(server.pid))
time.sleep(60)
"""
TALKING = """
import sys
print("....... [ 50%]")
print("...F... [100%]")
print("======= FAILURES =======")
print("why")
sys.exit(3)
"""


def run_of(lanes: str) -> "subprocess.Popen[str]":
    code = (
        "from tests.side_by_side import Lane, heed_signals, run_beside\n"
        f"heed_signals()\nprint(run_beside([{lanes}]), flush=True)"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def lane(name: str, code: str, *arguments: object) -> str:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return f"Lane({name!r}, {command!r}, {{}})"


def is_running(number: int) -> bool:
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(number)], capture_output=True, text=True).stdout
    return bool(shown) and not shown.startswith("Z")


def read_when_written(path: Path) -> int:
    deadline = time.monotonic() + 30
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(path.read_text())


@each("number", [signal.SIGINT, signal.SIGTERM])
@each("lanes", [1, 2])
def test_an_interrupt_ends_everything_within_two_seconds(
    tmp_path: Path, number: signal.Signals, lanes: int
) -> None:
    """Also what does not heed a request to end, and servers in sessions of their own."""
    places = [tmp_path / f"{number.name}-{lanes}-{lane}" for lane in range(lanes)]
    run = run_of(", ".join(lane(place.name, STUBBORN, place) for place in places))
    try:
        servers = [read_when_written(place) for place in places]
        began = time.monotonic()
        os.kill(run.pid, number)
        assert run.wait(10) != 0
        assert time.monotonic() - began < 2
        assert not [server for server in servers if is_running(server)]
    finally:
        run.kill()


def test_progress_is_shown_at_once_and_what_failed_in_one_piece() -> None:
    said, _ = run_of(f"{lane('one', TALKING)}, {lane('other', 'print(1)')}").communicate()
    lines = said.splitlines()
    assert {"one   | ....... [ 50%]", "one   | ...F... [100%]", "other | 1"} < set(lines)
    assert "\n=== one ===\n======= FAILURES =======\nwhy\n" in said
    assert lines[-1] == "{'one': 3, 'other': 0}"


@each("code", [0, 5])
def test_one_alone_is_shown_as_it_is(code: int) -> None:
    said, _ = run_of(lane("one", f"print('.'); raise SystemExit({code})")).communicate()
    assert said == f".\n{{'one': {code}}}\n"


def test_the_tables_of_what_runs_where_name_what_there_is() -> None:
    """And nothing that would then run nowhere but in `make test-all`."""
    tables = (ONCE, SLOW, LATER_ON_POSTGRESQL, LATER_ON_SQLITE)
    assert not [name for table in tables for name in table if not (TESTS / name).exists()]
    assert not set(LATER_ON_SQLITE) & {*ONCE, *LATER_ON_POSTGRESQL}
