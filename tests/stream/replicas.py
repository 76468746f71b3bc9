"""A program: readers on a standby, a standby that is behind, and one that is promoted without what was last.

`python -m tests.stream.replicas` prints what the readers saw, as JSON.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg

from tests.postgres import Server, private_server
from tests.torture.databases import use


def main() -> None:
    """With servers of its own."""
    with private_server() as primary, tempfile.TemporaryDirectory(prefix="helix_sessions_replica_") as place:
        Path(place).chmod(0o711)  # the server's user passes through
        directory = Path(place) / "standby"
        directory.mkdir()
        primary.stop()
        standby = primary.standby_in(directory, primary.port)
        primary.start()
        standby.start()
        try:
            print(json.dumps(seen(primary, standby)), flush=True)
        finally:
            standby.stop("immediate")


def seen(primary: Server, standby: Server) -> dict[str, Any]:
    """What readers get."""
    use(primary.url)
    from django.db import connections

    from helix_sessions.store import AsyncSessionStore, SessionStore

    connections.settings["reads"] = {**connections.settings["default"], "PORT": standby.port}
    store, reads = SessionStore(), SessionStore(using="reads")
    found: dict[str, Any] = {}

    def emit(count: int) -> None:
        for _ in range(count):
            store.emit_event("s", "ticked")

    def read_from(server: Server) -> None:
        connections["reads"].close()
        connections["reads"].settings_dict["PORT"] = server.port

    store.create_session("s", agent_type="a")
    _until(lambda: reads.session_exists("s"))

    async def follow(count: int) -> list[int]:
        async with AsyncSessionStore(using="reads").subscribe("s", after=0) as tail:
            return [(await anext(tail)).seq for _ in range(count)]

    with reads.subscribe("s", after=0) as tail:
        emit(3)
        found["on a standby"] = [event.seq for event in islice(tail, 4)]
        found["on a standby, on a loop"] = asyncio.run(follow(4))

        _ask(standby, "SELECT pg_wal_replay_pause()")
        emit(2)
        read_from(primary)
        found["ahead"] = [event.seq for event in islice(tail, 2)]
        read_from(standby)
        found["a standby that is behind"] = tail.some(0.3)
        _ask(standby, "SELECT pg_wal_replay_resume()")
        emit(1)
        found["then"] = next(tail).seq

        _ask(standby, "ALTER SYSTEM SET primary_conninfo = ''")
        _ask(standby, "SELECT pg_reload_conf()")
        _until(lambda: _ask(primary, "SELECT count(*) FROM pg_stat_replication") == 0)
        emit(2)
        read_from(primary)
        found["lost later"] = [event.seq for event in islice(tail, 2)]
        primary.kill()
        standby.promote()
        read_from(standby)
        found["a log that has lost what was seen"] = list(tail)
    connections.close_all()
    return found


def _ask(server: Server, sql: str) -> Any:
    with psycopg.connect(server.url, autocommit=True) as connection:
        row = connection.execute(sql)
        return row.fetchall()[0][0] if row.description else None


def _until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


if __name__ == "__main__":
    main()
