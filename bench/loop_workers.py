"""The workers of the section `loop`, each a process: `python -m bench.loop_workers KIND NOTES ADDRESS`.

A worker says `ready`, waits for the file `NOTES.go`, and then notes the name and the time of each piece of
work when it comes to it, by the clock that all processes of a machine share.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOOP_AGENT = "loop"


class Notes:
    """A file to which many processes append lines."""

    def __init__(self, path: str) -> None:
        self._go = Path(f"{path}.go")
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def add(self, name: str) -> None:
        os.write(self._file, f"{name} {time.monotonic()}\n".encode())

    def wait(self) -> None:
        self.add("ready")
        while not self._go.exists():
            time.sleep(0.001)


def ours(notes: Notes, address: str, count: int) -> None:
    import django
    from django.test import override_settings

    django.setup()
    from django.core.management import call_command

    from helix_sessions.management.commands import run_sessions
    from helix_sessions.runtime import TurnContext, TurnOutcome
    from helix_sessions.runtime.loop.worker import Worker

    class Agent:
        def run_turn(self, turn: TurnContext) -> TurnOutcome:
            notes.add(turn.session_id)
            return TurnOutcome("ok")

    class Told(Worker):
        def poke(self, first_seq: int | None) -> None:
            notes.add("told")
            super().poke(first_seq)

    run_sessions.Worker = Told  # type: ignore[attr-defined,misc]
    with override_settings(HELIX_SESSIONS={"AGENTS": {LOOP_AGENT: Agent()}}):
        notes.wait()
        call_command("run_sessions", concurrency=1, verbosity=0)


def procrastinate(notes: Notes, address: str, count: int) -> None:
    import asyncio

    app = procrastinate_app(address, notes.add)

    async def work() -> None:
        async with app.open_async():
            notes.wait()
            await app.run_worker_async(concurrency=1)

    asyncio.run(work())


def procrastinate_app(address: str, run: Callable[[str], None], *, sync: bool = False) -> Any:
    from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

    connector = (SyncPsycopgConnector if sync else PsycopgConnector)(conninfo=address)
    app = App(connector=connector)

    @app.task(name="note")
    async def note(name: str) -> None:
        run(name)

    return app


def celery(notes: Notes, address: str, count: int) -> None:
    app = celery_app(address, notes.add)
    notes.wait()
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"]
    app.worker_main(["worker", "-P", "solo", *quiet])


def celery_app(address: str, run: Callable[[str], None]) -> Any:
    """Celery over its SQLAlchemy transport, which keeps messages in the same server and polls it."""
    from celery import Celery

    app = Celery("bench", broker=address.replace("postgresql://", "sqla+postgresql+psycopg2://"))

    @app.task(name="note")
    def note(name: str) -> None:
        run(name)

    return app


def dbos(notes: Notes, address: str, count: int) -> None:
    """Workflows of one step, called one after the other: no queue is in the way."""
    from dbos import DBOS

    DBOS(config={"name": "bench", "system_database_url": address, "log_level": "ERROR"})

    @DBOS.step()
    def step(name: str) -> str:
        notes.add(name)
        return "ok"

    @DBOS.workflow()
    def flow(name: str) -> str:
        return step(name)

    DBOS.launch()
    notes.wait()
    for number in range(count):
        flow(f"{os.getpid()}-{number}")


KINDS = {"ours": ours, "Procrastinate": procrastinate, "Celery": celery, "DBOS": dbos}

if __name__ == "__main__":
    kind, path, where, *rest = sys.argv[1:]
    KINDS[kind](Notes(path), where, int(rest[0]) if rest else 0)
