import gzip
import io
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from django.core.management.base import CommandError

from helix_sessions.management.jobs import JobCommand, Progress, owner_of
from helix_sessions.store import SessionStore
from helix_sessions.types import UNSET


class Command(JobCommand):
    """Reads sessions from a file."""

    help = (
        "Read sessions that export_sessions wrote, exactly as they were. Each tree of sessions is one "
        "transaction: it is there as a whole or not at all, and what was imported before an error stays. "
        "To go on after an error, repeat with --on-collision skip. In another installation, account keys "
        "mean other people: use --no-owner or --owner there."
    )
    examples = """
examples:
  manage.py import_sessions all.jsonl.gz
  manage.py import_sessions all.jsonl.gz --on-collision skip       go on where an import broke off
  manage.py import_sessions one.jsonl --on-collision renew         a copy beside the original
  manage.py import_sessions theirs.jsonl.gz --no-owner
"""

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("file", help="The export; .gz is unpacked, - is standard input.")
        parser.add_argument(
            "--on-collision",
            choices=("fail", "renew", "skip"),
            default="fail",
            help="When a tree has an id that exists: fail, give all its sessions new ids (renew), or leave "
            "it out (skip). Default: %(default)s.",
        )
        owner = parser.add_mutually_exclusive_group()
        owner.add_argument("--owner", metavar="USERNAME", help="Make this account the owner of all.")
        owner.add_argument("--no-owner", action="store_true", help="Import without owners.")
        parser.add_argument(
            "--no-check",
            action="store_false",
            dest="check",
            help="Import broken sessions, too.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        progress = Progress(self.stderr, "sessions")
        with _opened(options["file"]) as lines:
            summary = SessionStore(options["database"]).import_sessions(
                lines,
                on_collision=options["on_collision"],
                owner=_owner(options),
                check=options["check"],
                on_progress=lambda so_far: progress(so_far.sessions),
            )
        progress.end()
        self.tell(summary, as_json=options["json"])


def _owner(options: dict[str, Any]) -> Any:
    if options["no_owner"]:
        return None
    return UNSET if options["owner"] is None else owner_of({**options, "owner_id": None})


@contextmanager
def _opened(name: str) -> Iterator[IO[str]]:
    if name == "-":
        yield sys.stdin
        return
    try:
        with open(name, "rb") as raw:
            unpacked = gzip.GzipFile(fileobj=raw) if name.endswith(".gz") else raw
            yield io.TextIOWrapper(cast(Any, unpacked), encoding="utf-8", newline="\n")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise CommandError(f"{name} cannot be read: {error}") from error
