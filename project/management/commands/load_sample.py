"""Load the demo's sample once."""

from collections import Counter
from typing import Any

from django.core.management.base import BaseCommand

from helix_sessions.exceptions import SessionExists
from helix_sessions.store import SessionStore
from project import sample


class Command(BaseCommand):
    """`manage.py load_sample`: safe to repeat; never touches what is there."""

    help = f"Load sample sessions, all tagged {sample.TAG!r}, unless there are some."

    def handle(self, *args: Any, **options: Any) -> None:
        """Load the sample and say what is in it."""
        store = SessionStore()
        if sample.is_loaded(store):
            self.stdout.write("The sample is there.")
            return
        try:
            sample.load(store)
        except SessionExists as error:
            self.stdout.write(self.style.WARNING(f"The sample was not loaded. {error}"))
            return
        found = store.list_sessions(tag=sample.TAG, limit=1000).items
        counts = ", ".join(f"{count} {status}" for status, count in Counter(s.status for s in found).items())
        self.stdout.write(self.style.SUCCESS(f"Loaded a sample of {len(found)} sessions: {counts}."))
