import secrets
from argparse import ArgumentParser
from base64 import b64encode
from typing import Any

from helix_sessions.management.jobs import (
    JobCommand,
    Progress,
    add_fail_on_error,
    check_errors,
    positive,
    stoppable,
)
from helix_sessions.models import Session
from helix_sessions.models.databases import sessions_database
from helix_sessions.store import SessionStore


class Command(JobCommand):
    """Encrypts all content with the active key."""

    help = (
        "Encrypt everything that is stored with the active key of ENCRYPTION: what another key encrypted and "
        "what was stored before encryption was switched on. With 'active': None everything is decrypted. "
        "Safe next to any load, a page of rows at a time under its session's lock; stop it whenever you "
        "like and run it again. Take an old key out of the settings only when this reports 0 rows, 0 files "
        "and 0 errors."
    )
    examples = """
examples:
  manage.py rotate_encryption --new-key                 print a new random key for the settings
  manage.py rotate_encryption --dry-run                 how much is not under the active key
  manage.py rotate_encryption                           encrypt it
  manage.py rotate_encryption --after SESSION_ID        continue after a session
"""

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--new-key", action="store_true", help="Print a new key and do nothing else.")
        parser.add_argument("--dry-run", action="store_true", help="Count, and change nothing.")
        parser.add_argument("--after", default="", metavar="ID", help="Start after this session.")
        parser.add_argument("--page-size", type=positive, default=200, metavar="N", help="Rows at a time.")
        add_fail_on_error(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["new_key"]:
            self.stdout.write(b64encode(secrets.token_bytes(32)).decode())
            return
        total = (
            Session.objects.using(sessions_database(options["database"]))
            .filter(session_id__gt=options["after"])
            .count()
        )
        progress = Progress(self.stderr, "sessions", total)
        with stoppable(self.stderr) as stop:
            summary = SessionStore(options["database"]).rotate_encryption(
                after=options["after"],
                page_size=options["page_size"],
                dry_run=options["dry_run"],
                on_progress=lambda so_far: progress(so_far.sessions),
                should_stop=stop,
            )
        progress.end()
        self.tell(summary, as_json=options["json"], dry_run=options["dry_run"])
        check_errors(summary, options)
