"""`manage.py research QUESTION`: ask, let workers run, and print the report and the tree."""

from django.core.management import call_command
from django.core.management.base import BaseCommand

from helix_sessions.store import SessionStore


class Command(BaseCommand):
    def add_arguments(self, parser):
        parser.add_argument("question")
        parser.add_argument("--only-ask", action="store_true", help="leave the work to `run_sessions`")

    def handle(self, *, question, only_ask, **options):
        store = SessionStore()
        session_id = store.create_session(None, agent_type="editor").session_id
        store.admit_input(session_id, question)
        if only_ask:
            return session_id
        call_command("run_sessions", once=True, verbosity=0)
        self.stdout.write(store.get_messages(session_id).messages[-1]["content"])
        for ref in store.get_sub_session_refs(session_id):
            self.stdout.write(f"  {ref.agent_type} {ref.sub_session_id}: {ref.status}")
        usage = store.get_usage(session_id, tree=True)
        self.stdout.write(f"  {usage.input_tokens} tokens read, {usage.output_tokens} written")
        return session_id
