import gzip
import os
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, cast

from django.core.management.base import CommandError

from helix_sessions.management.jobs import JobCommand, Progress, add_owner, owner_of, stoppable
from helix_sessions.store import SessionStore


class Command(JobCommand):
    """Writes sessions to a file."""

    help = (
        "Write sessions to a file as JSON Lines: everything of them, exactly, archived events included. "
        "Without a choice, all sessions; a chosen one comes with its whole tree. Each tree is as it was at "
        "one moment; nothing is locked. The file holds conversations: it is made readable for you alone. "
        "It appears under its name only when it is complete. import_sessions reads it back."
    )
    examples = """
examples:
  manage.py export_sessions --output all.jsonl.gz
  manage.py export_sessions --session SESSION_ID --output one.jsonl
  manage.py export_sessions --owner alice --output alice.jsonl.gz      what we have of a person
  manage.py export_sessions --output - | ssh backup 'cat > all.jsonl'
"""

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--output", required=True, metavar="FILE", help="Where to; .gz compresses, - is standard output."
        )
        parser.add_argument("--session", action="append", metavar="ID", help="This session; may be repeated.")
        parser.add_argument("--agent-type", metavar="TYPE", help="Only sessions of this agent type.")
        parser.add_argument("--overwrite", action="store_true", help="Replace the file if it exists.")
        add_owner(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        to_stdout = options["output"] == "-"
        if not to_stdout and Path(options["output"]).exists() and not options["overwrite"]:
            raise CommandError(f"{options['output']} exists. --overwrite replaces it.")
        progress = Progress(self.stderr, "sessions")
        with stoppable(self.stderr) as stop, _opened(options["output"], self.stdout) as file:
            summary = SessionStore(options["database"]).export_sessions(
                file,
                session_ids=options["session"],
                agent_type=options["agent_type"],
                owner=owner_of(options),
                user_id=options["user_id"],
                on_progress=lambda so_far: progress(so_far.sessions),
                should_stop=stop,
            )
            if stop.asked:
                raise CommandError("Stopped. Nothing was written to the file.")
        progress.end()
        if not to_stdout:
            self.tell(summary, as_json=options["json"])


@contextmanager
def _opened(name: str, stdout: Any) -> Iterator[IO[str]]:
    """The output, under another name until it is complete."""
    if name == "-":
        yield cast(IO[str], stdout)
        return
    part = Path(f"{name}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as raw, _packed(raw, name) as bytes_out:
            text = TextIOWrapper(cast(Any, bytes_out), encoding="utf-8", newline="\n", write_through=True)
            yield text
            text.detach()
        part.replace(name)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _packed(raw: IO[bytes], name: str) -> Any:
    if name.endswith(".gz"):
        return gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0)
    return nullcontext(raw)
