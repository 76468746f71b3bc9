"""A real HTTP server on the test database, that can be killed and started again on its port."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.parallel import ROOT, joined_database_environment


class Server:
    """uvicorn in a process of its own."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when it answers."""
        command = [sys.executable, "-m", "uvicorn", "tests.asgi:application", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, "--lifespan", "off", "--log-level", "warning", "--timeout-graceful-shutdown", "1"],
            cwd=ROOT,
            env=os.environ | joined_database_environment(),
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
        """End it at once, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def http_server() -> Iterator[Server]:
    """A server for the length of the block."""
    server = Server()
    try:
        server.start()
        yield server
    finally:
        server.kill()
