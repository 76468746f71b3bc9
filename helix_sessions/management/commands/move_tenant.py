from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from helix_sessions.management.jobs import JobCommand, Progress, owner_of, stoppable
from helix_sessions.store import SessionStore


class Command(JobCommand):
    """Moves an account's sessions to another database."""

    help = (
        "Move everything of an account to another database of the project, a cell, while it is in use: "
        "sessions with their trees, memories, schedules, tool rules, spend limits and what was spent. Each "
        "tree is live in one of the two databases; calls in the old one are refused and name the new one. "
        "Stopped or killed, it has lost nothing: repeat it, and it goes on. Repeat it once more when every "
        "process has switched."
    )
    examples = """
examples:
  manage.py move_tenant --owner alice --to cell_b
  manage.py move_tenant --owner-id 42 --database cell_a --to cell_b
"""

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        owner = parser.add_mutually_exclusive_group(required=True)
        owner.add_argument("--owner", metavar="USERNAME", help="The account.")
        owner.add_argument("--owner-id", metavar="KEY", help="The same by primary key.")
        parser.add_argument("--to", required=True, metavar="ALIAS", help="The database to move to.")
        parser.add_argument(
            "--shared-storage",
            action="store_true",
            help="Both databases have the same BLOB_STORAGE and ARCHIVE_STORAGE, so files need not move.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        progress = Progress(self.stderr, "sessions")
        with stoppable(self.stderr) as stop:
            summary = SessionStore(options["database"]).move_owner(
                owner_of(options),
                options["to"],
                shared_storage=options["shared_storage"],
                on_progress=lambda so_far: progress(so_far.sessions),
                should_stop=stop,
            )
        progress.end()
        self.tell(summary, as_json=options["json"])
        if stop.asked:
            raise CommandError("Stopped. Run it again to go on.")
