"""Real concurrency for tests: threads and processes that start together on the test database.

Tests that use it need committed rows: `@pytest.mark.django_db(transaction=True)`.
"""

import importlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar

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


class Worker(Generic[T]):
    """A process on the test database that calls `function(*arguments)` when told to `go()`."""

    def __init__(self, function: Callable[..., T], *arguments: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.parallel"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd=ROOT,
            env=os.environ | _test_database_environment(),
        )
        self._send(pickle.dumps((function.__module__, function.__qualname__, arguments)))

    def wait_until_ready(self) -> None:
        """Return when Django is set up there and the function is imported."""
        assert self.process.stdout
        if self.process.stdout.readline() != b"ready\n":
            raise RuntimeError("A worker process died before it began; its error is in stderr.")

    def go(self) -> None:
        """Let it call the function."""
        self._send(b"go\n")

    def result(self, timeout: float = 100) -> T | Exception:
        """Wait for what the function returned or raised."""
        output, _ = self.process.communicate(timeout=timeout)
        if self.process.returncode:
            raise RuntimeError(f"A worker process ended with code {self.process.returncode}.")
        outcome: T | Exception = pickle.loads(output)
        return outcome

    def kill(self) -> None:
        """End it at once, as a crash would; an ended one is fine."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()

    def _send(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)


def _test_database_environment() -> dict[str, str]:
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


def _work() -> None:
    import django

    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what the function prints must not mix with the answers
    module, name, arguments = pickle.load(sys.stdin.buffer)
    django.setup()
    function = getattr(importlib.import_module(module), name)
    answers.write(b"ready\n")
    if not sys.stdin.buffer.readline():
        return
    try:
        outcome = function(*arguments)
    except Exception as error:
        outcome = error
    answers.write(_picklable(outcome))


if __name__ == "__main__":
    _work()
