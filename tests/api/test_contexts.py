"""What the model sees, over HTTP."""

from typing import Any

import pytest

from helix_sessions.store import SessionStore
from helix_sessions.types import SummaryRequest
from tests.api.test_problems import is_problem
from tests.contract.sources import Said

pytestmark = pytest.mark.django_db
CONTEXT, COMPACTIONS = "/api/sessions/s/context/", "/api/sessions/s/compactions/"


@pytest.fixture
def told(store: SessionStore, session: str, settings: Any) -> str:
    """A session with a context and something to fold."""
    settings.HELIX_SESSIONS = {
        "SUMMARIZER": f"{__name__}.summarize",
        "COMPACTION": {"context_window": 1_000, "keep_recent": 0},
    }
    store.reconcile_context(session, [Said("day", 1)])
    store.append_messages(
        session, [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "z": 1}]
    )
    return session


def summarize(request: SummaryRequest) -> str:
    return f"{len(request.messages)} messages"


def fail(request: SummaryRequest) -> str:
    raise RuntimeError("no model")


class TestContext:
    def test_it_is_what_the_model_sees(self, api, store, told):
        response = api.get(CONTEXT)
        assert response.status_code == 200
        assert response.json() == {
            "baseline": "day is 1.",
            "messages": store.get_messages(told).messages,
            "estimated_tokens": store.get_context(told).estimated_tokens,
        }
        assert response["ETag"] == f'"{store.load_state(told).version}"'

    def test_it_is_read_again_only_when_it_may_have_changed(self, api, store, told):
        tag = api.get(CONTEXT)["ETag"]
        assert api.get(CONTEXT, headers={"If-None-Match": tag}).status_code == 304
        api.post(COMPACTIONS, {})
        response = api.get(CONTEXT, headers={"If-None-Match": tag})
        assert response.status_code == 200
        assert [message["kind"] for message in response.json()["messages"]] == ["compaction"]


class TestCompactions:
    def test_one_by_hand(self, api, store, told):
        response = api.post(COMPACTIONS, {"reason": "too long"})
        assert response.status_code == 201
        made = response.json()["compaction"]
        assert (made["summary"], made["reason"], made["message_count"]) == ("2 messages", "too long", 2)
        assert made["message"] == store.get_context(told).messages[0]
        assert api.get(COMPACTIONS).json() == {"items": [made], "next_cursor": None}

    def test_nothing_to_fold_is_null(self, api, told):
        api.post(COMPACTIONS, {})
        response = api.post(COMPACTIONS, {})
        assert (response.status_code, response.json()) == (200, {"compaction": None})

    def test_if_match(self, api, store, told):
        is_problem(api.post(COMPACTIONS, {}, headers={"If-Match": '"1"'}), 412, "stale_state")
        version = store.load_state(told).version
        response = api.post(COMPACTIONS, {}, headers={"If-Match": f'"{version}"'})
        assert (response.status_code, response["ETag"]) == (201, f'"{version + 1}"')

    def test_a_key_is_answered_once(self, api, store, told):
        first = api.post(COMPACTIONS, {}, headers={"Idempotency-Key": "k"})
        again = api.post(COMPACTIONS, {}, headers={"Idempotency-Key": "k"})
        assert first.status_code == again.status_code == 201
        assert first.content == again.content
        assert again["Idempotency-Replayed"] == "true"
        assert len(store.get_events(told, types=["compacted"])) == 1
        other = api.post(COMPACTIONS, {"reason": "x"}, headers={"Idempotency-Key": "k"})
        is_problem(other, 422, "idempotency_key_reused")

    def test_no_lock_is_held_with_a_key(self, api, told, settings, monkeypatch):
        """The work is not part of the transaction that keeps the answer."""
        from django.db import connection

        depths: list[int] = []
        outside = len(connection.savepoint_ids)

        def noting(request: SummaryRequest) -> str:
            depths.append(len(connection.savepoint_ids))
            return "summary"

        monkeypatch.setattr(f"{__name__}.summarize", noting)
        api.post(COMPACTIONS, {}, headers={"Idempotency-Key": "k"})
        assert depths == [outside]

    def test_without_a_summarizer(self, api, store, told, settings):
        settings.HELIX_SESSIONS = {}
        is_problem(api.post(COMPACTIONS, {}), 501, "not_configured")
        settings.HELIX_SESSIONS = {"SUMMARIZER": "nowhere.at_all"}
        is_problem(api.post(COMPACTIONS, {}), 501, "not_configured")
        settings.HELIX_SESSIONS = {"SUMMARIZER": f"{__name__}.summarize", "COMPACTION": {"colour": 1}}
        is_problem(api.post(COMPACTIONS, {}), 501, "not_configured")
        assert store.list_compactions(told) == []

    def test_a_failing_summarizer_changes_nothing(self, api, store, told, settings):
        settings.HELIX_SESSIONS = {**settings.HELIX_SESSIONS, "SUMMARIZER": f"{__name__}.fail"}
        before = store.get_context(told)
        with pytest.raises(RuntimeError, match="no model"):
            api.post(COMPACTIONS, {})
        assert store.get_context(told) == before
