"""Both front ends on an event loop, under uvicorn, in another process than the worker."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from project.tokens import create_token
from tests.frontends.conftest import Frames, Speaking
from tests.parallel import wait_until
from tests.servers import http_server

pytestmark = pytest.mark.django_db(transaction=True)

Worker = Callable[..., None]


class _Answer:
    """An answer of httpx as `Frames` reads one."""

    def __init__(self, answer: httpx.Response) -> None:
        self.status_code = answer.status_code
        self.streaming_content = answer.iter_raw()
        self._answer = answer

    def __getitem__(self, name: str) -> str:
        return self._answer.headers[name]


class Person:
    """Somebody who only knows HTTP."""

    def __init__(self, address: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        self.http = httpx.Client(base_url=f"{address}/api/sessions/s/", headers=headers, timeout=30)

    @contextmanager
    def streams(self, method: str, path: str, **body: Any) -> Iterator[Frames]:
        """Leaving it drops the connection."""
        with self.http.stream(method, path, json=body or None) as answer:
            yield Frames(_Answer(answer))

    def chats(self, *messages: Any, **body: Any) -> Any:
        return self.streams("POST", "chat/", id="chat", messages=list(messages), **body)

    def runs(self, *messages: Any, **body: Any) -> Any:
        given = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "messages": list(messages), **body}
        return self.streams("POST", "ag-ui/", **given)

    def resumes(self) -> Any:
        return self.streams("GET", "chat/chat/stream")

    def said(self) -> list[str]:
        """What the page shows after a reload."""
        items = self.http.get("chat/").raise_for_status().json()["items"]
        return ["".join(part.get("text", "") for part in item["parts"]) for item in items]


@pytest.fixture
def pat(person: Any, session: str) -> Iterator[Person]:
    token = create_token(person, "test")
    with http_server(DJANGO_SETTINGS_MODULE="tests.frontends.settings") as server:
        yield Person(server.url, token)


def user_message(text: str, name: str) -> dict[str, Any]:
    return {"id": name, "role": "user", "parts": [{"type": "text", "text": text}]}


def text_of(chunks: list[Any], kind: str = "text-delta") -> str:
    return "".join(each["delta"] for each in chunks if isinstance(each, dict) and each["type"] == kind)


def test_the_ai_sdk(pat: Person, store: SessionStore, worker: Worker) -> None:
    speaking, stopped = Speaking("Hel", "lo ", "you"), Speaking("Wait", " for", " it")
    script = [speaking.turn, stopped.turn, calls("refund", cents=5), "Done."]
    tools = {"refund": lambda given, turn: "paid back"}
    worker(ScriptedAgent(script, tools=tools, approval_tools=["refund"]))

    # It is said in pieces; the connection drops in the middle, and another goes on from the start.
    with pat.chats(user_message("hi", "u1")) as frames:
        speaking.go()
        assert text_of(frames.until("text-delta")) == "Hel"
    with pat.resumes() as frames, pat.resumes() as second_tab:
        assert next(frames) == {"type": "start", "messageId": "u1:answer"}
        assert text_of(frames.until("text-delta")) == "Hel"
        speaking.go()
        assert text_of(frames.until("text-delta")) == "lo "
        speaking.go(2)
        assert text_of(list(frames)) == "you"
        assert text_of(list(second_tab)) == "Hello you"
    assert pat.http.get("chat/chat/stream").status_code == 204

    # Stopped, it keeps what was said.
    with pat.chats(user_message("again", "u2")) as frames:
        stopped.go()
        frames.until("text-delta")
        outcome = pat.http.post("chat/stop/", json={"timeout": 20})
        assert (outcome.status_code, outcome.json()["kind"]) == (200, "interrupted")
        *rest, done = frames
        assert done == b"[DONE]"
        assert [each["data"]["state"] for each in rest if "data" in each] == ["interrupted"]
    assert pat.said() == ["hi", "Hello you", "again", "Wait"]

    # Approved, the answer goes on in the same message.
    with pat.chats(user_message("my money", "u3")) as frames:
        assert [each["type"] for each in list(frames)[-3:-1]] == ["tool-approval-request", "finish"]
    part: dict[str, Any] = {"type": "tool-refund", "toolCallId": "call-1", "state": "approval-responded"}
    part["approval"] = {"id": "call-1", "approved": True}
    with pat.chats({"id": "u3:answer", "role": "assistant", "parts": [part]}) as frames:
        *chunks, _done = frames
    assert chunks[0] == {"type": "start", "messageId": "u3:answer"}
    assert [each["output"] for each in chunks if "output" in each] == ["paid back"]
    assert text_of(chunks) == "Done."


def test_ag_ui(pat: Person, store: SessionStore, worker: Worker) -> None:
    speaking, stopped = Speaking("Hel", "lo ", "you"), Speaking("Wait", " for", " it")
    script = [speaking.turn, stopped.turn, calls("refund", cents=5), "Done."]
    tools = {"refund": lambda given, turn: "paid back"}
    worker(ScriptedAgent(script, tools=tools, approval_tools=["refund"]))
    content = "TEXT_MESSAGE_CONTENT"

    with pat.runs({"id": "u1", "role": "user", "content": "hi"}) as frames:
        speaking.go()
        assert text_of(frames.until(content), content) == "Hel"
    with pat.streams("GET", "ag-ui/") as frames:
        assert text_of(frames.until(content), content) == "Hel"
        speaking.go(3)
        events = list(frames)
    assert text_of(events, content) == "lo you"
    assert events[-1]["outcome"] == {"type": "success"}

    with pat.runs({"id": "u2", "role": "user", "content": "again"}) as frames:
        stopped.go()
        frames.until(content)
        assert pat.http.post("chat/stop/", json={"timeout": 20}).json()["kind"] == "interrupted"
        assert list(frames)[-1]["outcome"] == {"type": "cancelled"}

    with pat.runs({"id": "u3", "role": "user", "content": "my money"}) as frames:
        [interrupt] = list(frames)[-1]["outcome"]["interrupts"]
    answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
    with pat.runs(resume=[answer]) as frames:
        events = list(frames)
    assert text_of(events, content) == "Done."
    assert pat.said() == ["hi", "Hello you", "again", "Wait", "my money", "Done."]


def test_dropped_connections_leave_nothing_behind(pat: Person, worker: Worker) -> None:
    """A user has a number of streams: those that were dropped give theirs back."""
    speaking = Speaking("Hel", "lo")
    worker(speaking.agent)
    with pat.chats(user_message("hi", "u1")) as frames:
        speaking.go()
        frames.until("text-delta")
    for _ in range(30):

        def resumed() -> bool:
            with pat.http.stream("GET", "chat/chat/stream") as answer:
                return answer.status_code == 200

        wait_until(resumed)
    speaking.go(2)
