"""Approvals in the loop: what runs is what was approved, once, and the model is told."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from helix_sessions.exceptions import AnswerForbidden, SubmissionMismatch
from helix_sessions.runtime import SessionRunner
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from helix_sessions.types import ToolResult
from helix_sessions.values.tools import ToolOptions
from tests.parallel import Worker
from tests.rows import each
from tests.runner.test_activities import whole

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(store: SessionStore) -> str:
    store.create_session("s", agent_type="shop")
    store.admit_input("s", "refund it")
    return "s"


class Shop(ScriptedAgent):
    """Calls `refund` as often as it is told, and wants an approval each time."""

    def __init__(self, *, result: Any = "paid", times: int = 1, **options: Any) -> None:
        self.paid: list[Any] = []
        self.result = result
        script = [calls("refund", cents=5) for _ in range(times)]
        for number, message in enumerate(script, 1):
            message["tool_calls"][0]["id"] = f"call-{number}"
        options = {"approval_tools": ["refund"], **options}
        super().__init__([*script, "done"], tools={"refund": self._refund}, **options)

    def _refund(self, arguments: Any, turn: Any) -> Any:
        if not isinstance(arguments.get("cents"), int):
            raise ValueError("cents must be a number")
        self.paid.append(arguments)
        return self.result


def result_of(store: SessionStore, call_id: str = "call-1") -> dict[str, Any]:
    found = store.get_messages("s").messages
    [message] = [each for each in found if each.get("tool_call_id") == call_id]
    return message


@each(
    "result",
    ["paid", {"ok": True}, None, [1], [{"type": "text", "text": "paid"}], ToolResult("paid")],
)
def test_edited_arguments_run_once_and_the_model_is_told(
    store: SessionStore, session: str, result: Any
) -> None:
    agent = Shop(result=result)
    assert SessionRunner(agent).run(session).kind == "suspended_client_tool"
    store.submit_tool_result(session, "call-1", approved=True, arguments={"cents": 321})
    assert SessionRunner(agent).wake(session).kind == "completed"
    assert agent.paid == [{"cents": 321}]
    seen = agent.turns[-1].context.messages
    assert seen[1]["tool_calls"][0]["arguments"] == {"cents": 5}
    assert "321" in json.dumps(seen[2]["content"])
    plain = result.content if isinstance(result, ToolResult) else result
    assert json.dumps(plain).strip('"[]') in json.dumps(seen[2]["content"])
    [ran] = store.get_events(session, types=["tool_called"])
    assert ran.data["arguments"] == {"cents": 321}
    edited = [event for event in store.get_events(session) if (event.data or {}).get("edited")]
    assert [event.type for event in edited] == ["tool_result_submitted"]
    whole(store, session)


def test_bad_edited_arguments_are_an_error_result(store: SessionStore, session: str) -> None:
    agent = Shop()
    SessionRunner(agent).run(session)
    store.submit_tool_result(session, "call-1", approved=True, arguments={"cents": "many"})
    assert SessionRunner(agent).wake(session).kind == "completed"
    assert agent.paid == []
    assert result_of(store)["is_error"]
    assert "cents must be a number" in result_of(store)["content"]
    assert "many" in result_of(store)["content"]
    whole(store, session)


def test_arguments_as_they_were_are_no_edit(store: SessionStore, session: str) -> None:
    agent = Shop()
    SessionRunner(agent).run(session)
    store.submit_tool_result(session, "call-1", approved=True, arguments={"cents": 5})
    SessionRunner(agent).wake(session)
    assert result_of(store)["content"] == "paid"


def test_a_sub_agent_gets_the_edited_prompt_and_the_model_is_told(store: SessionStore, session: str) -> None:
    agent = ScriptedAgent(
        [calls("research", prompt="all of it"), "done"],
        subagents={"research": "researcher"},
        approval_tools=["research"],
    )
    SessionRunner(agent, agent_types=["shop"]).run(session)
    store.submit_tool_result(session, "call-1", approved=True, arguments={"prompt": "a part of it"})
    assert SessionRunner(agent, agent_types=["shop"]).wake(session).kind == "suspended_awaiting_children"
    child = ScriptedAgent()
    SessionRunner(child, agent_types=["researcher"]).sweep()
    assert [turn.context.messages[-1]["content"] for turn in child.turns] == ["a part of it"]
    SessionRunner(agent, agent_types=["shop"]).sweep()
    told = result_of(store)["content"]
    assert "arguments" in told
    assert told.count("a part of it") == 2, "what it was asked, and what it said"
    whole(store, session)


def dies(path: str) -> None:
    """Resume the session, and die while the tool runs."""

    def pay(arguments: Any, turn: Any) -> str:
        Path(path).write_text(json.dumps([arguments, turn.idempotency_key]))
        os.kill(os.getpid(), signal.SIGKILL)
        return "never"

    agent = ScriptedAgent(tools={"refund": pay}, tool_options={"refund": {"approval": True, "retries": 2}})
    SessionRunner(agent, lease_ttl=1).wake("s")


def test_a_crash_repeats_the_arguments_that_were_approved(
    store: SessionStore, session: str, tmp_path: Path
) -> None:
    options = {"refund": ToolOptions(approval=True, retries=2)}
    agent = Shop(tool_options=options)
    SessionRunner(agent).run(session)
    store.submit_tool_result(session, "call-1", approved=True, arguments={"cents": 321})
    file = tmp_path / "paid"
    worker = Worker(dies, str(file))
    worker.wait_until_ready()
    worker.go()
    assert worker.ended() == -signal.SIGKILL
    tried, key = json.loads(file.read_text())
    assert tried == {"cents": 321}
    keys: list[str] = []

    def pay(arguments: Any, turn: Any) -> Any:
        keys.append(turn.idempotency_key)
        return arguments

    agent.tools["refund"] = pay
    deadline = time.monotonic() + 20
    while SessionRunner(agent).wake(session).kind != "completed":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert keys == [key]
    assert result_of(store)["content"]["result"] == {"cents": 321}
    whole(store, session)


def test_always_allow_in_this_session(store: SessionStore, session: str) -> None:
    agent = Shop(times=3)
    assert SessionRunner(agent).run(session).kind == "suspended_client_tool"
    store.submit_tool_result(session, "call-1", approved=True, remember="session")
    assert SessionRunner(agent).wake(session).kind == "completed"
    assert len(agent.paid) == 3
    [rule] = store.list_tool_rules(session_id=session)
    told = [event.data["by"] for event in store.get_events(session, types=["tool_result_submitted"])]
    assert [by["kind"] for by in told] == ["code", "rule", "rule"]
    store.delete_tool_rule(rule.rule_id)
    store.admit_input(session, "and again")
    again = Shop()
    assert SessionRunner(again).run(session).kind == "suspended_client_tool"
    assert again.paid == []


def test_what_the_tool_says_is_in_the_entry_of_the_call(store: SessionStore, session: str) -> None:
    schema = {"type": "object", "required": ["ok"]}
    agent = ScriptedAgent(
        [calls("refund", "pick", "pay"), "done"],
        tools={"refund": lambda arguments, turn: "paid", "pay": lambda arguments, turn: "paid"},
        tool_options={
            "refund": ToolOptions(approval="participant"),
            "pay": ToolOptions(approval=True),
            "pick": ToolOptions(client=True, response_schema=schema),
        },
    )
    SessionRunner(agent).run(session)
    entries = store.load_state(session).pending_client_tool_calls or {}
    assert entries["call-1"]["approver"] == "participant"
    assert entries["call-2"]["response_schema"] == schema
    assert "approver" not in entries["call-3"]
    with pytest.raises(SubmissionMismatch):
        store.submit_tool_result(session, "call-2", result={})
    with pytest.raises(AnswerForbidden):
        store.submit_tool_result(session, "call-3", approved=True, as_participant=True)
    store.submit_tool_result(session, "call-1", approved=True, as_participant=True)
    store.submit_tool_result(session, "call-2", result={"ok": 1}, as_participant=True)
    store.submit_tool_result(session, "call-3", approved=False)
    assert SessionRunner(agent).wake(session).kind == "completed"
