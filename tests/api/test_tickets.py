"""Stream tickets: an address for `EventSource`, good for one stream and a short time."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from helix_sessions.api import tickets

pytestmark = pytest.mark.django_db


@pytest.fixture
def url(participant, client_of, store) -> str:
    store.create_session("s", agent_type="a", owner=participant)
    store.create_session("t", agent_type="a", owner=participant)
    answer = client_of(participant).post("/api/sessions/s/stream/tickets/")
    assert answer.status_code == 201
    assert answer["Cache-Control"] == "no-store"
    assert set(answer.json()) == {"url", "expires_at"}
    return f"{answer.json()['url']}&wait=0&after=0".removeprefix("http://testserver")


def test_it_opens_the_stream_without_a_login(url):
    answer = Client().get(url)
    assert answer.status_code == 200
    assert b"session_started" in answer.content
    assert Client().get(url.partition("?")[0]).status_code == 401


def test_it_opens_nothing_else(url):
    query = url.partition("?")[2]
    for path in ("/api/sessions/t/events/stream/", "/api/sessions/s/", "/api/sessions/s/events/"):
        assert Client().get(f"{path}?{query}").status_code == 401, path
    assert Client().post(f"/api/sessions/s/inputs/?{query}", {"prompt": "x"}).status_code == 401


def test_one_that_was_changed_is_refused(url):
    assert Client().get(url.replace("ticket=", "ticket=x")).status_code == 401


def test_it_ends(url, monkeypatch):
    monkeypatch.setattr(tickets, "LIFETIME", timedelta(seconds=-1))
    assert Client().get(url).status_code == 401


def test_it_is_good_for_as_long_as_it_says(participant):
    _, expires_at = tickets.issue(participant, "s")
    assert timedelta(0) < expires_at - timezone.now() <= tickets.LIFETIME


def test_it_goes_with_its_user(url, participant):
    participant.is_active = False
    participant.save()
    assert Client().get(url).status_code == 401


def test_it_is_refused_for_a_session_of_others(client_of, stranger, url):
    assert client_of(stranger).post("/api/sessions/s/stream/tickets/").status_code == 404
