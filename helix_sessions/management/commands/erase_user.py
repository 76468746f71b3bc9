from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from helix_sessions.management.jobs import JobCommand, Progress, add_no_input, add_owner, owner_of, stoppable
from helix_sessions.store import SessionStore
from helix_sessions.types import ErasureSummary


class Command(JobCommand):
    """Removes a person's sessions everywhere."""

    help = (
        "Remove all sessions of a person, with their sub-sessions, workspace snapshots, archived events and "
        "answers kept for repeated requests, and report what went. THIS CANNOT BE UNDONE; export_sessions "
        "with the same --owner or --user-id makes a copy first. Branches that other users made of these "
        "sessions hold copies of messages; they are listed, and removed with --include-forks. The account "
        "itself, backups and what other people wrote about the person are not touched. Exit code 1 if "
        "anything could not be removed: run it again."
    )
    examples = """
examples:
  manage.py erase_user --owner alice --dry-run
  manage.py erase_user --owner alice --user-id customer-17
  manage.py erase_user --owner-id 42 --include-forks --no-input --json
"""

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        add_owner(parser)
        parser.add_argument("--include-forks", action="store_true", help="Remove others' branches as well.")
        parser.add_argument("--dry-run", action="store_true", help="Only report what would be removed.")
        add_no_input(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        owner = owner_of(options)
        if owner is None and options["user_id"] is None:
            raise CommandError("Say whom to erase: --owner, --owner-id or --user-id.")
        if options["interactive"] or options["dry_run"]:
            planned = self._erase(owner, options, dry_run=True)
            self.tell(planned, as_json=options["json"], dry_run=True)
        if options["dry_run"]:
            return
        self.confirm("All of this will be erased.", options)
        summary = self._erase(owner, options, dry_run=False)
        self.tell(summary, as_json=options["json"])
        if summary.errors:
            raise CommandError(f"{summary.errors} sessions could not be erased. Run it again.")

    def _erase(self, owner: Any, options: dict[str, Any], *, dry_run: bool) -> ErasureSummary:
        progress = Progress(self.stderr, "sessions")
        with stoppable(self.stderr) as stop:
            summary = SessionStore(options["database"]).erase_user(
                owner=owner,
                user_id=options["user_id"],
                include_forks=options["include_forks"],
                dry_run=dry_run,
                on_progress=lambda so_far: progress(so_far.sessions),
                should_stop=stop,
            )
        progress.end()
        if stop.asked:
            raise CommandError("Stopped before the end. Run it again.")
        return summary
