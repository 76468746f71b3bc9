from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import TransactionTestCase

from desk.agents import PAID_BACK
from desk.views import store


class TestDesk(TransactionTestCase):
    def decide(self, decision):
        self.client.force_login(User.objects.create_superuser("amina"))
        PAID_BACK.clear()
        asked = {"customer": "ines", "text": "The kettle of order 70 is broken."}
        address = self.client.post("/", asked).url
        call_command("run_sessions", once=True, verbosity=0)
        [call] = self.client.get(address).context["waiting"]
        self.assertEqual(PAID_BACK, {})
        answer = {"call": call["tool_call_id"], "decision": decision}
        self.client.post(f"{address}decide/", answer)
        call_command("run_sessions", once=True, verbosity=0)
        return self.client.get(address).context["messages"][-1]["content"]

    def test_money_moves_when_a_person_approves_and_once(self):
        self.assertIn("49.90 € were paid back", self.decide("approve"))
        self.assertEqual(list(PAID_BACK.values()), [4990])

    def test_no_money_moves_when_a_person_denies(self):
        self.decide("deny")
        self.assertEqual(PAID_BACK, {})
        self.assertEqual(store.list_runnable(), [])
