"""`manage.py run_sessions`: the embedded worker."""

import os
import signal
import threading
from argparse import ArgumentParser
from contextlib import ExitStack
from typing import Any

from django.apps import apps
from django.core.management.base import CommandError

from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.management.jobs import StoreCommand
from helix_sessions.runtime.agents import configured_agents
from helix_sessions.runtime.companion import Companion, WebhookSender
from helix_sessions.runtime.loop.presence import Presence
from helix_sessions.runtime.loop.worker import LOOK_SECONDS, Worker
from helix_sessions.types import RunOutcome

TALLIES_SECONDS = 60.0
"""How often it is seen whether runs are to be counted."""


class Command(StoreCommand):
    help = "Runs the agents of HELIX_SESSIONS['AGENTS'] on the sessions that have something to do."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--concurrency", type=_positive, default=4, help="sessions at a time (4)")
        parser.add_argument("--database", help="the alias of the database")
        parser.add_argument("--lease", type=float, default=30.0, help="seconds a lease lasts (30)")
        parser.add_argument(
            "--poll", type=float, default=LOOK_SECONDS, help=f"seconds between two looks ({LOOK_SECONDS})"
        )
        parser.add_argument(
            "--grace",
            type=float,
            default=20.0,
            help="seconds activities may go on after a signal, before they are handed over (20)",
        )
        parser.add_argument("--once", action="store_true", help="end when there is nothing left to do")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            agents = configured_agents()
        except HelixSessionsError as error:
            raise CommandError(str(error)) from error
        if not agents:
            raise CommandError("HELIX_SESSIONS['AGENTS'] names no agents.")
        beside = self.companions(options)

        def driven(session_id: str, outcome: RunOutcome) -> None:
            beside[0].look()  # that may be what webhooks are for
            if options["verbosity"]:
                self._show(session_id, outcome)

        worker = Worker(
            using=options["database"],
            concurrency=options["concurrency"],
            lease_ttl=options["lease"],
            poll=options["poll"],
            on_outcome=driven,
            beside=beside,
        )
        self._stop_on_signals(worker, options["grace"])
        if options["verbosity"]:
            self.stdout.write(f"Running agents for {', '.join(sorted(agents))}. Stop with Ctrl-C.")
        with Presence(worker), ExitStack() as stack:
            for companion in beside:
                stack.enter_context(companion)
            tally = worker.work(until_idle=options["once"])
        if options["verbosity"]:
            self.stdout.write(f"Driven {tally.driven}, of which {tally.failed} failed.")

    def companions(self, options: dict[str, Any]) -> list[Companion]:
        """What goes on beside the worker: webhooks first, and what operators asked for in the admin, where
        there is one, alerts and bulk actions, and the counts that it shows."""
        using, once = options["database"], options["once"]
        found: list[Companion] = [WebhookSender(using, until_idle=once)]
        if apps.is_installed("django.contrib.admin"):
            from helix_sessions.admin.companions import AlertWatcher, BulkRunner, RunCounter

            found += [AlertWatcher(using), BulkRunner(using, until_idle=once)]
            if not once:
                found.append(RunCounter(using, poll=TALLIES_SECONDS))
        return found

    def _show(self, session_id: str, outcome: RunOutcome) -> None:
        error = f": {outcome.error}" if outcome.error else ""
        self.stdout.write(f"{session_id!r} {outcome.kind}{error:.200}")

    def _stop_on_signals(self, worker: Worker, grace: float) -> None:
        """First let activities end, then hand over at the next boundary, finally exit: leases expire."""
        if threading.current_thread() is not threading.main_thread():
            return
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.getsignal(number) for number in signals}

        def leave(number: int, frame: object) -> None:
            for each in signals:
                signal.signal(each, before[each])
            for delay, step in ((0.0, worker.stop), (grace, worker.hand_over), (2 * grace, _go)):
                timer = threading.Timer(delay, step)
                timer.daemon = True
                timer.start()

        for number in signals:
            signal.signal(number, leave)


def _go() -> None:
    os._exit(0)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("at least 1")
    return number
