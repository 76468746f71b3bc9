"""One process that serves streams, and readers that hold them open."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

SETTINGS = "bench.streams.settings"
_START = 60.0


@dataclass
class Server:
    """uvicorn with one worker, and a user who is logged in."""

    port: int
    process: "subprocess.Popen[bytes]"
    cookie: str

    def memory(self) -> float:
        """Megabytes that are resident."""
        found = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True, text=True, check=True
        )
        return int(found.stdout) / 1024


@contextmanager
def server() -> Iterator[Server]:
    """A server on the default database."""
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": SETTINGS}
    manage = [sys.executable, "-m", "django"]
    subprocess.run([*manage, "migrate", "--verbosity", "0"], env=environment, check=True)
    made = subprocess.run([*manage, "shell", "-c", _LOG_IN], env=environment, check=True, capture_output=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "bench.streams.asgi:application", "--port", str(port)]
    process = subprocess.Popen([*command, "--lifespan", "off", "--log-level", "error"], env=environment)
    try:
        _wait_for(port)
        yield Server(port, process, made.stdout.decode().split()[-1])
    finally:
        process.kill()
        process.wait()


_LOG_IN = """
from django.contrib.auth import get_user_model
from django.test import Client
user, _ = get_user_model().objects.get_or_create(username="bench", is_superuser=True)
client = Client()
client.force_login(user)
print(client.cookies["sessionid"].value)
"""


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + _START
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@dataclass
class Reader:
    """A stream that is read as a browser does, noting when each number arrived."""

    session_id: str
    arrived: dict[int, float] = field(default_factory=dict)
    is_open: bool = False

    async def read(self, server: Server) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(
            f"GET /api/sessions/{self.session_id}/events/stream/ HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Accept: text/event-stream\r\nCookie: sessionid={server.cookie}\r\n\r\n".encode()
        )
        try:
            while line := await reader.readline():
                if line.startswith(b"id: "):
                    self.arrived.setdefault(int(line[4:]), time.perf_counter())
                elif line.startswith(b"retry"):
                    self.is_open = True
        finally:
            writer.close()


async def open_all(server: Server, readers: list[Reader], at_once: int = 20) -> list["asyncio.Task[None]"]:
    """Open the streams, a few at a time, and return when all are."""
    tasks = []
    for start in range(0, len(readers), at_once):
        some = readers[start : start + at_once]
        tasks += [asyncio.create_task(reader.read(server)) for reader in some]
        deadline = time.monotonic() + _START
        while not all(reader.is_open for reader in some):
            if time.monotonic() > deadline:
                raise TimeoutError("Streams do not open.")
            await asyncio.sleep(0.01)
    return tasks
