"""Turns over HTTP: a session is begun, suspended, answered and resumed by whoever may."""

import pytest

from tests.contract.suspended import calling
from tests.rows import each

pytestmark = pytest.mark.django_db

CALL = {"tool_call_id": "c1", "tool_name": "tool_c1", "arguments": {"of": "c1"}}
CLIENT_CALL = {**CALL, "deadline": "2040-01-01T00:00:00Z"}
APPROVAL = {**CALL, "kind": "approval", "approval_id": "a1"}


@pytest.fixture
def suspend(api):
    """Begin a turn of the session, and suspend it on these calls."""

    def suspended(*calls, session_id="s", **more):
        turn = api.post(f"/api/sessions/{session_id}/turns/", {"message": "hello"}).json()
        body = {
            "kind": "client_tool",
            "state": turn["state"],
            "run_id": turn["run"]["run_id"],
            "append_messages": [calling(*(call["tool_call_id"] for call in calls))],
            "pending_calls": calls,
            **more,
        }
        response = api.post(f"/api/sessions/{session_id}/suspend/", body)
        assert response.status_code == 200, response.content
        return response

    return suspended


@pytest.fixture
def resume(api):
    """Resume a session as a driver does: under a lease, which it keeps."""

    def resumed(body=None, session_id="s", **headers):
        lease = api.post(f"/api/sessions/{session_id}/lease/", {"owner": "driver", "ttl": 60}).json()
        headers["Helix-Fence"] = str(lease["fence"])
        return api.post(f"/api/sessions/{session_id}/resume/", body or {}, headers=headers)

    return resumed


class TestBegin:
    def test_a_new_session_is_the_user_s(self, api, store, user):
        body = {"message": "hello", "agent_type": "support", "custom_state": {"a": 1}, "run_id": "r"}
        response = api.post("/api/sessions/new/turns/", body)
        assert (response.status_code, response["ETag"]) == (201, '"1"')
        turn = response.json()
        assert (turn["run"]["run_id"], turn["run"]["status"]) == ("r", "running")
        assert (turn["state"]["owner_id"], turn["state"]["custom_state"]) == (user.pk, {"a": 1})
        assert store.get_messages("new").messages == [{"role": "user", "content": "hello"}]

    def test_one_that_exists_is_continued(self, api, session, store):
        store.update_status("s", "completed", output="done")
        message = {"role": "user", "content": [{"type": "text", "text": "again"}]}
        response = api.post("/api/sessions/s/turns/", {"message": message}, headers={"If-Match": '"2"'})
        state = response.json()["state"]
        assert (state["status"], state["output"], state["version"]) == ("active", None, 3)
        assert response["ETag"] == '"3"'
        assert store.get_messages("s").messages == [message]

    def test_a_stale_caller_begins_nothing(self, api, session, store):
        response = api.post("/api/sessions/s/turns/", {"message": "hi"}, headers={"If-Match": '"7"'})
        assert (response.status_code, response.json()["code"]) == (412, "stale_state")
        assert store.list_runs("s").items == []

    def test_a_branch(self, api, session, store):
        store.append_messages("s", [{"role": "user", "content": "one"}])
        store.create_checkpoint("s", {"checkpoint_id": "c"})
        store.append_messages("s", [{"role": "user", "content": "two"}])
        turn = api.post("/api/sessions/b/turns/", {"branch": ["s", "c"], "message": "three"}).json()
        assert turn["state"]["forked_from"] == ["s", "c"]
        assert [message["content"] for message in store.get_messages("b").messages] == ["one", "three"]

    def test_a_branch_of_a_foreign_session_is_of_an_unknown_one(self, client_of, stranger, session, store):
        for source in ("s", "u"):
            response = client_of(stranger).post("/api/sessions/b/turns/", {"branch": [source, None]})
            assert (response.status_code, response.json()["code"]) == (404, "session_not_found")
        assert not store.session_exists("b")

    def test_while_a_run_is_running(self, api, session):
        assert api.post("/api/sessions/s/turns/").status_code == 201
        response = api.post("/api/sessions/s/turns/")
        assert (response.status_code, response.json()["code"]) == (409, "run_in_progress")

    def test_a_repeated_request_is_one_turn(self, api, session, store):
        headers = {"Idempotency-Key": "turn-1"}
        first = api.post("/api/sessions/s/turns/", {"message": "hi"}, headers=headers)
        again = api.post("/api/sessions/s/turns/", {"message": "hi"}, headers=headers)
        assert again.content == first.content
        assert again["Idempotency-Replayed"] == "true"
        assert len(store.list_runs("s").items) == 1

    @each("body", [{"message": 7}, {"message": {"role": "x"}}, {"branch": "s"}, {"branch": ["s"]}, {"x": 1}])
    def test_what_it_does_not_take(self, body, api, store):
        assert api.post("/api/sessions/new/turns/", body).status_code == 400
        assert not store.session_exists("new")


class TestRoundTrip:
    def test_a_client_tool(self, api, session, suspend, resume, store):
        suspended = suspend(CLIENT_CALL, suspension_context={"at": 1}, suspended_step_id="step")
        state = api.get("/api/sessions/s/").json()
        assert suspended["ETag"] == f'"{state["version"]}"'
        assert (state["suspension_context"], state["suspended_step_id"]) == ({"at": 1}, "step")
        entry = state["pending_client_tool_calls"]["c1"]
        assert (entry["kind"], entry["deadline"]) == ("client_tool", "2040-01-01T00:00:00+00:00")

        waiting = resume()
        assert (waiting.status_code, waiting.json()["code"]) == (409, "still_waiting")
        assert waiting.json()["tool_call_ids"] == ["c1"]

        answer = {"tool_call_id": "c1", "result": {"z": None, "a": "\u0000"}}
        headers = {"If-Match": suspended["ETag"]}
        accepted = api.post("/api/sessions/s/tool-results/", answer, headers=headers)
        assert accepted.json() == {"outcome": "accepted", "owner_session_id": "s", "remaining": 0}
        assert accepted["ETag"] == f'"{state["version"] + 1}"'
        again = api.post("/api/sessions/s/tool-results/", answer)
        assert again.json()["outcome"] == "already_completed"

        resumed = resume({"message": "go on"}, **{"If-Match": accepted["ETag"]})
        assert resumed.status_code == 200
        assert store.get_lease("s").owner == "driver"
        body = resumed.json()
        assert [message["content"] for message in body["tool_messages"]] == [answer["result"]]
        assert (body["approved"], body["respawn"], body["run"]["turn"]) == ([], [], 2)
        assert resumed["ETag"] == f'"{body["state"]["version"]}"'
        roles = [message["role"] for message in store.get_messages("s").messages]
        assert roles == ["user", "assistant", "tool", "user"]
        assert api.post("/api/sessions/s/tool-results/", answer).json()["outcome"] == "already_completed"

    def test_an_approval(self, api, session, suspend, resume):
        suspend(APPROVAL)
        answer = {"tool_call_id": "c1", "approved": True, "approval_id": "a1", "reason": "fine"}
        assert api.post("/api/sessions/s/tool-results/", answer).json()["outcome"] == "accepted"
        [approved] = resume().json()["approved"]
        assert approved["arguments"] == CALL["arguments"]
        assert approved["response"] == {"approved": True, "reason": "fine"}

    def test_a_null_result_is_a_result(self, api, session, suspend, resume):
        suspend(CALL)
        answer = {"tool_call_id": "c1", "result": None}
        assert api.post("/api/sessions/s/tool-results/", answer).json()["outcome"] == "accepted"
        [message] = resume().json()["tool_messages"]
        assert message["content"] is None

    def test_a_child_s_call_is_answered_at_the_root(self, api, session, suspend, store, user):
        store.create_session("child", agent_type="a", parent_session_id="s", owner=user)
        suspend(CALL, session_id="child")
        answer = {"tool_call_id": "c1", "result": 1}
        answered = api.post("/api/sessions/s/tool-results/", answer).json()
        assert answered == {"outcome": "accepted", "owner_session_id": "child", "remaining": 0}

    def test_children(self, api, session, suspend, resume, store, user):
        store.create_session("child", agent_type="a", parent_session_id="s", owner=user)
        wait = {"parent_tool_call_id": "c9", "sub_session_id": "child", "agent_type": "a"}
        suspend(kind="awaiting_children", awaiting_children=[wait], append_messages=[calling("c9")])
        waiting = resume().json()
        assert waiting["sub_session_ids"] == ["child"]
        path, body = "/api/sessions/s/children/child/", {"status": "completed", "output": {"n": 1}}
        assert api.post(path, body, headers={"If-Match": '"9"'}).status_code == 412
        assert api.post(path, body, headers={"If-Match": '"1"'}).status_code == 204
        assert api.post(path, body).status_code == 204
        [message] = resume().json()["tool_messages"]
        assert (message["tool_call_id"], message["content"]) == ("c9", {"n": 1})

    def test_a_suspension_repeated_under_its_checkpoint(self, api, session, store):
        turn = api.post("/api/sessions/s/turns/").json()
        body = {
            "kind": "client_tool",
            "state": turn["state"],
            "run_id": turn["run"]["run_id"],
            "pending_calls": [CALL],
            "checkpoint_meta": {"checkpoint_id": "c"},
        }
        first = api.post("/api/sessions/s/suspend/", body).json()
        assert api.post("/api/sessions/s/suspend/", body).json() == {**first, "replayed": True}
        other = api.post("/api/sessions/s/suspend/", {**body, "pending_calls": []})
        assert (other.status_code, other.json()["code"]) == (409, "commit_conflict")

    def test_rewind(self, api, session, store):
        store.append_messages("s", [{"role": "user", "content": "one"}])
        store.create_checkpoint("s", {"checkpoint_id": "c"})
        store.append_messages("s", [{"role": "user", "content": "two"}])
        stale = api.post("/api/sessions/s/rewind/", {"checkpoint_id": "c"}, headers={"If-Match": '"1"'})
        assert stale.status_code == 412
        response = api.post("/api/sessions/s/rewind/", {"checkpoint_id": "c"})
        assert (response.status_code, response.json()["message_count"]) == (200, 1)
        assert response["ETag"] == f'"{store.load_state("s").version}"'
        unknown = api.post("/api/sessions/s/rewind/", {"checkpoint_id": "x"})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "checkpoint_not_found")


class TestRefusals:
    @each(
        ("answer", "status", "code"),
        [
            ({"tool_call_id": "u", "result": 1}, 404, "unknown_tool_call"),
            ({"tool_call_id": "c1"}, 409, "submission_mismatch"),
            ({"tool_call_id": "c1", "result": 1, "error": "e"}, 409, "submission_mismatch"),
            ({"tool_call_id": "c1", "result": 1}, 409, "submission_mismatch"),
            ({"tool_call_id": "c1", "approved": True, "approval_id": "x"}, 409, "submission_mismatch"),
            ({"tool_call_id": "c1", "approved": "yes"}, 400, "invalid_input"),
            ({"tool_call_id": 1, "approved": True}, 400, "invalid_input"),
            ({"approved": True}, 400, "invalid_input"),
            ({"tool_call_id": "c1", "approved": True, "by": "me"}, 400, "invalid_input"),
            ({"tool_call_id": "c" * 257, "approved": True}, 422, "invalid_document"),
            ({"tool_call_id": "c1", "error": "e" * 8193}, 422, "invalid_document"),
            ({"tool_call_id": "c1", "result": "r" * 1024 * 1024}, 422, "invalid_document"),
        ],
    )
    def test_answers(self, answer, status, code, api, session, suspend, store):
        suspend(APPROVAL)
        before = store.load_state("s")
        response = api.post("/api/sessions/s/tool-results/", answer)
        assert (response.status_code, response.json()["code"]) == (status, code)
        assert store.load_state("s") == before

    def test_who_answered_is_the_user(self, api, session, suspend, store, user):
        suspend(APPROVAL)
        api.post("/api/sessions/s/tool-results/", {"tool_call_id": "c1", "approved": True})
        [event] = store.get_events("s", types=["tool_result_submitted"])
        assert event.data["by"] == {"kind": "user", "id": str(user.pk)}
        assert [row.session_id for row in store.list_runnable()] == ["s"]

    def test_resuming_what_a_worker_drives_asks_for_a_run(self, api, session, suspend, store, settings):
        settings.HELIX_SESSIONS = {"AGENTS": {"test": "tests.runner.agents.polite"}, "WAKER": ""}
        suspend(APPROVAL)
        store.submit_tool_result("s", "c1", approved=True)
        response = api.post("/api/sessions/s/resume/", {"message": "hurry"})
        assert (response.status_code, response.json()["scheduled"]) == (202, True)
        assert response.json()["runnable_at"] is not None
        assert store.get_current_run("s") is None, "no run without an owner"
        assert [receipt.prompt for receipt in store.list_inputs("s")] == ["hurry"]
        assert len(store.get_events("s", types=["run_requested"])) == 1

    def test_a_driver_with_a_lease_resumes_what_a_worker_would(
        self, session, suspend, resume, store, settings
    ):
        settings.HELIX_SESSIONS = {"AGENTS": {"test": "tests.runner.agents.polite"}, "WAKER": ""}
        suspend(APPROVAL)
        store.submit_tool_result("s", "c1", approved=True)
        response = resume()
        assert (response.status_code, len(response.json()["approved"])) == (200, 1)
        assert store.get_current_run("s").run_id == response.json()["run"]["run_id"]

    def test_no_run_begins_without_an_owner(self, api, session, suspend, store):
        suspend(APPROVAL)
        store.submit_tool_result("s", "c1", approved=True)
        before = store.load_state("s")
        assert api.post("/api/sessions/s/resume/").status_code == 400
        stale = api.post("/api/sessions/s/resume/", headers={"Helix-Fence": "7"})
        assert (stale.status_code, stale.json()["code"]) == (409, "fenced")
        assert store.load_state("s") == before

    def test_nothing_to_resume(self, session, resume):
        response = resume()
        assert (response.status_code, response.json()["code"]) == (409, "not_resumable")

    def test_a_child_of_another(self, api, session, store, user):
        store.create_session("mine too", agent_type="a", owner=user)
        response = api.post("/api/sessions/s/children/mine too/", {"status": "completed"})
        assert (response.status_code, response.json()["code"]) == (404, "session_not_found")
        assert store.load_state("mine too").status == "active"

    @each(
        "change",
        [
            {"kind": "else"},
            {"run_id": None},
            {"pending_calls": [{"tool_call_id": "c1"}]},
            {"pending_calls": [CALL, CALL]},
            {"pending_calls": [{**CALL, "deadline": "2040-01-01T00:00:00"}]},
            {"pending_calls": [{**CALL, "kind": "else"}]},
            {"awaiting_children": [{"sub_session_id": "x"}]},
        ],
    )
    def test_suspensions(self, change, api, session, store):
        turn = api.post("/api/sessions/s/turns/").json()
        before = store.load_state("s")
        body = {"kind": "client_tool", "state": {}, "run_id": turn["run"]["run_id"], **change}
        assert api.post("/api/sessions/s/suspend/", body).status_code == 400
        assert store.load_state("s") == before
