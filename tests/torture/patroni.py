"""Three PostgreSQL nodes under Patroni, with etcd: the leader is killed, or frozen and thawed, under load.

A frozen leader is the worse of the two: when it thaws, it still believes that it leads.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.postgres import _children_of, _free_port, _unprivileged_identity, find_binaries
from tests.torture.databases import use
from tests.torture.lanes import Figures, Lane, fork_context, wait_for_writes
from tests.torture.stops import Stop

NODES = 3
TTL = 20
"""Seconds until a leader that says nothing is one no longer; Patroni takes no fewer."""
LOOP_WAIT = 2
"""Seconds until a Patroni looks again."""
PASSWORD = "torture"
_LEADING = ("primary", "master")

_CONFIGURATION: dict[str, Any] = {
    "scope": "torture",
    "bootstrap": {
        "dcs": {
            "ttl": TTL,
            "loop_wait": LOOP_WAIT,
            "retry_timeout": 3,
            "synchronous_mode": True,
            "postgresql": {
                "use_pg_rewind": True,
                "parameters": {"max_connections": 100, "wal_log_hints": "on"},
            },
        },
        "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"],
    },
}


def campaign(seed: int, stop: Stop) -> Figures:
    """Lose the leader `stop.rounds` times, by a kill and by a freeze in turn."""
    with cluster() as nodes:
        leader = _leader(nodes)
        use(f"postgresql://postgres:{PASSWORD}@127.0.0.1:{leader.port}/postgres")
        return _under_load(nodes, random.Random(seed), stop)


def _under_load(nodes: "list[Node]", choice: random.Random, stop: Stop) -> Figures:
    from django.db import connections

    from helix_sessions.store import SessionStore
    from tests.torture.expected import assert_healthy
    from tests.torture.failover import append_until, go_to, write_until

    go_to(*(node.port for node in nodes))
    over, written = fork_context.Event(), fork_context.Value("q", 0)
    lanes = [Lane(append_until, over, written), Lane(write_until, over, choice.random())]
    rounds, seconds = 0, []
    try:
        while stop.goes_on(rounds):
            wait_for_writes(written, written.value + 20)
            time.sleep(choice.random())
            leader = _leader(nodes)
            lost_at, before = time.monotonic(), written.value
            others = [node for node in nodes if node is not leader]
            if rounds % 2 == 0:
                leader.kill()
                _leader(others)
                wait_for_writes(written, before + len(lanes) + 1)  # not one that was under way
                seconds.append(time.monotonic() - lost_at)
                leader.start()
            else:
                leader.freeze()
                _leader(others)
                leader.thaw()  # and with it whoever waits for its answer
                wait_for_writes(written, before + len(lanes) + 1)
            _wait_until_whole(nodes)
            rounds += 1
        wait_for_writes(written, written.value + 20)
        over.set()
        found: Figures = sum((lane.figures() for lane in lanes), Counter())
    finally:
        for lane in lanes:
            lane.end()
    connections.close_all()
    assert_healthy(SessionStore())
    found["leaders lost"] = rounds
    found["milliseconds until the next write, longest"] = round(max(seconds, default=0) * 1000)
    found.setdefault("acknowledged writes lost", 0)
    return found


class Node:
    """PostgreSQL and the Patroni that leads it."""

    def __init__(self, number: int, place: Path, etcd: int) -> None:
        self.port, self.api = _free_port(), _free_port()
        self._place = place
        self._identity = _unprivileged_identity()
        binaries = find_binaries()
        login = {"username": "postgres", "password": PASSWORD}
        configuration = _CONFIGURATION | {
            "name": f"node{number}",
            "restapi": {"listen": f"127.0.0.1:{self.api}", "connect_address": f"127.0.0.1:{self.api}"},
            "etcd3": {"host": f"127.0.0.1:{etcd}"},
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(place / "data"),
                "bin_dir": str(binaries),
                "pgpass": str(place / "pgpass"),
                "authentication": {
                    "superuser": login,
                    "replication": {"username": "replicator", "password": PASSWORD},
                    "rewind": {"username": "rewinder", "password": PASSWORD},
                },
                "parameters": {"unix_socket_directories": str(place)},
                "pg_hba": [
                    "host replication replicator 127.0.0.1/32 scram-sha-256",
                    "host all all 127.0.0.1/32 scram-sha-256",
                    "local all all scram-sha-256",
                ],
            },
        }
        (place / "patroni.json").write_text(json.dumps(configuration))
        if self._identity:
            for path in (place, place / "patroni.json"):
                shutil.chown(path, self._identity["user"], self._identity["group"])
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._place / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [shutil.which("patroni") or "patroni", self._place / "patroni.json"],
                stdout=log,
                stderr=log,
                cwd=self._place,
                start_new_session=True,
                **self._identity,
            )

    def role(self) -> dict[str, Any]:
        """What its Patroni says; nothing when it does not answer."""
        try:
            with urlopen(f"http://127.0.0.1:{self.api}/patroni", timeout=1) as answer:
                told: dict[str, Any] = json.load(answer)
                return told
        except OSError:
            return {}

    def last_words(self) -> str:
        """The end of its log."""
        return (self._place / "log").read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        """The machine is gone."""
        for number in self._processes():
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def freeze(self) -> None:
        for number in self._processes():
            os.kill(number, signal.SIGSTOP)

    def thaw(self) -> None:
        for number in self._processes():
            os.kill(number, signal.SIGCONT)

    def _processes(self) -> list[int]:
        """Patroni, the server it started, which is no child of it any more, and its processes."""
        found = [] if self._process is None else [self._process.pid, *_children_of(self._process.pid)]
        pid_file = self._place / "data" / "postmaster.pid"
        if pid_file.exists():
            server = int(pid_file.read_text().split()[0])
            found += [server, *_children_of(server)]
        return found


@contextmanager
def cluster() -> Iterator[list[Node]]:
    """Three nodes, one of which leads, and one of the others is its synchronous standby."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="helix_sessions_patroni_"))
        Path(directory).chmod(0o711)
        etcd = stack.enter_context(_etcd(Path(directory) / "etcd"))
        nodes = []
        for number in range(NODES):
            place = Path(directory) / f"node{number}"
            place.mkdir(mode=0o700)
            nodes.append(Node(number, place, etcd))
        try:
            for node in nodes:
                node.start()
            _wait_until_whole(nodes)
            yield nodes
        finally:
            for node in nodes:
                node.kill()


@contextmanager
def _etcd(place: Path) -> Iterator[int]:
    client, peer = _free_port(), _free_port()
    at, among = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    process = subprocess.Popen(
        [
            shutil.which("etcd") or "etcd",
            *("--data-dir", place, "--listen-client-urls", at, "--advertise-client-urls", at),
            *("--listen-peer-urls", among, "--initial-advertise-peer-urls", among),
            *("--initial-cluster", f"default={among}", "--log-level", "error"),
        ],
        start_new_session=True,
    )
    try:
        yield client
    finally:
        process.kill()
        process.wait()


def _leader(nodes: list[Node]) -> Node:
    """Wait until one of these leads."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for node in nodes:
            told = node.role()
            if told.get("role") in _LEADING and told.get("state") == "running":
                return node
        time.sleep(0.1)
    raise AssertionError("\n\n".join(["Nobody leads.", *(node.last_words() for node in nodes)]))


def _wait_until_whole(nodes: list[Node]) -> None:
    """One leads, the others follow, one of them synchronously: by the leader's account, and for so long that
    all of them know it."""
    deadline = time.monotonic() + 180
    whole_since = None
    while time.monotonic() < deadline:
        if not _is_whole([node.role() for node in nodes]):
            whole_since = None
        elif whole_since is None:
            whole_since = time.monotonic()
        elif time.monotonic() - whole_since > 3 * LOOP_WAIT:
            return
        time.sleep(0.2)
    raise AssertionError(f"The cluster does not come together: {[node.role() for node in nodes]}")


def _is_whole(told: list[dict[str, Any]]) -> bool:
    following = [
        sorted(str(it.get("sync_state")) for it in node.get("replication", ()))
        for node in told
        if node.get("role") in _LEADING and node.get("state") == "running"
    ]
    return following == [["async", "sync"]] and any(node.get("sync_standby") for node in told)
