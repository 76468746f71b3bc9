"""The demo in one command: a web server, and a worker that is started again when it dies."""

import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from project.chat import PARENT

_GRACE = 5.0
"""Seconds in which the children may end."""
_PAUSE = 0.5
"""Seconds before a worker that ended is started again."""


class Command(BaseCommand):
    """`manage.py run_demo`: until Ctrl-C. SIGUSR1 kills the worker, so that its recovery can be watched."""

    help = "Run the web server and a worker of the demo, on loopback."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument(
            "--lease", type=float, default=4.0, help="seconds a dead worker is waited for (4)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run both, and end both."""
        demo = _Demo(options["port"], options["lease"])
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: demo.stop())
        if hasattr(signal, "SIGUSR1"):
            signal.signal(signal.SIGUSR1, lambda *_: demo.kill_worker())
        status = demo.run()
        if status:
            sys.exit(status)


class _Demo:
    """The two children."""

    def __init__(self, port: int, lease: float) -> None:
        python = [sys.executable, "-m"]
        self._web_command = [
            *(*python, "uvicorn", "project.asgi:application", "--host", "127.0.0.1", "--port", str(port)),
            *("--lifespan", "off", "--timeout-graceful-shutdown", "2", "--log-level", "warning"),
        ]
        self._worker_command = [
            *(sys.executable, str(settings.BASE_DIR / "manage.py"), "run_sessions", "--verbosity", "0"),
            *("--concurrency", "4", "--lease", str(lease), "--poll", "0.2", "--grace", "2"),
        ]
        self._worker: subprocess.Popen[bytes] | None = None
        self._is_stopping = False

    def run(self) -> int:
        """Until an interrupt stops it, or the web server ends; the status of the web server."""
        web = self._start(self._web_command)
        self._worker = self._start(self._worker_command)
        try:
            while not self._is_stopping and web.poll() is None:
                if self._worker.poll() is not None:
                    time.sleep(_PAUSE)
                    self._worker = self._start(self._worker_command)
                time.sleep(0.1)
        finally:
            status = web.poll()
            _end(web, self._worker)
        return 0 if self._is_stopping else status or 1

    def stop(self) -> None:
        """Soon."""
        self._is_stopping = True

    def kill_worker(self) -> None:
        """At once, as a crash would: nothing is cleaned up."""
        if self._worker is not None:
            self._worker.kill()

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        environment = os.environ | {PARENT: str(os.getpid())}
        return subprocess.Popen(command, env=environment, cwd=settings.BASE_DIR)  # noqa: S603 - our own


def _end(*children: subprocess.Popen[bytes]) -> None:
    for child in children:
        if child.poll() is None:
            child.terminate()
    deadline = time.monotonic() + _GRACE
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
