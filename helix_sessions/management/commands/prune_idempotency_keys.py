"""Remove expired idempotency keys of the HTTP API."""

from typing import Any

from django.core.management.base import CommandParser

from helix_sessions.management.jobs import StoreCommand
from helix_sessions.store import SessionStore


class Command(StoreCommand):
    """`manage.py prune_idempotency_keys`: safe to repeat, at any time."""

    help = "Remove the answers that were kept for a day for their Idempotency-Key. Run it once a day."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--database")

    def handle(self, *args: Any, **options: Any) -> None:
        """Remove them and say how many."""
        removed = SessionStore(options["database"]).prune_idempotency_keys()
        self.stdout.write(f"Removed {removed} expired answers.")
