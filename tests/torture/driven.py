"""The database dies under workers that drive sessions with tools: their connections are cut, or the server
crashes and is started again. The workers stay; and one that is left alone brings every session to rest."""

import logging
import os
import signal
import tempfile
import time
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psycopg
from django.db import connections
from django.test import override_settings

from helix_sessions.runtime.loop.worker import Worker
from tests.postgres import Server
from tests.runner.schedules import SETTINGS, Clerk, Schedule
from tests.torture.lanes import Figures
from tests.torture.stops import Stop

WORKERS = 2
_TTL = 1.0


class Disturbed(Schedule):
    """A schedule in which it is the database that dies."""

    def __init__(self, seed: int, directory: Path, server: Server) -> None:
        super().__init__(seed, directory)
        self._server = server
        self.figures: Figures = Counter()

    def _shift(self) -> None:
        connections.close_all()
        workers = [self._fork(number) for number in range(WORKERS)]
        try:
            for _ in range(self._chance.randint(1, 2)):
                time.sleep(self._chance.uniform(0.05, 0.5))
                self._meddle(self._sessions[0])
                self._disturb()
                connections.close_all()
            time.sleep(self._chance.uniform(0, 0.5))
            gone = [worker for worker in workers if os.waitpid(worker, os.WNOHANG)[0]]
            assert not gone, "a worker did not survive the database"
        finally:
            for worker in workers:
                with suppress(ProcessLookupError, ChildProcessError):
                    os.kill(worker, signal.SIGKILL)
                    os.waitpid(worker, 0)

    def _fork(self, number: int) -> int:
        child = os.fork()
        if child:
            return child
        try:
            logging.disable()  # of a database that is not there it has much to say
            agents = {"clerk": Clerk(self._notes, seconds=0.02)}
            with override_settings(HELIX_SESSIONS={**SETTINGS, "AGENTS": agents}):
                Worker(using="default", concurrency=2, lease_ttl=_TTL, poll=0.02).work()
        finally:
            os._exit(0)

    def _disturb(self) -> None:
        if self._chance.random() < 0.4:
            self._server.restart("immediate")
            self.figures["crashes of the server"] += 1
            return
        others = (
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        with psycopg.connect(self._server.url, autocommit=True) as connection:
            for _ in range(self._chance.randint(1, 3)):
                for [pid] in connection.execute(others).fetchall():
                    connection.execute("SELECT pg_terminate_backend(%s)", [pid])
                    self.figures["cut connections"] += 1
                time.sleep(self._chance.uniform(0, 0.05))


def campaign(seed: int, stop: Stop, server: Server) -> Figures:
    """Run `stop.rounds` schedules, each with a seed of its own, which its failure names."""
    figures: Figures = Counter()
    rounds = 0
    with tempfile.TemporaryDirectory() as directory:
        while stop.goes_on(rounds):
            schedule = Disturbed(seed + rounds, Path(directory), server)
            try:
                told = schedule.run()
            except Exception as error:
                raise AssertionError(f"seed {schedule.seed}: {traceback.format_exc()}") from error
            figures.update({**schedule.figures, "calls": told["calls"], "tools": schedule.executed()})
            schedule.clear()
            rounds += 1
    figures["schedules"] = rounds
    return figures
