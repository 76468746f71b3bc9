"""Processes forked from one that is set up: they start in milliseconds, and nothing has to be pickled."""

import multiprocessing
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any, cast

Figures = Counter[str]
fork_context = multiprocessing.get_context("fork")


class Lane:
    """A process that runs a function and sends back the figures it returns."""

    def __init__(self, function: Callable[..., Figures], *arguments: Any) -> None:
        self.answers, theirs = fork_context.Pipe(duplex=False)
        self._process = fork_context.Process(target=_run, args=(function, arguments, theirs), daemon=False)
        self._process.start()
        theirs.close()

    def figures(self) -> Figures:
        """Wait for them; what went wrong there goes wrong here."""
        try:
            answer: Figures | str = self.answers.recv()
        except EOFError:
            answer = "A lane ended without an answer."
        self._process.join()
        if isinstance(answer, str):
            raise AssertionError(answer)
        return answer

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def in_lanes(count: int, function: Callable[..., Figures], *arguments: Any) -> Figures:
    """The sum of the figures of `function(lane, *arguments)` in so many processes. When one goes wrong, the
    others are ended."""
    lanes = [Lane(function, number, *arguments) for number in range(count)]
    figures: Figures = Counter()
    left = {lane.answers: lane for lane in lanes}
    try:
        while left:
            for ready in wait(left):
                figures += left.pop(cast(Connection, ready)).figures()
        return figures
    finally:
        for lane in lanes:
            lane.end()


def wait_for_writes(written: Any, count: int) -> None:
    """Until so many were acknowledged."""
    deadline = time.monotonic() + 120
    while written.value < count:
        assert time.monotonic() < deadline, "Nothing is written any more."
        time.sleep(0.002)


def _run(function: Callable[..., Figures], arguments: tuple[Any, ...], answers: Connection) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        answers.send(function(*arguments))
    except BaseException:
        answers.send(traceback.format_exc())
    finally:
        answers.close()
        os._exit(0)
