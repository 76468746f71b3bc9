import json
from argparse import ArgumentParser
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError

from helix_sessions.management.jobs import (
    JobCommand,
    Progress,
    Stop,
    add_fail_on_error,
    add_no_input,
    check_errors,
    not_negative,
    positive,
    stoppable,
)
from helix_sessions.store import SessionStore
from helix_sessions.types import PRUNED_STATUSES, ArchiveSummary, PruneSummary, RetentionPolicy


class Command(JobCommand):
    """Deletes old sessions, and archives long event logs."""

    help = (
        "Delete sessions that completed, failed or were deleted by decision long ago, with all of "
        "theirs: messages, events, "
        "checkpoints, archives and workspace snapshots. THIS CANNOT BE UNDONE; export_sessions keeps a copy. "
        "Kept are sessions that others need: those with a branch, and parents of sub-sessions that are kept. "
        "First the size of what would go is shown, then you are asked. "
        "With --archive-longer-than, the older events of long logs of all other sessions are moved to the "
        "archive storage (HELIX_SESSIONS['ARCHIVE_STORAGE']); their messages and states stay. "
        "Each session is a short transaction of its own. Ctrl-C ends it after the current session."
    )
    examples = """
examples:
  manage.py prune_sessions --older-than 90 --dry-run       what would go, and how much it takes
  manage.py prune_sessions --older-than 90                 show that, ask, delete
  manage.py prune_sessions --older-than 30 --status failed --agent-type crawler --keep-tag legal-hold
  manage.py prune_sessions --archive-longer-than 50000 --keep-events 5000 --no-input
"""

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--older-than",
            type=not_negative,
            metavar="DAYS",
            help="Delete sessions that have been completed, failed or deleted for so many days.",
        )
        parser.add_argument(
            "--status",
            action="append",
            choices=PRUNED_STATUSES,
            help="Only sessions with this status; may be repeated (default: any of them).",
        )
        parser.add_argument(
            "--agent-type",
            action="append",
            default=[],
            metavar="TYPE",
            help="Only sessions of this agent type; may be repeated. For deletion, not for archiving.",
        )
        parser.add_argument(
            "--keep-tag",
            action="append",
            default=[],
            metavar="TAG",
            help="Keep sessions with this tag; may be repeated.",
        )
        parser.add_argument(
            "--archive-longer-than",
            type=positive,
            metavar="EVENTS",
            help="Archive event logs with more events than that.",
        )
        parser.add_argument(
            "--keep-events",
            type=positive,
            default=1_000,
            metavar="EVENTS",
            help="So many of the last events stay in an archived log (default: %(default)s).",
        )
        parser.add_argument("--page-size", type=positive, default=200, metavar="N", help="Lookups at a time.")
        parser.add_argument("--limit", type=positive, metavar="N", help="Delete at most so many sessions.")
        parser.add_argument("--dry-run", action="store_true", help="Only show what would be done.")
        add_no_input(parser)
        add_fail_on_error(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["older_than"] is None and options["archive_longer_than"] is None:
            raise CommandError("Say what to do: --older-than DAYS, --archive-longer-than EVENTS, or both.")
        pruned, archived = PruneSummary(), ArchiveSummary()
        with stoppable(self.stderr) as stop:
            if options["interactive"] or options["dry_run"]:
                pruned, archived = self._run(options, stop, dry_run=True)
                self._tell(pruned, archived, options, dry_run=True)
            if options["dry_run"] or stop.asked:
                return
            if options["interactive"] and not (pruned.sessions or archived.events):
                return
            self.confirm("This cannot be undone.", options)
            pruned, archived = self._run(options, stop, dry_run=False)
        self._tell(pruned, archived, options, dry_run=False)
        check_errors(replace(pruned, errors=pruned.errors + archived.errors), options)

    def _run(
        self, options: dict[str, Any], stop: Stop, *, dry_run: bool
    ) -> tuple[PruneSummary, ArchiveSummary]:
        store = SessionStore(options["database"])
        pruned, archived = PruneSummary(), ArchiveSummary()
        progress = Progress(self.stderr, "sessions")
        if options["older_than"] is not None:
            policy = RetentionPolicy(
                terminal_for=timedelta(days=options["older_than"]),
                statuses=tuple(options["status"] or PRUNED_STATUSES),
                agent_types=tuple(options["agent_type"]),
                keep_tags=tuple(options["keep_tag"]),
            )
            pruned = store.prune_sessions(
                policy,
                page_size=options["page_size"],
                limit=options["limit"],
                dry_run=dry_run,
                on_progress=lambda so_far: progress(so_far.sessions),
                should_stop=stop,
            )
        if options["archive_longer_than"] is not None:
            archived = store.archive_long_logs(
                longer_than=options["archive_longer_than"],
                keep=options["keep_events"],
                page_size=options["page_size"],
                dry_run=dry_run,
                on_progress=lambda so_far: progress(so_far.sessions),
                should_stop=stop,
            )
        progress.end()
        return pruned, archived

    def _tell(
        self, pruned: PruneSummary, archived: ArchiveSummary, options: dict[str, Any], *, dry_run: bool
    ) -> None:
        if options["json"]:
            both = {"pruned": asdict(pruned), "archived": asdict(archived), "dry_run": dry_run}
            self.stdout.write(json.dumps(both))
            return
        if options["older_than"] is not None:
            self.stdout.write("Sessions to delete" if dry_run else "Sessions deleted")
            self.tell(pruned, as_json=False, dry_run=dry_run)
        if options["archive_longer_than"] is not None:
            self.stdout.write("Events to archive" if dry_run else "Events archived")
            self.tell(archived, as_json=False, dry_run=dry_run)
