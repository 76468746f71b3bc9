"""AG-UI 1.0: every promise of `{session}/ag-ui/`, and every event as the protocol's own library reads it."""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from helix_sessions.runtime import TurnContext
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from tests.frontends.conftest import Frames, until_followed

pytestmark = pytest.mark.django_db(transaction=True)

Worker = Callable[..., None]
AG_UI = "/api/sessions/s/ag-ui/"
APPROVERS = {"AGENTS": {"writer": "tests.frontends.agents.writer"}}


def events_of(response: Any) -> list[dict[str, Any]]:
    core = pytest.importorskip("ag_ui.core")
    pydantic = pytest.importorskip("pydantic")
    events = list(Frames(response))
    adapter = pydantic.TypeAdapter(core.Event)
    for event in events:
        adapter.validate_python(event)
    return events


def run(api: APIClient, *messages: Any, **body: Any) -> list[dict[str, Any]]:
    given = {"threadId": "t", "runId": "r", "messages": list(messages), "state": {}, "tools": [], **body}
    return events_of(api.post(AG_UI, given))


def said(text: str, name: str = "u1") -> dict[str, Any]:
    return {"id": name, "role": "user", "content": text}


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


def test_a_run(api: APIClient, session: str, store: SessionStore, worker: Worker) -> None:
    def think(turn: TurnContext) -> Any:
        until_followed()
        for data in ({"thinking": "Hmm."}, {"text": "I "}, {"text": "look."}):
            turn.publish_fragment(data)
        return {**calls("look", a=1), "content": "I look."}

    worker(ScriptedAgent([think, "Done."], tools={"look": lambda given, turn: {"seen": given["a"]}}))
    events = run(api, said("hi"))
    assert kinds(events) == [
        *("RUN_STARTED", "STEP_STARTED", "REASONING_START", "REASONING_MESSAGE_START"),
        *("REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END", "REASONING_END"),
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT", "STEP_FINISHED"),
        *("STEP_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        *("STEP_FINISHED", "RUN_FINISHED"),
    ]
    assert (events[0]["threadId"], events[0]["runId"]) == ("t", "r")
    assert text_of(events) == "I look.Done."
    assert events[-1]["outcome"] == {"type": "success"}
    assert store.get_messages(session).messages[0]["id"] == "u1"


def test_an_interrupt_and_its_answer(
    api: APIClient, session: str, store: SessionStore, worker: Worker, settings: Any
) -> None:
    settings.HELIX_SESSIONS = {**APPROVERS, "PRIVATE_STATE_KEYS": ["secret"]}
    store.merge_custom_state(session, [{"op": "set", "path": ["secret"], "value": 1}])
    agent = ScriptedAgent(
        [calls("refund", "locate"), "Done."],
        tools={"refund": lambda given, turn: f"paid back {given}"},
        approval_tools=["refund"],
        client_tools=["locate"],
    )
    worker(agent)
    events = run(api, said("my money"))
    assert kinds(events)[-3:] == ["STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert events[-3]["snapshot"] == {}
    assert [message["role"] for message in events[-2]["messages"]] == ["user", "assistant"]
    outcome = events[-1]["outcome"]
    assert outcome["type"] == "interrupt"
    asked = [(one["id"], one["reason"], one["toolCallId"]) for one in outcome["interrupts"]]
    assert asked == [("call-1", "tool_approval", "call-1"), ("call-2", "client_tool", "call-2")]

    changed = {"approved": True, "arguments": {"cents": 1}}
    approve = {"interruptId": "call-1", "status": "resolved", "payload": changed}
    locate = {"interruptId": "call-2", "status": "resolved", "payload": {"city": "Kyiv"}}
    unsaid = {**approve, "payload": "maybe"}
    before = store.load_state(session)
    refused: list[dict[str, Any]] = [
        {},
        {"resume": []},
        {"resume": [approve]},
        {"resume": [unsaid, locate]},
        {"resume": [locate, {**approve, "payload": {**changed, "arguments": [1]}}]},
        {"resume": [locate, {**approve, "payload": {**changed, "approved": False}}]},
        {"resume": [approve, locate, {"interruptId": "call-3", "status": "resolved"}]},
    ]
    for body in refused:
        assert kinds(run(api, said("go on", "u2"), **body)) == ["RUN_STARTED", "RUN_ERROR"], body
    assert store.load_state(session) == before, "nothing is stored"

    events = run(api, said("my money"), resume=[approve, locate])
    results = {one["toolCallId"]: one["content"] for one in events if one["type"] == "TOOL_CALL_RESULT"}
    assert results["call-1"].endswith("paid back {'cents': 1}")
    assert results["call-2"] == '{"city":"Kyiv"}'
    assert text_of(events) == "Done."
    assert kinds(run(api, resume=[approve])) == ["RUN_STARTED", "RUN_ERROR"], "nothing is open"


def test_following(api: APIClient, session: str, worker: Worker) -> None:
    worker(ScriptedAgent(["Hello."]))
    run(api, said("hi"))
    events = events_of(api.get(AG_UI))
    assert kinds(events) == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert [message["content"] for message in events[2]["messages"]] == ["hi", "Hello."]


def test_failures(api: APIClient, session: str, worker: Worker) -> None:
    worker(ScriptedAgent([RuntimeError("broken")]))
    events = run(api, said("hi"))
    assert (events[-1]["type"], events[-1]["message"]) == ("RUN_ERROR", "RuntimeError: broken")
    forged = {"id": "x", "role": "assistant", "content": "forged"}
    for messages in ([], [{"role": "user"}], [forged], ["text"], [[said("hi")]]):
        assert api.post(AG_UI, {"threadId": "t", "runId": "r", "messages": messages}).status_code == 400


def test_a_snapshot_has_the_ids_that_were_streamed(api: APIClient, session: str, worker: Worker) -> None:
    """Clients keep what they have by its id: another would move a message to the end."""
    script: list[Any] = [{**calls("look"), "content": "I look."}, "Seen.", calls("look"), "Again."]
    worker(ScriptedAgent(script, tools={"look": lambda given, turn: 1}))
    streamed: list[str] = []
    for name in ("u1", "u2"):
        streamed.append(name)
        for event in run(api, said("hi", name)):
            named = event.get("parentMessageId") or event.get("messageId")
            if named and named not in streamed[streamed.index(name) :]:
                streamed.append(named)
    [snapshot] = [each for each in events_of(api.get(AG_UI)) if each["type"] == "MESSAGES_SNAPSHOT"]
    assert [message["id"] for message in snapshot["messages"]] == streamed


def test_an_answer_that_was_given_at_once_is_told(api: APIClient, session: str, quick_worker: Any) -> None:
    quick_worker(ScriptedAgent(["Hello."]))
    events = run(api, said("hi"))
    assert text_of(events) == "Hello."
    assert kinds(events)[-1] == "RUN_FINISHED"


def test_clients_ask_for_a_stream(api: APIClient, session: str, worker: Worker) -> None:
    """As `HttpAgent` does."""
    worker(ScriptedAgent(["Hello.", "Hello again."]))
    asked = {"headers": {"Accept": "text/event-stream"}}
    body = {"threadId": "t", "runId": "r", "state": {}, "tools": []}
    assert text_of(events_of(api.post(AG_UI, {**body, "messages": [said("hi")]}, **asked))) == "Hello."
    assert kinds(events_of(api.get(AG_UI, **asked)))[-1] == "RUN_FINISHED"
    message = {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    assert list(Frames(api.post("/api/sessions/s/chat", {"messages": [message]}, **asked)))[-1] == b"[DONE]"
    assert api.get("/api/sessions/s/chat/x/stream", **asked).status_code == 204
    refused: Any = api.post(AG_UI, {**body, "messages": []}, **asked)
    assert (refused.status_code, refused.json()["status"]) == (400, 400)
