"""Errors are problems, from one table."""

import json
from datetime import UTC, datetime

import pytest

from helix_sessions import exceptions
from helix_sessions.api.exceptions import STATUS_OF, problem_of, status_of
from tests.api.routes import BODIES, FRONT_ENDS, address, every_method
from tests.api.test_who_may import OPERATED
from tests.rows import each

KEYS = {"type", "title", "status", "code", "detail"}

CODES = {
    "checkpoint_not_found": 404,
    "commit_conflict": 409,
    "conflict": 409,
    "error": 400,
    "idempotency_in_progress": 409,
    "idempotency_key_reused": 422,
    "invalid_answer_link": 404,
    "fenced": 409,
    "foreign_namespace": 403,
    "framework_mismatch": 409,
    "memory_exists": 409,
    "search_too_wide": 422,
    "inbox_full": 409,
    "input_conflict": 409,
    "input_not_found": 404,
    "lease_held": 409,
    "invalid_cursor": 400,
    "invalid_document": 422,
    "invalid_input": 400,
    "invalid_writes": 422,
    "mode_locked": 409,
    "not_found": 404,
    "not_resumable": 409,
    "run_ended": 409,
    "run_exists": 409,
    "run_in_progress": 409,
    "run_not_found": 404,
    "session_busy": 503,
    "not_migrated": 503,
    "store_unavailable": 503,
    "session_exists": 409,
    "session_not_found": 404,
    "stale_state": 412,
    "still_waiting": 409,
    "submission_mismatch": 409,
    "sub_session_ref_exists": 409,
    "sub_session_ref_not_found": 404,
    "transient_error": 503,
    "unknown_tool_call": 404,
}


def all_errors(kind=exceptions.HelixSessionsError):
    yield kind
    for below in kind.__subclasses__():
        yield from all_errors(below)


def made(kind):
    if issubclass(kind, exceptions.StaleState):
        return kind(expected_version=1, current_version=2, current_status="active")
    if issubclass(kind, exceptions.EventsArchived):
        return kind(first_available_seq=7)
    if issubclass(kind, exceptions.LeaseHeld):
        return kind("worker-1", datetime(2030, 1, 1, tzinfo=UTC))
    if issubclass(kind, exceptions.SessionMoved):
        return kind(cell="west")
    return kind()


def is_problem(response, status, code):
    body = response.json()
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    assert set(body) >= KEYS
    assert (body["status"], body["code"]) == (status, code)
    assert body["type"] == f"urn:helix-sessions:problem:{code}"
    return body


def test_every_error_of_the_store_has_its_status():
    found = {
        kind.code: status_of(made(kind)) for kind in all_errors() if kind.__module__ == exceptions.__name__
    }
    assert {code: found[code] for code in CODES} == CODES
    assert all(status in STATUS_OF.values() for status in found.values())


def test_what_was_seen_is_told():
    body = json.loads(problem_of(made(exceptions.StaleState)).content)
    assert (body["expected_version"], body["current_version"], body["current_status"]) == (1, 2, "active")


def test_what_is_missing_is_told():
    body = json.loads(problem_of(exceptions.StillWaiting(tool_call_ids=["a"], sub_session_ids=["b"])).content)
    assert (body["tool_call_ids"], body["sub_session_ids"]) == (["a"], ["b"])


def test_who_holds_the_lease_is_told():
    body = json.loads(problem_of(made(exceptions.LeaseHeld)).content)
    assert (body["owner"], body["expires_at"]) == ("worker-1", "2030-01-01T00:00:00+00:00")


@each("kind", [exceptions.SessionBusy, exceptions.StoreUnavailable, exceptions.IdempotencyInProgress])
def test_when_to_try_again_is_told(kind):
    assert problem_of(kind())["Retry-After"] == "1"


every_call = each(("method", "name"), every_method())


@pytest.mark.django_db
class TestEveryMethod:
    @every_call
    def test_not_allowed(self, method, name, api, session):
        response = api.generic("TRACE", address(name, session))
        is_problem(response, 405, "method_not_allowed")

    @every_call
    def test_malformed(self, method, name, api, session, store, user, grant, client_of):
        if name in OPERATED:
            operates = ("change_toolrule", "change_webhook", "change_spendlimit", "change_schedule")
            api = client_of(grant(user, *operates))
        if method == "get" and name not in FRONT_ENDS:  # a page's library may send more
            response = api.get(address(name, session), {"nonsense": "1"})
            body = is_problem(response, 400, "invalid_input")
            assert "nonsense" in body["errors"]
        elif (method, name) in BODIES:
            send = getattr(api, method)
            path = address(name, session)
            before = store.load_state(session)
            is_problem(send(path, b"{", content_type="application/json"), 400, "parse_error")
            is_problem(send(path, b'{"a": NaN}', content_type="application/json"), 400, "parse_error")
            is_problem(send(path, b"a=1", content_type="text/plain"), 415, "unsupported_media_type")
            deep = b"[" * 100_000
            assert send(path, deep, content_type="application/json").status_code in (400, 422)
            if name not in ("metadata", *FRONT_ENDS):  # these take any other key
                body = is_problem(send(path, {"nonsense": 1}), 400, "invalid_input")
                assert ("action" if name == "actions" else "nonsense") in body["errors"]
                is_problem(send(path, b"7", content_type="application/json"), 400, "invalid_input")
            assert store.load_state(session) == before

    @every_call
    def test_not_acceptable(self, method, name, api, session):
        response = getattr(api, method)(
            address(name, session), BODIES.get((method, name)), headers={"Accept": "text/html"}
        )
        is_problem(response, 406, "not_acceptable")


@pytest.mark.django_db
class TestRefusals:
    def test_what_no_encoding_carries(self, api, session):
        raw = b'{"messages": [{"role": "user", "content": "\\ud800"}]}'
        response = api.post("/api/sessions/s/messages/", raw, content_type="application/json")
        is_problem(response, 422, "invalid_document")
        raw = b'{"run_id": "\\ud800"}'
        response = api.post("/api/sessions/s/runs/", raw, content_type="application/json")
        is_problem(response, 400, "invalid_input")

    def test_a_role_that_is_none(self, api, session):
        raw = b'{"messages": [{"role": "\\ud83d"}]}'
        response = api.post("/api/sessions/s/messages/", raw, content_type="application/json")
        is_problem(response, 400, "invalid_input")

    def test_writes_that_cannot_be_applied(self, api, session):
        api.patch("/api/sessions/s/state/", {"writes": [{"op": "set", "path": ["a"], "value": "text"}]})
        writes = [{"op": "append", "path": ["a"], "values": [1]}]
        is_problem(api.patch("/api/sessions/s/state/", {"writes": writes}), 422, "invalid_writes")

    def test_wrong_types(self, api, session):
        for body in ({"count": "1"}, {"count": True}, {"count": 1.5}, {"count": None}, {}):
            response = api.post("/api/sessions/s/messages/truncate/", body)
            assert "count" in is_problem(response, 400, "invalid_input")["errors"]
        for wrong in ({"expires_at": "2030-01-01T00:00:00"}, {"expires_at": 7}, {"agent_type": 7}):
            response = api.post("/api/sessions/", {"agent_type": "a", **wrong})
            is_problem(response, 400, "invalid_input")

    def test_missing_parts(self, api, session):
        is_problem(api.get("/api/sessions/s/runs/x/"), 404, "run_not_found")
        is_problem(api.get("/api/sessions/s/checkpoints/x/"), 404, "checkpoint_not_found")
        response = api.patch("/api/sessions/s/sub-sessions/x/", {"status": "failed"})
        is_problem(response, 404, "sub_session_ref_not_found")

    def test_conflicts(self, api, session):
        api.post("/api/sessions/s/runs/", {"run_id": "r"})
        is_problem(api.post("/api/sessions/s/runs/", {"run_id": "q"}), 409, "run_in_progress")
        is_problem(api.put("/api/sessions/s/state/", {"mode": "persistent"}), 409, "mode_locked")
        commit = {"state": {}, "checkpoint_meta": {"checkpoint_id": "c"}}
        assert api.post("/api/sessions/s/commit/", commit).status_code == 200
        assert api.post("/api/sessions/s/commit/", commit).json()["replayed"] is True
        other = {**commit, "append_messages": [{"role": "user"}]}
        is_problem(api.post("/api/sessions/s/commit/", other), 409, "commit_conflict")

    def test_cursors(self, api, session):
        for name in ("sessions", "messages", "runs", "checkpoints", "staging", "sub-sessions", "events"):
            response = api.get(address(name, session), {"cursor": "nonsense"})
            is_problem(response, 400, "invalid_cursor")
