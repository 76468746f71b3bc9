"""Remove the answers of the HTTP API whose time is over."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import DEFAULT_DB_ALIAS

from helix_sessions.store import SessionStore


class Command(BaseCommand):
    """`manage.py prune_idempotency_keys`: safe to repeat, at any time."""

    help = "Remove answers kept for an Idempotency-Key after IDEMPOTENCY_LIFETIME. Run it once a day."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS)

    def handle(self, *args: Any, **options: Any) -> None:
        """Remove them and say how many."""
        removed = SessionStore(options["database"]).prune_idempotency_keys()
        self.stdout.write(f"Removed {removed} expired answers.")
