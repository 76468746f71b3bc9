from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import TransactionTestCase


class TestChat(TransactionTestCase):
    def test_send_wait_and_read(self):
        self.client.force_login(User.objects.create_user("ines"))
        self.assertNotContains(self.client.get("/"), "every 1s")
        sent = self.client.post("/send/", {"text": "How do I get to <b>Capri</b>?"})
        self.assertContains(sent, "every 1s")
        self.assertContains(sent, "&lt;b&gt;Capri&lt;/b&gt;")
        call_command("run_sessions", once=True, verbosity=0)
        answered = self.client.get("/messages/")
        self.assertContains(answered, "I would take the ferry")
        self.assertNotContains(answered, "every 1s")

    def test_each_user_has_a_conversation_of_their_own(self):
        for name in ("ines", "tomasz"):
            self.client.force_login(User.objects.create_user(name))
            self.assertNotContains(self.client.get("/"), "ferry")
            self.client.post("/send/", {"text": "The ferry?"})
