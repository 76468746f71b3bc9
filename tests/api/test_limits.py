"""What a stranger can send is bounded, and so is what anyone can ask for."""

import pytest
from django.core.cache import cache

from helix_sessions.api.serializers import pages
from helix_sessions.content import documents
from tests.api.test_problems import is_problem
from tests.rows import each

pytestmark = pytest.mark.django_db

MESSAGES = "/api/sessions/s/messages/"


def test_a_body_that_is_too_large(api, session, settings, store):
    settings.HELIX_SESSIONS = {"API_MAX_BODY_BYTES": 100}
    body = {"messages": [{"role": "user", "content": "x" * 100}]}
    is_problem(api.post(MESSAGES, body), 413, "body_too_large")
    assert store.get_message_count("s") == 0
    assert api.post(MESSAGES, {"messages": [{"role": "user"}]}).status_code == 201


def test_a_body_without_a_length(api, session):
    response = api.post(MESSAGES, headers={"Transfer-Encoding": "chunked"}, CONTENT_LENGTH="")
    is_problem(response, 411, "length_required")


def test_a_document_that_is_too_deep(api, session, monkeypatch):
    monkeypatch.setattr(documents, "MAX_DEPTH", 10)
    content: object = "x"
    for _ in range(11):
        content = [content]
    body = {"messages": [{"role": "user", "content": content}]}
    is_problem(api.post(MESSAGES, body), 422, "invalid_document")


@each("path", ["", "s/messages/", "s/runs/", "s/checkpoints/", "s/staging/", "s/sub-sessions/", "s/events/"])
def test_pages_are_bounded(path, api, session, store):
    for limit in (pages.MAX_PAGE_SIZE + 1, 0, -1, "x", "", "1" * 30):
        response = api.get(f"/api/sessions/{path}", {"limit": limit})
        assert "limit" in is_problem(response, 400, "invalid_input")["errors"]
    assert api.get(f"/api/sessions/{path}", {"limit": pages.MAX_PAGE_SIZE}).status_code == 200


def test_a_page_has_a_size_when_none_is_asked_for(api, session, store, monkeypatch):
    monkeypatch.setattr(pages, "PAGE_SIZE", 2)
    store.append_messages("s", [{"role": "user", "n": n} for n in range(5)])
    assert len(api.get(MESSAGES).json()["items"]) == 2
    assert len(api.get("/api/sessions/s/events/").json()["items"]) == 2


class TestThrottles:
    @pytest.fixture(autouse=True)
    def _rates(self, settings):
        cache.clear()
        settings.HELIX_SESSIONS = {"API_THROTTLE_RATES": {"read": "2/min", "create": "1/min"}}
        yield
        cache.clear()

    def test_each_scope_counts_for_itself(self, api, session):
        assert [api.get("/api/sessions/s/").status_code for _ in range(3)] == [200, 200, 429]
        created = [api.post("/api/sessions/", {"agent_type": "a"}).status_code for _ in range(2)]
        assert created == [201, 429]
        assert [api.post("/api/sessions/s/counters/step/").status_code for _ in range(5)] == [200] * 5

    def test_when_to_go_on_is_told(self, api, session):
        for _ in range(2):
            api.get("/api/sessions/s/")
        response = api.get("/api/sessions/s/")
        is_problem(response, 429, "throttled")
        assert 0 < int(response["Retry-After"]) <= 60

    def test_each_user_counts_for_themselves(self, api, session, client_of, stranger):
        for _ in range(3):
            api.get("/api/sessions/s/")
        assert client_of(stranger).get("/api/sessions/").status_code == 200
