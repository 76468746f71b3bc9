"""The public door: whoever has a link answers one call."""

import json
import time

import pytest
from django.core.cache import cache
from rest_framework.test import APIClient

from tests.api.statements import captured_statements
from tests.api.test_problems import is_problem
from tests.contract.suspended import approval, asked, suspend
from tests.rows import each

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_requests_yet():
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def anybody():
    """Somebody without an account."""
    client = APIClient()
    client.default_format = "json"
    return client


@pytest.fixture
def link(api, session, store):
    """A link to approve the session's call `a`."""
    store.begin_turn("s", run_id="r")
    suspend(store, "s", approval("a"), asked("b"))
    response = api.post("/api/sessions/s/answer-links/", {"tool_call_id": "a"})
    assert response.status_code == 201
    return response.json()


def test_a_link_is_followed_and_answered_once(anybody, link, store):
    assert link["url"] == f"http://testserver/api/answers/{link['token']}/"
    shown = anybody.get(link["url"])
    assert shown.status_code == 200
    assert shown.json() == {
        "tool_name": "tool_a",
        "arguments": {"of": "a"},
        "kind": "approval",
        "requested_at": store.load_state("s").pending_client_tool_calls["a"]["requested_at"],
        "deadline": None,
        "is_answered": False,
        "expires_at": link["expires_at"],
        "arguments_digest": store.load_state("s").pending_client_tool_calls["a"]["arguments_digest"],
        "response_schema": None,
        "may_edit": False,
    }
    assert (shown["Cache-Control"], shown["Referrer-Policy"]) == ("no-store", "no-referrer")
    assert anybody.post(link["url"], {"approved": True}).json() == {"outcome": "accepted"}
    assert anybody.post(link["url"][:-1], {"approved": False}).json() == {"outcome": "already_completed"}
    entry = store.load_state("s").pending_client_tool_calls["a"]
    assert entry["response"] == {"approved": True}
    assert anybody.get(link["url"]).json()["is_answered"] is True


def test_it_opens_nothing_else(anybody, link, store):
    before = store.load_state("s")
    for header in ({"Authorization": f"Bearer {link['token']}"}, {}):
        for path in ("", "state/", "messages/", "tool-results/"):
            assert anybody.get(f"/api/sessions/s/{path}", headers=header).status_code == 401
        answer = {"tool_call_id": "b", "result": 1}
        assert anybody.post("/api/sessions/s/tool-results/", answer, headers=header).status_code == 401
    for extra in ({"tool_call_id": "b"}, {"session_id": "t"}, {"approval_id": "x"}):
        is_problem(anybody.post(link["url"], {"approved": True, **extra}), 400, "invalid_input")
    for method in ("put", "patch", "delete"):
        assert getattr(anybody, method)(link["url"]).status_code == 405
    assert store.load_state("s") == before


def test_every_bad_token_is_the_same_404(anybody, link, store, monkeypatch):
    store.begin_turn("t", run_id="r")
    suspend(store, "t", approval("a"))
    gone = store.create_answer_link("t", "a").token
    store.delete_session("t")
    tokens = ["x", "a:b:c", link["token"] + "x", gone, "%00", "é", "x" * 5000]
    answers = [anybody.get(f"/api/answers/{token}/") for token in tokens]
    answers += [anybody.post(f"/api/answers/{token}/", {"approved": True}) for token in tokens]
    then = time.time() + 8 * 24 * 60 * 60
    monkeypatch.setattr(time, "time", lambda: then)
    cache.clear()
    answers.append(anybody.get(link["url"]))
    for answer in answers:
        is_problem(answer, 404, "invalid_answer_link")
    assert len({answer.content for answer in answers}) == 1


def test_only_who_may_change_the_session_makes_links(client_of, stranger, link, grant, store):
    path, body = "/api/sessions/s/answer-links/", {"tool_call_id": "a"}
    assert client_of(stranger).post(path, body).status_code == 404
    assert client_of(grant(stranger, "view_all_sessions")).post(path, body).status_code == 403
    assert client_of(grant(stranger, "manage_all_sessions")).post(path, body).status_code == 201


@each(
    ("body", "status", "code"),
    [
        ({"tool_call_id": "u"}, 404, "unknown_tool_call"),
        ({}, 400, "invalid_input"),
        ({"tool_call_id": "a", "lifetime_seconds": 0}, 400, "invalid_input"),
        ({"tool_call_id": "a", "lifetime_seconds": 10**30}, 400, "invalid_input"),
        ({"tool_call_id": "a", "lifetime_seconds": "60"}, 400, "invalid_input"),
    ],
)
def test_links_that_are_not_made(body, status, code, api, link):
    is_problem(api.post("/api/sessions/s/answer-links/", body), status, code)


def test_strangers_are_limited(anybody, link, settings):
    codes = [anybody.get("/api/answers/x/").status_code for _ in range(61)]
    assert codes == [404] * 60 + [429]
    is_problem(anybody.post(link["url"], {"approved": True}), 429, "throttled")
    assert anybody.get(link["url"], REMOTE_ADDR="10.0.0.2").status_code == 200
    settings.HELIX_SESSIONS = {"API_THROTTLE_RATES": {"answer": "100/min"}}
    assert anybody.get(link["url"]).status_code == 200


def test_what_strangers_send_is_bounded(anybody, link, store):
    is_problem(anybody.post(link["url"], {"error": "x" * 3 * 1024 * 1024}), 413, "body_too_large")
    is_problem(anybody.post(link["url"], {"error": "x" * 9000}), 422, "invalid_document")
    is_problem(anybody.post(link["url"], {"result": 1}), 409, "submission_mismatch")
    deep = "[" * 100_000 + "]" * 100_000
    response = anybody.post(link["url"], f'{{"result": {deep}}}'.encode(), content_type="application/json")
    is_problem(response, 422, "invalid_document")
    assert json.loads(anybody.get(link["url"]).content)["is_answered"] is False


def test_a_bad_token_costs_no_statement(anybody, link):
    with captured_statements() as found:
        assert anybody.post("/api/answers/a:b:c/", {"approved": True}).status_code == 404
    assert found == []
    with captured_statements() as found:
        assert anybody.get(link["url"]).status_code == 200
    assert len(found) == 1
