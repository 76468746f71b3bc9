import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from helix_sessions.management.jobs import JobCommand, Progress, positive, stoppable
from helix_sessions.models import Session
from helix_sessions.models.databases import sessions_database
from helix_sessions.store import SessionStore
from helix_sessions.types import Finding


class Command(JobCommand):
    """Checks every invariant of the stored sessions."""

    help = (
        "Check that the rows of every session agree with each other: the event log without gaps, counts, "
        "positions, pointers, runs, snapshots, trees. Each line names the problem's code, the session and "
        "the detail. Reading only, without locks; safe next to any load. --repair puts right what follows "
        "from other rows without guessing, under the session's lock; everything else needs a person. "
        "Exit code 0: nothing wrong, or everything wrong was repaired (warnings do not count). 1: errors "
        "are left. With --json, one object per line."
    )
    examples = """
examples:
  manage.py sessions_doctor                        look at everything
  manage.py sessions_doctor --session SESSION_ID   at one session
  manage.py sessions_doctor --repair               and repair what follows from other rows
  manage.py sessions_doctor --deep                 read and reassemble every state as well (slow)
"""

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--repair", action="store_true", help="Repair what can be without guessing.")
        parser.add_argument("--deep", action="store_true", help="Reassemble every session's state, too.")
        parser.add_argument(
            "--session", action="append", metavar="ID", help="Only this session; may be repeated."
        )
        parser.add_argument(
            "--page-size", type=positive, default=500, metavar="N", help="Sessions at a time."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        rows = Session.objects.using(sessions_database(options["database"]))
        progress = Progress(self.stderr, "sessions", None if options["session"] else rows.count())

        def show(finding: Finding) -> None:
            self.stdout.write(json.dumps(asdict(finding)) if options["json"] else _line(finding))

        with stoppable(self.stderr) as stop:
            found = SessionStore(options["database"]).examine_sessions(
                session_ids=options["session"],
                repair=options["repair"],
                deep=options["deep"],
                page_size=options["page_size"],
                on_finding=show,
                on_progress=progress,
                should_stop=stop,
            )
        progress.end()
        errors = [finding for finding in found if finding.severity == "error"]
        left = [finding for finding in errors if not finding.repaired]
        if left:
            hint = " --repair can put some right." if any(item.repairable for item in left) else ""
            raise CommandError(f"{len(left)} of {len(errors)} errors are left.{hint}")
        if not options["json"]:
            done = f"{len(errors)} errors were repaired." if errors else "Nothing is wrong."
            self.stdout.write(done)


def _line(finding: Finding) -> str:
    outcome = "repaired" if finding.repaired else "repairable" if finding.repairable else "needs a person"
    where = finding.session_id or "the database"
    return f"{finding.severity} {finding.code} {where}: {finding.detail} ({outcome})"
