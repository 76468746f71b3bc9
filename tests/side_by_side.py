"""Commands that run side by side: what each says is shown with its name before it, and all end together."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Thread

GRACE = 1.0
"""Seconds that an interrupted lane has to clean up before it is killed."""


@dataclass(frozen=True)
class Lane:
    """A command, with what it finds in its environment beside ours."""

    name: str
    command: Sequence[str]
    environment: dict[str, str]


def heed_signals() -> None:
    """Let SIGINT and SIGTERM end this process in an orderly way, also where it was started to ignore them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def run_beside(lanes: Sequence[Lane]) -> dict[str, int]:
    """Run them all and return their exit codes. Interrupted, end them, and whatever they started."""
    alone = len(lanes) == 1
    processes: dict[str, subprocess.Popen[bytes]] = {}
    readers: list[Thread] = []
    screen = Screen(max((len(lane.name) for lane in lanes), default=0))
    try:
        for lane in lanes:
            process = processes[lane.name] = subprocess.Popen(
                lane.command,
                env={**os.environ, **lane.environment},
                stdout=None if alone else subprocess.PIPE,
                stderr=None if alone else subprocess.STDOUT,
                process_group=None if alone else 0,  # so that Ctrl-C reaches us, and we end them
            )
            if not alone:
                readers.append(Thread(target=screen.show, args=(lane.name, process), daemon=True))
                readers[-1].start()
        codes = {name: process.wait() for name, process in processes.items()}
        for reader in readers:
            reader.join()
    except BaseException as error:
        told = alone and isinstance(error, KeyboardInterrupt)  # the terminal told it as well
        end_all(list(processes.values()), ask=not told)
        raise
    return codes


class Screen:
    """Where lanes show their progress as it comes, and the rest, from the first heading on, in one piece."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._lock = Lock()

    def show(self, name: str, process: "subprocess.Popen[bytes]") -> None:
        """Show what the process says until it has nothing more to say."""
        kept: list[bytes] = []
        assert process.stdout is not None
        for line in process.stdout:
            if kept or (line.startswith(b"=====") and b"session starts" not in line):
                kept.append(line)
            elif line.strip():
                self._write([name.ljust(self._width).encode() + b" | " + line])
        self._write([f"\n=== {name} ===\n".encode(), *kept] if kept else [])

    def _write(self, lines: list[bytes]) -> None:
        with self._lock:
            sys.stdout.buffer.write(b"".join(lines))
            sys.stdout.buffer.flush()


def end_all(processes: Sequence["subprocess.Popen[bytes]"], *, ask: bool) -> None:
    """Ask them to end, and after a grace kill what is left of them and of all that they started."""
    roots = [process.pid for process in processes]
    started = started_by(roots)
    for process in processes:
        if ask and process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + GRACE
    while time.monotonic() < deadline and any(process.poll() is None for process in processes):
        time.sleep(0.02)
    started |= started_by(roots)
    for process in processes:
        process.kill()
    for number in started:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(number, signal.SIGKILL)
    for process in processes:
        process.wait()


def started_by(processes: Sequence[int]) -> set[int]:
    """The processes that these started, that those started, and so on."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True).stdout
    children: dict[int, list[int]] = {}
    for line in listed.splitlines():
        number, parent = map(int, line.split())
        children.setdefault(parent, []).append(number)
    found: set[int] = set()
    waiting = list(processes)
    while waiting:
        new = set(children.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found
