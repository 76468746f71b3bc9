"""The HTTP API and the admin with everything encrypted, and with the key lost."""

import json

import pytest
from django.contrib.auth import get_user_model
from django.urls import reverse

from tests.encryption.test_at_rest import CANARY, fill, said
from tests.rows import each

pytestmark = pytest.mark.django_db

PAGES = ("timeline", "state", "runs", "tree", "staging", "calls", "log")


@pytest.fixture
def operator(client):
    user = get_user_model().objects.create_superuser("root", password="x")
    client.force_login(user)
    return client


def address(name: str) -> str:
    return reverse(f"helix_sessions:{name}", args=["s"])


class TestTheApi:
    def test_passes_on_what_was_said(self, store, operator):
        fill(store)
        messages = operator.get(address("messages")).json()
        assert messages["items"][0]["content"] == said("message")
        events = operator.get(address("events")).json()
        assert said("event") in json.dumps(events, ensure_ascii=False)
        assert operator.get(address("state")).json()["custom_state"]["secret"] == said("state")

    def test_says_that_the_key_is_lost(self, store, operator, encrypted):
        fill(store)
        encrypted("new", active="new")
        for name in ("messages", "events", "state", "checkpoints", "staging"):
            answer = operator.get(address(name))
            assert answer.status_code == 503, name
            assert answer.json()["code"] == "content_unreadable"
            assert "'old'" in answer.json()["detail"]
        assert operator.get(reverse("helix_sessions:sessions")).json()["items"][0]["session_id"] == "s"

    def test_an_idempotency_key_is_answered_again(self, operator):
        headers = {"HTTP_IDEMPOTENCY_KEY": "k"}
        body = json.dumps({"session_id": "s", "agent_type": "a", "custom_state": {"x": CANARY}})
        url = reverse("helix_sessions:sessions")
        first, again = (
            operator.post(url, body, content_type="application/json", **headers) for _ in range(2)
        )
        assert first.status_code == again.status_code == 201
        assert first.content == again.content


class TestTheAdmin:
    @each("page", PAGES)
    def test_shows_what_is_encrypted(self, store, operator, page):
        fill(store)
        answer = operator.get(reverse(f"admin:helix_sessions_session_{page}", args=["s"]))
        assert answer.status_code == 200
        assert CANARY in answer.content.decode()  # every page has the session's error at its head
        assert "1.old." not in answer.content.decode()

    @each("page", PAGES)
    def test_shows_a_note_when_the_key_is_lost(self, store, operator, encrypted, page):
        encrypted("old", active="old")
        fill(store)
        encrypted("new", active="new")
        answer = operator.get(reverse(f"admin:helix_sessions_session_{page}", args=["s"]))
        shown = answer.content.decode()
        assert answer.status_code == 200
        assert "which is not configured" in shown
        assert CANARY not in shown
        assert "1.old." not in shown

    def test_lists_and_dashboard(self, store, operator, encrypted):
        fill(store)
        encrypted("new", active="new")
        assert operator.get(reverse("admin:helix_sessions_session_changelist")).status_code == 200
