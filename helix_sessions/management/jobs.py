"""The base of commands over many sessions: options, progress, Ctrl-C and summaries."""

import json
import signal
import sys
import threading
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from time import monotonic
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, DjangoHelpFormatter, OutputWrapper
from django.db import DatabaseError, connections

from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.models.databases import sessions_database
from helix_sessions.store.engine.connection import outage

_BAR = 30
_SECONDS_BETWEEN_DRAWINGS = 0.1
_SECONDS_BETWEEN_LINES = 10


class StoreCommand(BaseCommand):
    """A command on a database with sessions. Errors of the store become one line instead of a traceback."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except HelixSessionsError as error:
            raise CommandError(f"{error} ({error.code})") from error
        except DatabaseError as error:
            translated = outage(connections[sessions_database(options.get("database"))], error)
            if translated is None:
                raise
            raise CommandError(f"{translated} ({translated.code})") from error


class JobCommand(StoreCommand):
    """A command over many sessions."""

    examples = ""
    """The epilog of `--help`."""

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> Any:
        class Formatter(DjangoHelpFormatter):
            """Keeps the lines of the examples."""

            def _fill_text(self, text: str, width: int, indent: str) -> str:
                if "\n" in text:
                    return text
                return super()._fill_text(text, width, indent)

        options.setdefault("formatter_class", Formatter)
        return super().create_parser(prog_name, subcommand, epilog=self.examples.strip("\n"), **options)

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--database", help="The alias of the database (default: the one that sessions are written to)."
        )
        parser.add_argument("--json", action="store_true", help="Print the outcome as JSON, for programs.")

    def tell(self, summary: Any, *, as_json: bool, dry_run: bool = False) -> None:
        """Print a summary: a line for each count, or one JSON object."""
        values = asdict(summary)
        if as_json:
            self.stdout.write(json.dumps({**values, "dry_run": dry_run} if dry_run else values))
            return
        if dry_run:
            self.stdout.write("Dry run: nothing was changed.")
        for name, value in values.items():
            if value is None:
                continue
            if not isinstance(value, str):
                value = f"{value:,}" if isinstance(value, int) else ", ".join(value) or "none"
            self.stdout.write(f"{name.replace('_', ' '):>20}: {value}")

    def confirm(self, question: str, options: dict[str, Any]) -> None:
        """Continue only if the operator types yes, or with `--no-input`."""
        if not options["interactive"]:
            return
        if not sys.stdin.isatty():
            raise CommandError("There is no terminal to ask on. Use --no-input, or look with --dry-run.")
        if input(f"{question} Type 'yes' to continue: ") != "yes":
            raise CommandError("Nothing was changed.")


def add_no_input(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--no-input",
        "--noinput",
        action="store_false",
        dest="interactive",
        help="Do not ask before deleting.",
    )


def add_fail_on_error(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--fail-on-error",
        action="store_true",
        help="Exit with code 1 if any session had an error.",
    )


def add_owner(parser: ArgumentParser) -> None:
    owner = parser.add_mutually_exclusive_group()
    owner.add_argument("--owner", metavar="USERNAME", help="Sessions owned by this account.")
    owner.add_argument(
        "--owner-id", metavar="KEY", help="The same by primary key; for accounts that are deleted already."
    )
    parser.add_argument(
        "--user-id", metavar="ID", help="Sessions with this user_id, your application's id of a person."
    )


def owner_of(options: dict[str, Any]) -> Any:
    """The key of the owner that was named, or `None`."""
    if options["owner"] is None:
        return options["owner_id"]
    users = get_user_model()._default_manager
    user = users.filter(**{get_user_model().USERNAME_FIELD: options["owner"]}).first()
    if user is None:
        raise CommandError(f"There is no account {options['owner']!r}. Deleted ones are named by --owner-id.")
    return user.pk


def check_errors(summary: Any, options: dict[str, Any]) -> None:
    if options["fail_on_error"] and summary.errors:
        raise CommandError(f"{summary.errors} failed; the log of 'helix_sessions' says which and why.")


def positive(text: str) -> int:
    """A whole number above zero, as an argument."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return value


def not_negative(text: str) -> float:
    """A number of days or minutes, as an argument."""
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < 1_000_000:
        raise ArgumentTypeError(f"{text!r} is not a number from zero")
    return value


class Stop:
    """`should_stop` of a job: `True` once Ctrl-C or SIGTERM came."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked


@contextmanager
def stoppable(stderr: OutputWrapper) -> Iterator[Stop]:
    """Within this, the first Ctrl-C or SIGTERM only asks to stop; a second one interrupts as usual."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: Any) -> None:
        stop.asked = True
        for each, handler in before.items():
            signal.signal(each, handler)
        stderr.write("Stopping after the current session.", style_func=str)

    for number in before:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Progress:
    """The progress of a job: a bar on a terminal, a line every few seconds otherwise."""

    def __init__(self, stderr: OutputWrapper, what: str, total: int | None = None) -> None:
        self.stderr = stderr
        self.what = what
        self.total = total
        self.live = stderr.isatty()
        self.drawn = monotonic()
        self.started = False

    def __call__(self, done: int) -> None:
        wait = _SECONDS_BETWEEN_DRAWINGS if self.live else _SECONDS_BETWEEN_LINES
        if monotonic() - self.drawn >= wait:
            self._draw(done)

    def _draw(self, done: int) -> None:
        self.drawn = monotonic()
        count = f"{done:,}" if self.total is None else f"{done:,} of {self.total:,}"
        if not self.live:
            self.stderr.write(f"{count} {self.what}", style_func=str)
            return
        self.started = True
        share = min(1.0, done / self.total) if self.total else 0.0
        bar = "" if self.total is None else f"[{'#' * round(share * _BAR):<{_BAR}}] "
        self.stderr.write(f"\r\033[K{bar}{count} {self.what}", style_func=str, ending="")
        self.stderr.flush()

    def end(self) -> None:
        """Clear the line of the bar."""
        if self.started:
            self.stderr.write("\r\033[K", style_func=str, ending="")
