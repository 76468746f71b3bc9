from io import StringIO

from django.core.management import call_command
from django.test import TransactionTestCase

from helix_sessions.store import SessionStore
from newsroom.agents import TOPICS


class TestResearch(TransactionTestCase):
    def test_readers_work_side_by_side_and_the_editor_sums_up(self):
        store, out = SessionStore(), StringIO()
        session_id = call_command("research", "Heat pumps in France?", stdout=out)
        report = store.get_messages(session_id).messages[-1]["content"]
        for topic in TOPICS:
            self.assertIn(f"What the library says about {topic}: Heat pumps in France?", report)
        refs = store.get_sub_session_refs(session_id)
        self.assertEqual([ref.status for ref in refs], ["completed"] * 3)
        started = [store.list_runs(ref.sub_session_id).items[0] for ref in refs]
        first_end = min(run.ended_at for run in started)
        self.assertTrue(all(run.started_at < first_end for run in started), "one after another")
