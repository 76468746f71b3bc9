"""The calls of the store as resources: what goes in comes out."""

import json
from dataclasses import fields

import pytest

from helix_sessions import types
from helix_sessions.api.serializers import checkpoints, events, messages, runs, sessions, staging, states
from helix_sessions.api.serializers import sub_sessions as refs
from tests.rows import each

pytestmark = pytest.mark.django_db

EXACT = '{"z": 1, "a": [null, 1.0, 1e2, 123456789012345678901234567890], "nul": "\\u0000", "s": "\\u2028é🙂"}'


@each(
    ("serializer", "value"),
    [
        (sessions.SessionSummarySerializer, types.SessionSummary),
        (states.SessionStateSerializer, types.SessionState),
        (states.CasOkSerializer, types.CasOk),
        (states.InterruptRequestSerializer, types.InterruptRequest),
        (checkpoints.CommitResultSerializer, types.CommitResult),
        (checkpoints.CheckpointSerializer, types.Checkpoint),
        (checkpoints.CheckpointMetaInput, types.CheckpointMeta),
        (messages.AppendResultSerializer, types.AppendResult),
        (runs.RunSerializer, types.Run),
        (staging.StagedChangeSerializer, types.StagedChange),
        (events.EventSerializer, types.EventRecord),
        (events.ProjectedMessageSerializer, types.ProjectedMessage),
        (refs.SubSessionRefSerializer, types.SubSessionRef),
    ],
)
def test_shapes_are_those_of_the_store(serializer, value):
    assert set(serializer().fields) == {known.name for known in fields(value)}


class TestSessions:
    def test_everything_given_is_there(self, api, session, user):
        body = {
            "session_id": "full",
            "agent_type": "a",
            "custom_state": {"n": 1},
            "user_id": "u",
            "stream_id": "st",
            "tags": ["x", "y"],
            "metadata": {"k": [1]},
            "parent_session_id": "s",
            "mode": "persistent",
            "expires_at": "2040-01-01T02:00:00+02:00",
            "tracing_context": {"t": None},
            "workspace_ref": "w",
        }
        created = api.post("/api/sessions/", body)
        assert created.status_code == 201
        state = created.json()
        assert {name: state[name] for name in body if name != "expires_at"} == {
            name: value for name, value in body.items() if name != "expires_at"
        }
        assert state["expires_at"] == "2040-01-01T00:00:00+00:00"
        assert (state["root_session_id"], state["owner_id"], state["version"]) == ("s", user.pk, 1)
        assert created["Location"] == "http://testserver/api/sessions/full/"
        assert api.get(created["Location"]).json() == state

    def test_an_id_is_made(self, api):
        made = api.post("/api/sessions/", {"agent_type": "a"}).json()["session_id"]
        assert len(made) == 36

    def test_put_is_the_same_session_again(self, api, store):
        first = api.put("/api/sessions/p/", {"agent_type": "a", "tags": ["x"]})
        again = api.put("/api/sessions/p/", {"agent_type": "b"})
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json() == first.json()

    def test_delete_is_once(self, api, session, store):
        assert api.delete("/api/sessions/s/").status_code == 204
        assert api.delete("/api/sessions/s/").status_code == 404

    def test_head_asks_whether_it_exists(self, api, session):
        assert api.head("/api/sessions/s/").status_code == 200
        assert api.head("/api/sessions/u/").status_code == 404

    def test_metadata(self, api, session):
        api.patch("/api/sessions/s/metadata/", {"a": 1, "b": 2})
        assert api.patch("/api/sessions/s/metadata/", {"a": None, "c": {}}).json() == {"version": 3}
        assert api.get("/api/sessions/s/metadata/").json() == {"metadata": {"b": 2, "c": {}}, "version": 3}
        assert api.patch("/api/sessions/s/metadata/", [1]).status_code == 422

    def test_a_branch(self, api, session, store):
        store.append_messages("s", [{"role": "user", "n": n} for n in range(3)])
        store.create_checkpoint("s", {"checkpoint_id": "c"})
        store.append_messages("s", [{"role": "user", "n": 3}])
        branch = api.post("/api/sessions/s/clone/", {"new_id": "b", "checkpoint_id": "c"})
        assert branch.status_code == 201
        assert branch.json()["forked_from"] == ["s", "c"]
        assert store.get_message_count("b") == 3
        body = {"new_id": "b2", "message_count": 1}
        assert api.post("/api/sessions/s/clone/", body).json()["message_count"] == 1
        assert api.post("/api/sessions/s/clone/", body).status_code == 409

    def test_attach_creates(self, api, store, user):
        assert api.post("/api/sessions/new/attach/").json() == {"head_seq": 1}
        assert store.load_state("new").owner_id == user.pk
        assert api.post("/api/sessions/new/attach/").json() == {"head_seq": 1}


class TestState:
    def test_documents_are_exact(self, api, session, store):
        raw = f'{{"custom_state": {EXACT}, "output": {EXACT}}}'
        response = api.put("/api/sessions/s/state/", raw.encode(), content_type="application/json")
        assert response.status_code == 200
        for answer in (response, api.get("/api/sessions/s/state/"), api.get("/api/sessions/s/")):
            loaded = json.loads(answer.content)
            assert json.dumps(loaded["custom_state"]) == json.dumps(json.loads(EXACT))
            assert json.dumps(loaded["output"]) == json.dumps(json.loads(EXACT))

    def test_what_is_read_can_be_saved(self, api, session):
        state = api.get("/api/sessions/s/state/").json()
        state["custom_state"] = {"edited": True}
        state["pending_client_tool_calls"] = {}
        saved = api.put("/api/sessions/s/state/", state, headers={"If-Match": '"1"'}).json()
        assert saved["custom_state"] == {"edited": True}
        assert saved["pending_client_tool_calls"] == {}
        assert saved["suspended_awaiting_children"] is None
        assert saved["version"] == 2

    def test_a_mode_left_out_stays(self, api, user, store):
        store.create_session("p", agent_type="a", owner=user, mode="persistent")
        assert api.put("/api/sessions/p/state/", {}).json()["mode"] == "persistent"
        assert api.post("/api/sessions/p/commit/", {"state": {}}).status_code == 200
        assert api.put("/api/sessions/p/state/", {"mode": "standard"}).status_code == 409

    def test_patches(self, api, session):
        writes = [{"op": "append", "path": ["items"], "values": [1]}]
        assert api.patch("/api/sessions/s/state/", {"writes": writes}).json()["custom_state"] == {
            "items": [1]
        }
        patch = json.dumps([{"op": "add", "path": "/items/-", "value": 2}])
        response = api.patch(
            "/api/sessions/s/state/", patch.encode(), content_type="application/json-patch+json"
        )
        assert response.json()["custom_state"] == {"items": [1, 2]}
        assert response["ETag"] == '"3"'
        assert api.patch("/api/sessions/s/state/", {"writes": []})["ETag"] == '"3"'

    def test_status_by_decree(self, api, session):
        response = api.put("/api/sessions/s/status/", {"status": "failed", "error": "e", "output": None})
        assert response.json() == {"version": 2}
        assert api.get("/api/sessions/s/status/").json() == {"status": "failed", "version": 2}

    def test_counters(self, api, session):
        assert api.post("/api/sessions/s/counters/step/").json() == {"value": 1}
        assert api.post("/api/sessions/s/counters/step/", headers={"If-Match": '"2"'})["ETag"] == '"3"'
        assert api.post("/api/sessions/s/counters/resume/").json() == {"value": 1}
        counters = {"step_count": 2, "resume_count": 1, "version": 4}
        assert api.get("/api/sessions/s/counters/").json() == counters

    def test_the_interrupt_flag(self, api, session):
        path = "/api/sessions/s/interrupt/"
        assert api.get(path).json() == {"interrupt": None}
        assert api.put(path, {"reason": "stop"}).json() == {"version": 2}
        assert api.get(path).json()["interrupt"]["reason"] == "stop"
        assert api.post(f"{path}take/").json()["interrupt"]["reason"] == "stop"
        assert api.post(f"{path}take/").json() == {"interrupt": None}
        api.put(path)
        assert api.delete(path).status_code == 204
        assert api.get(path).json() == {"interrupt": None}


class TestCommit:
    def test_a_step(self, api, session, store):
        api.put(
            "/api/sessions/s/staging/step-1/call-1/", {"writes": [{"op": "set", "path": ["t"], "value": 1}]}
        )
        body = {
            "state": {"custom_state": {"a": 1}, "step_count": 1},
            "append_messages": [{"role": "user", "content": "hi"}],
            "checkpoint_meta": {"checkpoint_id": "c1", "step_id": "step-1", "metadata": {"m": 1}},
        }
        first = api.post("/api/sessions/s/commit/", body, headers={"If-Match": '"1"'})
        assert first.json() == {
            "version": 2,
            "checkpoint_id": "c1",
            "message_count": 1,
            "head_seq": store.load_state("s").head_seq,
            "replayed": False,
        }
        assert first["ETag"] == '"2"'
        again = api.post("/api/sessions/s/commit/", body, headers={"If-Match": '"1"'})
        assert again.json() == {**first.json(), "replayed": True}
        checkpoint = api.get("/api/sessions/s/latest-checkpoint/").json()["checkpoint"]
        assert checkpoint == api.get("/api/sessions/s/checkpoints/c1/").json()
        assert checkpoint["state"]["custom_state"] == {"a": 1, "t": 1}
        assert (checkpoint["source"], checkpoint["metadata"]) == ("staging", {"m": 1})


class TestMessages:
    def test_texts_come_back_byte_for_byte(self, api, session, store):
        content = json.dumps(json.loads(EXACT), ensure_ascii=False, separators=(",", ":"))
        text = f'{{"role":"user","content":{content}}}'
        response = api.post(
            "/api/sessions/s/messages/", f'{{"messages":[{text}]}}'.encode(), content_type="application/json"
        )
        assert response.json() == {"first_position": 0, "message_count": 1, "version": 2, "head_seq": 2}
        assert response.status_code == 201
        assert text.encode() in api.get("/api/sessions/s/messages/").content
        assert text.encode() in api.get("/api/sessions/s/events/").content

    def test_truncation(self, api, session, store):
        store.append_messages("s", [{"role": "user", "n": n} for n in range(3)])
        response = api.post("/api/sessions/s/messages/truncate/", {"count": 1}, headers={"If-Match": '"2"'})
        assert response.json() == {"removed": 2}
        assert response["ETag"] == '"3"'
        assert api.get("/api/sessions/s/messages/count/").json() == {"message_count": 1}
        again = api.post("/api/sessions/s/messages/truncate/", {"count": 1}, headers={"If-Match": '"3"'})
        assert (again.json(), again["ETag"]) == ({"removed": 0}, '"3"')


class TestRuns:
    def test_a_run(self, api, session):
        run = api.post("/api/sessions/s/runs/", {"run_id": "r", "metadata": {"m": 1}}).json()
        assert (run["turn"], run["status"], run["metadata"]) == (1, "running", {"m": 1})
        assert api.get("/api/sessions/s/current-run/").json() == {"run": run}
        ended = api.patch("/api/sessions/s/runs/r/", {"status": "completed", "output": [1]}).json()
        assert ended["output"] == [1]
        assert api.get("/api/sessions/s/current-run/").json() == {"run": None}
        assert api.get("/api/sessions/s/runs/r/").json() == ended


class TestStaging:
    def test_promotion(self, api, session):
        path = "/api/sessions/s/staging/"
        for call in ("a", "b"):
            writes = [{"op": "append", "path": ["l"], "values": [call]}]
            assert api.put(f"{path}step/{call}/", {"writes": writes}).json()["tool_call_id"] == call
        staged = api.get(path).json()["items"]
        assert [change["tool_call_id"] for change in staged] == ["a", "b"]
        assert api.get(path, {"step_id": "other"}).json()["items"] == []
        assert api.post(f"{path}promote/", {"step_id": "step"}).json()["version"] == 2
        assert api.get("/api/sessions/s/").json()["custom_state"] == {"l": ["a", "b"]}

    def test_discarding(self, api, session):
        for step in ("one", "two"):
            api.put(f"/api/sessions/s/staging/{step}/c/", {"writes": []})
        assert api.post("/api/sessions/s/staging/discard/", {"step_id": "one"}).json() == {"removed": 1}
        assert api.post("/api/sessions/s/staging/cleanup/", {"older_than_seconds": 60}).json() == {
            "removed": 0
        }
        assert api.post("/api/staging/cleanup/", {"older_than_seconds": 0}).json() == {"removed": 1}


class TestSubSessions:
    def test_references(self, api, session):
        path = "/api/sessions/s/sub-sessions/"
        ref = {"sub_session_id": "c", "agent_type": "a", "mode": "persistent"}
        assert api.post(path, {"refs": [ref]}).json() == {"version": 2}
        assert api.post(path, {"refs": [ref]}).json() == {"version": 2}
        assert api.post(path, {"refs": [{**ref, "agent_type": "b"}]}).status_code == 409
        changed = api.patch(f"{path}c/", {"status": "completed", "result": {"r": 1}}).json()
        assert (changed["status"], changed["result"]) == ("completed", {"r": 1})
        assert api.get(path).json()["items"] == [changed]


class TestEvents:
    def test_emitting(self, api, session):
        path = "/api/sessions/s/events/"
        body = {"type": "note", "data": [1, None], "turn_id": "t", "idempotency_key": "k"}
        first = api.post(path, body)
        assert first.status_code == 201
        assert api.post(path, {**body, "data": 2}).json() == first.json()
        assert api.get(path, {"from_seq": 2}).json()["items"] == [first.json()]
        assert first.json()["seq"] == 2

    def test_ranges(self, api, session, store):
        for n in range(4):
            store.emit_event("s", "a" if n % 2 else "b", {"n": n})
        path = "/api/sessions/s/events/"
        assert [event["seq"] for event in api.get(path, {"from_seq": 2, "to_seq": 4}).json()["items"]] == [
            2,
            3,
        ]
        found = api.get(path, {"types": ["a", "session_started"]}).json()["items"]
        assert [event["type"] for event in found] == ["session_started", "a", "a"]
        assert api.get(path, {"run_id": "none"}).json() == {"items": [], "next_cursor": None}

    def test_the_projection(self, api, session, store):
        store.append_messages("s", [{"role": "user", "content": "hi"}])
        store.emit_event("s", "tool_called", {"tool_call_id": "c", "name": "t"})
        lines = api.get("/api/sessions/s/events/projection/").json()["items"]
        assert lines[0]["content"] == "hi"
        assert [line["role"] for line in lines] == ["user", "tool_call"]
