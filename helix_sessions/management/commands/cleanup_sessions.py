from argparse import ArgumentParser
from typing import Any

from helix_sessions.management.jobs import (
    JobCommand,
    Progress,
    add_fail_on_error,
    check_errors,
    not_negative,
    positive,
    stoppable,
)
from helix_sessions.models import Session
from helix_sessions.models.databases import sessions_database
from helix_sessions.store import SessionStore
from helix_sessions.types import CleanupSummary


class Command(JobCommand):
    """Expires sessions."""

    help = (
        "Expire each session whose expires_at is in the past and that has not completed or failed: delete "
        "the snapshots of its workspace, then set it to failed with the reason session_expired. Nothing else "
        "of it is deleted; that is what prune_sessions is for. A session that fails is logged, counted and "
        "tried again the next time. Safe to run at any time, repeatedly, and several at once. Ctrl-C ends it "
        "after the current session."
    )
    examples = """
examples:
  manage.py cleanup_sessions --dry-run          what would be done
  manage.py cleanup_sessions                    do it
  manage.py cleanup_sessions --json --fail-on-error    from cron, with an exit code
"""

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--dry-run", action="store_true", help="Count, and change nothing.")
        parser.add_argument(
            "--page-size",
            type=positive,
            default=200,
            metavar="N",
            help="How many sessions are looked up at a time (default: %(default)s).",
        )
        parser.add_argument("--limit", type=positive, metavar="N", help="Expire at most this many sessions.")
        parser.add_argument("--agent-type", metavar="TYPE", help="Only sessions of this agent type.")
        parser.add_argument(
            "--rest",
            type=not_negative,
            default=1.0,
            metavar="TIMES",
            help="Rest so many times as long as each session took, to leave the machine to those who work; "
            "0 is full speed (default: %(default)s).",
        )
        add_fail_on_error(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        overdue = Session.objects.using(sessions_database(options["database"])).expired()
        if options["agent_type"] is not None:
            overdue = overdue.filter(agent_type=options["agent_type"])
        total = overdue.count()
        limit = options["limit"]
        progress = Progress(self.stderr, "sessions", total if limit is None else min(limit, total))

        def show(so_far: CleanupSummary) -> None:
            progress(so_far.marked + so_far.errors)

        with stoppable(self.stderr) as stop:
            summary = SessionStore(options["database"]).expired_session_cleanup(
                page_size=options["page_size"],
                limit=limit,
                agent_type=options["agent_type"],
                dry_run=options["dry_run"],
                rest=min(options["rest"], 1000),
                on_progress=show,
                should_stop=stop,
            )
        progress.end()
        self.tell(summary, as_json=options["json"], dry_run=options["dry_run"])
        check_errors(summary, options)
