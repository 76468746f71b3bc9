"""`manage.py morning_report`: what came of the night, and what it cost."""

from collections import Counter

from django.core.management.base import BaseCommand
from django.utils import timezone

from helix_sessions.models import Run
from helix_sessions.tasks import sweep_sessions


class Command(BaseCommand):
    def handle(self, **options):
        sweep_sessions.call()  # retries that came due while no task was left for them
        runs = Run.objects.filter(session__session_id__startswith=f"letter-{timezone.localdate()}-")
        found = Counter(run.output["category"] for run in runs.filter(status="completed"))
        failed = Counter(run.error["code"] for run in runs.filter(status="failed"))
        tokens = sum(run.usage["input_tokens"] for run in runs if run.usage)
        self.stdout.write(f"{found.total()} done {dict(found)}, failed {dict(failed)}, {tokens} tokens read")
