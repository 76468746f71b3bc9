from io import StringIO

from django.core.management import call_command
from django.test import TransactionTestCase

from helix_sessions.models import Session


class TestNight(TransactionTestCase):
    def test_every_letter_is_read_once_whatever_is_repeated(self):
        out = StringIO()
        for _ in range(2):
            call_command("enqueue_letters", count=12, stdout=StringIO())
        call_command("db_worker", batch=True, interval=0, startup_delay=False, verbosity=0, stdout=StringIO())
        call_command("morning_report", stdout=out)
        self.assertIn("12 done", out.getvalue())
        self.assertIn("failed {}", out.getvalue())
        self.assertEqual(set(Session.objects.values_list("message_count", flat=True)), {3})
