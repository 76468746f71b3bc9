import json
from argparse import ArgumentParser
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any, NamedTuple

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
from helix_sessions.types import (
    PRUNED_STATUSES,
    ArchiveSummary,
    AuditSummary,
    PruneSummary,
    RetentionPolicy,
)


class Outcome(NamedTuple):
    """What each part did, or in a dry run would do."""

    pruned: PruneSummary = PruneSummary()
    archived: ArchiveSummary = ArchiveSummary()
    audit: AuditSummary = AuditSummary()

    @property
    def is_nothing(self) -> bool:
        return not (self.pruned.sessions or self.archived.events or self.audit.entries)


class Command(JobCommand):
    """Deletes old sessions, archives long event logs, and deletes old entries of the audit trail."""

    help = (
        "Delete sessions that completed, failed or were deleted by decision long ago, with all of "
        "theirs: messages, events, "
        "checkpoints, archives and workspace snapshots. THIS CANNOT BE UNDONE; export_sessions keeps a copy. "
        "Kept are sessions that others need: those with a branch, and parents of sub-sessions that are kept. "
        "First the size of what would go is shown, then you are asked. "
        "With --archive-longer-than, the older events of long logs of all other sessions are moved to the "
        "archive storage (HELIX_SESSIONS['ARCHIVE_STORAGE']); their messages and states stay. "
        "With --audit-older-than, old entries of the audit trail of the HTTP API are deleted; without it "
        "they are kept for ever. "
        "Each session is a short transaction of its own. Ctrl-C ends it after the current session."
    )
    examples = """
examples:
  manage.py prune_sessions --older-than 90 --dry-run       what would go, and how much it takes
  manage.py prune_sessions --older-than 90                 show that, ask, delete
  manage.py prune_sessions --older-than 30 --status failed --agent-type crawler --keep-tag legal-hold
  manage.py prune_sessions --archive-longer-than 50000 --keep-events 5000 --no-input
  manage.py prune_sessions --audit-older-than 400 --no-input
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
        parser.add_argument(
            "--audit-older-than",
            type=not_negative,
            metavar="DAYS",
            help="Delete entries of the audit trail that are older than so many days.",
        )
        parser.add_argument("--page-size", type=positive, default=200, metavar="N", help="Lookups at a time.")
        parser.add_argument("--limit", type=positive, metavar="N", help="Delete at most so many sessions.")
        parser.add_argument("--dry-run", action="store_true", help="Only show what would be done.")
        add_no_input(parser)
        add_fail_on_error(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        if all(options[name] is None for name in ("older_than", "archive_longer_than", "audit_older_than")):
            raise CommandError(
                "Say what to do: --older-than DAYS, --archive-longer-than EVENTS, --audit-older-than DAYS."
            )
        outcome = Outcome()
        with stoppable(self.stderr) as stop:
            if options["interactive"] or options["dry_run"]:
                outcome = self._run(options, stop, dry_run=True)
                self._tell(outcome, options, dry_run=True)
            if options["dry_run"] or stop.asked:
                return
            if options["interactive"] and outcome.is_nothing:
                return
            self.confirm("This cannot be undone.", options)
            outcome = self._run(options, stop, dry_run=False)
        self._tell(outcome, options, dry_run=False)
        errors = outcome.pruned.errors + outcome.archived.errors
        check_errors(replace(outcome.pruned, errors=errors), options)

    def _run(self, options: dict[str, Any], stop: Stop, *, dry_run: bool) -> Outcome:
        store, outcome = SessionStore(options["database"]), Outcome()
        sessions, entries = Progress(self.stderr, "sessions"), Progress(self.stderr, "audit entries")
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
                on_progress=lambda so_far: sessions(so_far.sessions),
                should_stop=stop,
            )
            outcome = outcome._replace(pruned=pruned)
        if options["archive_longer_than"] is not None:
            archived = store.archive_long_logs(
                longer_than=options["archive_longer_than"],
                keep=options["keep_events"],
                page_size=options["page_size"],
                dry_run=dry_run,
                on_progress=lambda so_far: sessions(so_far.sessions),
                should_stop=stop,
            )
            outcome = outcome._replace(archived=archived)
        sessions.end()
        if options["audit_older_than"] is not None:
            audit = store.prune_audit_trail(
                timedelta(days=options["audit_older_than"]),
                dry_run=dry_run,
                on_progress=lambda so_far: entries(so_far.entries),
                should_stop=stop,
            )
            outcome = outcome._replace(audit=audit)
        entries.end()
        return outcome

    def _tell(self, outcome: Outcome, options: dict[str, Any], *, dry_run: bool) -> None:
        if options["json"]:
            parts = {name: asdict(part) for name, part in outcome._asdict().items()}
            self.stdout.write(json.dumps({**parts, "dry_run": dry_run}))
            return
        for asked, to_do, done, summary in (
            ("older_than", "Sessions to delete", "Sessions deleted", outcome.pruned),
            ("archive_longer_than", "Events to archive", "Events archived", outcome.archived),
            ("audit_older_than", "Audit entries to delete", "Audit entries deleted", outcome.audit),
        ):
            if options[asked] is not None:
                self.stdout.write(to_do if dry_run else done)
                self.tell(summary, as_json=False, dry_run=dry_run)
