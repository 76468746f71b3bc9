"""The API on uvicorn: requests per second and p99, as ratios to an empty DRF view on the same server.

The empty view knows its user by the same token, so what is left is what our calls cost. The requests come
from threads with a connection each; every operation has its turn in every round.
"""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from bench import payload
from bench.databases import Arena
from bench.http_server import PAGE, SESSION
from bench.measure import p99
from bench.results import Results
from bench.scale import Scale

EMPTY = "empty view"
THREADS = 4
SECONDS = 0.5
"""Short turns, so that what else the machine does hits every operation alike."""

SESSIONS = 10_000
DATABASE = "http"


class Client:
    """One connection of one thread, with a session of its own to write to."""

    def __init__(self, port: int, token: str, number: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.session = f"/api/sessions/{SESSION.format(number)}/"
        self.version = ""
        self.commits = cycle([self._step(step) for step in islice(payload.steps(), 16)])
        self.appends = cycle([json.dumps({"messages": [payload.message("user")] * 2}) for _ in range(16)])

    @staticmethod
    def _step(step: payload.Step) -> str:
        return json.dumps({"state": {"custom_state": step.state}, "append_messages": step.messages})

    def send(self, method: str, path: str, body: str | None = None, **headers: str) -> Any:
        self.connection.request(method, path, body, {**self.headers, **headers})
        response = self.connection.getresponse()
        content = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {content[:200]!r}")
        self.version = response.headers.get("ETag", self.version)
        return content

    def empty(self) -> None:
        self.send("GET", "/empty/")

    def page(self) -> None:
        self.send("GET", f"/api/sessions/{PAGE}/messages/?limit=50&newest_first=true")

    def detail(self) -> None:
        self.send("GET", f"/api/sessions/{PAGE}/")

    def list(self) -> None:
        self.send("GET", "/api/sessions/?limit=50")

    def know_version(self) -> None:
        self.send("GET", f"{self.session}status/")

    def commit(self) -> None:
        self.send("POST", f"{self.session}commit/", next(self.commits), **{"If-Match": self.version})

    def append(self) -> None:
        self.send("POST", f"{self.session}messages/", next(self.appends))


OPERATIONS: dict[str, Callable[[Client], None]] = {
    EMPTY: Client.empty,
    "page of 50 messages": Client.page,
    "session": Client.detail,
    "list of 50": Client.list,
    "commit": Client.commit,
    "append 2 messages": Client.append,
}


def measure_http(arena: Arena, scale: Scale, results: Results) -> None:
    """Requests per second of each operation, and how long the slowest hundredth takes."""
    arena.place.execute(f"CREATE DATABASE {DATABASE}")
    with _server(arena.place.url(DATABASE)) as server:
        clients = [Client(server.port, server.token, number) for number in range(THREADS)]
        arena.place.settle(DATABASE)
        rates: dict[str, list[float]] = {name: [] for name in OPERATIONS}
        slowest: dict[str, list[float]] = {name: [] for name in OPERATIONS}
        work: dict[str, list[float]] = {name: [] for name in OPERATIONS}
        for number in range(scale.rounds + 1):
            for name, operation in OPERATIONS.items():
                before = server.cpu()
                taken, seconds = _load(clients, operation, SECONDS)
                if number:  # the first round warms up
                    rates[name].append(len(taken) / seconds)
                    slowest[name].append(p99(taken) * 1000)
                    work[name].append((server.cpu() - before) / len(taken) * 1000)
    for section, unit, numbers in (
        ("HTTP", "requests/s", rates),
        ("HTTP, p99", "ms", slowest),
        ("HTTP, CPU of uvicorn", "ms", work),
    ):
        for name in OPERATIONS:
            if name != EMPTY:
                pair = {EMPTY: numbers[EMPTY], "ours": numbers[name]}
                results.add_numbers(section, name, unit, pair, EMPTY)


@dataclass(frozen=True)
class Server:
    """uvicorn, with the API and the empty view."""

    process: "subprocess.Popen[bytes]"
    port: int
    token: str

    def cpu(self) -> float:
        """Seconds of processor time it has used, ended threads included: steady on a busy machine."""
        columns = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(columns[11]) + int(columns[12])) / os.sysconf("SC_CLK_TCK")


def _load(
    clients: list[Client], operation: Callable[[Client], None], seconds: float
) -> tuple[list[float], float]:
    """How long each request took, and all of them together."""
    end = time.perf_counter() + seconds

    def run(client: Client) -> list[float]:
        client.know_version()
        taken = []
        while (start := time.perf_counter()) < end or len(taken) < 2:
            operation(client)
            taken.append(time.perf_counter() - start)
        return taken

    start = time.perf_counter()
    with ThreadPoolExecutor(len(clients)) as pool:
        taken = [value for values in pool.map(run, clients) for value in values]
    return taken, time.perf_counter() - start


@contextmanager
def _server(database: str) -> Iterator[Server]:
    environment = {
        **os.environ,
        "HELIX_BENCH_HTTP": database,
        "DJANGO_SETTINGS_MODULE": "bench.http_settings",
    }
    prepare = [sys.executable, "-m", "bench.http_server", str(SESSIONS), str(THREADS)]
    made = subprocess.run(prepare, env=environment, check=True, capture_output=True, text=True)
    token: str = json.loads(made.stdout)["token"]
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "django.core.asgi:get_asgi_application", "--factory"]
    command += ["--port", str(port), "--lifespan", "off", "--log-level", "warning", "--no-access-log"]
    server = subprocess.Popen(command, env=environment)
    try:
        _wait_for(port, server)
        yield Server(server, port, token)
    finally:
        server.terminate()
        server.wait()


def _wait_for(port: int, server: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        if server.poll() is not None:
            raise RuntimeError("The server of the HTTP benchmark did not start.")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("The server of the HTTP benchmark does not answer.")
