"""Keep the words of all transcripts, or of none, as the settings say."""

from argparse import ArgumentParser
from typing import Any

from helix_sessions.management.jobs import JobCommand, Progress, add_fail_on_error, check_errors, stoppable
from helix_sessions.models import Session
from helix_sessions.models.databases import sessions_database
from helix_sessions.store import SessionStore
from helix_sessions.store.maintenance.transcript_index import index_transcripts


class Command(JobCommand):
    """`manage.py index_transcripts`: safe to repeat, at any time."""

    help = (
        "Make the full-text index of transcripts as TRANSCRIPT_SEARCH says: add the words of messages that "
        "were stored before it was turned on, or remove all words after it was turned off or content is "
        "encrypted. Safe next to any load; stop it whenever you like and run it again."
    )
    examples = """
examples:
  manage.py index_transcripts
"""

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        add_fail_on_error(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it and say how much there was."""
        using = sessions_database(options["database"])
        progress = Progress(self.stderr, "sessions", Session.objects.using(using).count())
        with stoppable(self.stderr) as stop:
            summary = index_transcripts(
                SessionStore(options["database"]),
                on_progress=lambda so_far: progress(so_far.sessions),
                should_stop=stop,
            )
        progress.end()
        self.tell(summary, as_json=options["json"], dry_run=False)
        check_errors(summary, options)
