"""`manage.py enqueue_letters`: a session for each letter. Again in the same night, it adds nothing."""

from django.core.management.base import BaseCommand
from django.utils import timezone

from helix_sessions.store import SessionStore

LETTERS = ("The parcel {} is late.", "Kettle {} came broken.", "Thank you for pan {}!")


class Command(BaseCommand):
    def add_arguments(self, parser):
        parser.add_argument("--count", type=int, default=1000)

    def handle(self, *, count, **options):
        store, night = SessionStore(), timezone.localdate()
        for number in range(count):
            session_id = f"letter-{night}-{number:04}"
            store.ensure_session(session_id, agent_type="classifier", tags=[f"night-{night}"])
            store.admit_input(session_id, LETTERS[number % 3].format(number), input_id=session_id)
        self.stdout.write(f"{count} letters are in. Now: manage.py db_worker --batch")
