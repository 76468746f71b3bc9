"""Approvals over HTTP: other arguments, digests, schemas, remembered rules, links."""

import pytest

from tests.api.test_problems import is_problem
from tests.contract.suspended import approval, asked, suspended

pytestmark = pytest.mark.django_db

RESULTS = "/api/sessions/s/tool-results/"
NUMBER = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}


@pytest.fixture
def driver(user, grant, client_of, store):
    store.create_session("s", agent_type="shop", owner=user)
    return client_of(grant(user, "drive_session"))


def test_a_driver_approves_other_arguments(driver, store, user):
    suspended(store, "s", approval("a"), approval("b"))
    for arguments in ([1], "x", 1):
        body = {"tool_call_id": "a", "approved": True, "arguments": arguments}
        is_problem(driver.post(RESULTS, body), 409, "submission_mismatch")
    body = {"tool_call_id": "a", "approved": False, "arguments": {}}
    is_problem(driver.post(RESULTS, body), 409, "submission_mismatch")
    body = {"tool_call_id": "a", "approved": True, "arguments": {"n": 1}, "remember": "owner"}
    assert driver.post(RESULTS, body).json()["outcome"] == "accepted"
    [event] = store.get_events("s", types=["tool_result_submitted"])
    assert (event.data["edited"], event.data["arguments"]) == (True, {"n": 1})
    assert event.data["by"] == {"kind": "user", "id": str(user.pk)}
    assert [rule.owner_id for rule in store.list_tool_rules()] == [user.pk]
    is_problem(
        driver.post(RESULTS, {"tool_call_id": "b", "approved": True, "remember": "world"}),
        400,
        "invalid_input",
    )


def test_an_answer_may_name_what_it_is_about(driver, store):
    suspended(store, "s", approval("a"))
    seen = driver.get("/api/sessions/s/state/").json()["pending_client_tool_calls"]["a"]
    body = {"tool_call_id": "a", "approved": True, "arguments_digest": "0" * 64}
    is_problem(driver.post(RESULTS, body), 409, "submission_mismatch")
    body["arguments_digest"] = seen["arguments_digest"]
    assert driver.post(RESULTS, body).status_code == 200


def test_a_result_must_fit_the_schema_of_its_call(driver, store):
    run = driver.post("/api/sessions/s/turns/", {"message": "hello"}).json()
    state = {"custom_state": {}, "status": "active"}
    call = {"tool_call_id": "a", "tool_name": "pick", "arguments": {}}
    suspension = {"kind": "client_tool", "state": state, "run_id": run["run"]["run_id"]}
    remote = {**call, "response_schema": {"$ref": "https://example.com/schema"}}
    refused = driver.post("/api/sessions/s/suspend/", {**suspension, "pending_calls": [remote]})
    is_problem(refused, 400, "invalid_input")
    fits = {**call, "response_schema": NUMBER, "approver": "participant"}
    assert driver.post("/api/sessions/s/suspend/", {**suspension, "pending_calls": [fits]}).status_code < 300
    is_problem(driver.post(RESULTS, {"tool_call_id": "a", "result": {"n": "1"}}), 409, "submission_mismatch")
    assert driver.post(RESULTS, {"tool_call_id": "a", "result": {"n": 1}}).status_code == 200


def test_a_link_says_whether_its_holder_may_edit(driver, client_of, store):
    suspended(store, "s", approval("a"), asked("b", response_schema=NUMBER))
    anybody = client_of(None)
    plain, editing = (
        driver.post("/api/sessions/s/answer-links/", {"tool_call_id": "a", **body}).json()["url"]
        for body in ({}, {"may_edit": True})
    )
    assert [anybody.get(url).json()["may_edit"] for url in (plain, editing)] == [False, True]
    body = {"approved": True, "arguments": {"n": 1}}
    is_problem(anybody.post(plain, body), 403, "answer_forbidden")
    is_problem(anybody.post(plain, {"approved": True, "remember": "session"}), 400, "invalid_input")
    is_problem(anybody.post(editing, {**body, "arguments_digest": "x"}), 409, "submission_mismatch")
    assert anybody.post(editing, body).json() == {"outcome": "accepted"}
    url = driver.post("/api/sessions/s/answer-links/", {"tool_call_id": "b"}).json()["url"]
    assert anybody.get(url).json()["response_schema"] == NUMBER
    is_problem(anybody.post(url, {"result": 1}), 409, "submission_mismatch")
