"""A real HTTP server on the test database, that can be killed and started again on its port."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.parallel import ROOT, joined_database_environment

UVICORN = (
    *("uvicorn", "tests.asgi:application", "--port", "{port}", "--lifespan", "off"),
    *("--log-level", "warning", "--timeout-graceful-shutdown", "1"),
)


class Server:
    """A server in a process of its own: `python -m` and these words."""

    def __init__(self, *words: str, **environment: str) -> None:
        self._words = words or UVICORN
        self._environment = environment
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when it answers."""
        words = [word.format(port=self.port) for word in self._words]
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=ROOT,
            env=os.environ | joined_database_environment() | self._environment,
            start_new_session=True,
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, "The server does not answer."
                assert self.process.poll() is None, "The server ended."
                time.sleep(0.05)

    def kill(self) -> None:
        """End it and its workers at once, as a crash would."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@contextmanager
def http_server(*words: str, **environment: str) -> Iterator[Server]:
    """A server for the length of the block; uvicorn, unless others are named."""
    server = Server(*words, **environment)
    try:
        server.start()
        yield server
    finally:
        server.kill()
