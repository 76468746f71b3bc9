"""Real concurrency for tests: threads and processes that start together on the test database.

Tests that use it need committed rows: `@pytest.mark.django_db(transaction=True)`.
"""

import atexit
import importlib
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, Generic, TypeVar
from unittest.mock import patch

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent


def run_threads(count: int, function: Callable[[int], T]) -> list[T | Exception]:
    """Call `function(index)` in `count` threads at once; return each one's result or exception."""
    from django.db import connections

    barrier = threading.Barrier(count)

    def call(index: int) -> T | Exception:
        try:
            barrier.wait()
            return function(index)
        except Exception as error:
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(call, range(count)))


def run_processes(
    count: int, function: Callable[..., T], *arguments: Any, timeout: float = 100
) -> list[T | Exception]:
    """Call `function(index, *arguments)` in `count` processes at once; return results or exceptions.

    `function` is found by its name in its module; arguments and results are pickled.
    """
    workers: list[Worker[T]] = []
    try:
        workers.extend(Worker(function, index, *arguments) for index in range(count))
        for worker in workers:
            worker.wait_until_ready()
        for worker in workers:
            worker.go()
        return [worker.result(timeout) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()


def wait_until(condition: Callable[[], Any]) -> Any:
    """What it returns, once that is true."""
    deadline = time.monotonic() + 20
    while not (outcome := condition()):
        assert time.monotonic() < deadline, "It never came true."
        time.sleep(0.005)
    return outcome


class Worker(Generic[T]):
    """A process on the test database that calls `function(*arguments)` when told to `go()`."""

    def __init__(self, function: Callable[..., T], *arguments: Any) -> None:
        context = _processes()
        self._pipe, theirs = context.Pipe()
        place = function.__module__, function.__qualname__
        self.process = context.Process(target=_work, args=(theirs, *place, arguments), daemon=True)
        self.process.start()
        theirs.close()

    def wait_until_ready(self) -> None:
        """Return when Django is set up there and the function is imported."""
        try:
            self._pipe.recv()
        except EOFError:
            raise RuntimeError("A worker process died before it began; its error is in stderr.") from None

    def go(self) -> None:
        """Let it call the function."""
        self._pipe.send("go")

    def result(self, timeout: float = 100) -> T | Exception:
        """Wait for what the function returned or raised."""
        if not self._pipe.poll(timeout):
            raise TimeoutError(f"A worker process took longer than {timeout} seconds.")
        try:
            outcome: T | Exception = pickle.loads(self._pipe.recv_bytes())
        except EOFError:
            raise RuntimeError(f"A worker process ended with code {self.ended()}.") from None
        self.ended()
        return outcome

    def ended(self, timeout: float = 60) -> int | None:
        """Wait for its end; the code it ended with, negative for a signal."""
        self.process.join(timeout)
        return self.process.exitcode

    def kill(self) -> None:
        """End it at once, as a crash would; an ended one is fine."""
        self.process.kill()
        self.process.join()
        self._pipe.close()


@cache
def _processes() -> ForkServerContext:
    """Processes forked from one that has imported everything and touched nothing: each would take a second
    to do it anew. They join the test database that this process has by now."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.imported"])
    with patch.dict(os.environ, joined_database_environment()):
        forkserver.ensure_running()
    return context


def joined_database_environment() -> dict[str, str]:
    """What makes `tests.settings` choose the database that is tested."""
    from django.db import connection

    return {
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "HELIX_TEST_DATABASE_NAME": str(connection.settings_dict["NAME"]),
    }


def _picklable(outcome: Any) -> bytes:
    try:
        data = pickle.dumps(outcome)
        pickle.loads(data)
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(outcome).__name__}: {outcome}"))
    return data


def _work(pipe: Connection, module: str, name: str, arguments: tuple[Any, ...]) -> None:
    importlib.import_module("tests.imported")
    function = getattr(importlib.import_module(module), name)
    pipe.send("ready")
    try:
        pipe.recv()
    except EOFError:
        return
    try:
        outcome = function(*arguments)
    except Exception as error:
        outcome = error
    pipe.send_bytes(_picklable(outcome))
    atexit._run_exitfuncs()  # a forked process leaves without it
