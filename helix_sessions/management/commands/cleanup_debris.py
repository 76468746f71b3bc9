from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from helix_sessions.management.jobs import (
    JobCommand,
    add_fail_on_error,
    check_errors,
    not_negative,
    stoppable,
)
from helix_sessions.store import SessionStore


class Command(JobCommand):
    """Removes what crashes leave behind."""

    help = (
        "Remove what crashed workers leave behind: staged writes that no run will promote, and expired "
        "idempotency keys. List sessions whose run is running although they have not changed for a while; "
        "with --wake close those runs as interrupted and fail their open tool calls, so that the sessions "
        "can be resumed. A session in the middle of a long model call looks stuck too: before --wake, set "
        "--stuck-after to more than your slowest step takes."
    )
    examples = """
examples:
  manage.py cleanup_debris --dry-run                      what is there
  manage.py cleanup_debris                                remove it, list stuck sessions
  manage.py cleanup_debris --wake --stuck-after 60        and recover sessions stuck for an hour
"""

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--dry-run", action="store_true", help="Count, and change nothing.")
        parser.add_argument(
            "--staged-after",
            type=not_negative,
            default=24 * 60,
            metavar="MINUTES",
            help="Staged writes this old are removed, unless a run is running (default: %(default)s).",
        )
        parser.add_argument(
            "--stuck-after",
            type=not_negative,
            default=30,
            metavar="MINUTES",
            help="A running session that has not changed for this long is stuck (default: %(default)s).",
        )
        parser.add_argument("--wake", action="store_true", help="Recover the stuck sessions.")
        add_fail_on_error(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        with stoppable(self.stderr) as stop:
            summary = SessionStore(options["database"]).cleanup_debris(
                staged_for=timedelta(minutes=options["staged_after"]),
                stuck_for=timedelta(minutes=options["stuck_after"]),
                wake=options["wake"],
                dry_run=options["dry_run"],
                should_stop=stop,
            )
        self.tell(summary, as_json=options["json"], dry_run=options["dry_run"])
        check_errors(summary, options)
