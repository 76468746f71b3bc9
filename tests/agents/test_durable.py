"""`durable` around any agent: its sessions are created, and driven in place through the same loop."""

import asyncio
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from helix_sessions.agents import DurableAgent, ScriptedAgent, ToolOptions, durable
from helix_sessions.exceptions import InvalidInput, NotConfigured, TransientError
from helix_sessions.integrations.extras import check_version
from helix_sessions.runtime import Budget, RetryPolicy, SessionRunner
from helix_sessions.runtime.scripted import calls
from helix_sessions.store import AsyncSessionStore, SessionStore
from helix_sessions.types import EventRecord

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_session_is_created_and_driven_in_place(store: SessionStore) -> None:
    agent = durable(ScriptedAgent("one", "two"), name="writer")
    outcome = agent.run("s", "first", user_id="u", tags=["a"])
    assert outcome.kind == "completed"
    state = store.load_state("s")
    assert (state.agent_type, state.user_id, state.status) == ("writer", "u", "completed")
    assert async_to_sync(agent.arun)("s", {"content": "second"}).kind == "completed"
    said = [message["content"] for message in store.get_messages("s").messages]
    assert said == ["first", "one", "second", "two"]


def test_the_stream_is_from_the_admission_to_the_end(store: SessionStore) -> None:
    def streaming(turn: Any) -> str:
        for piece in ("Hel", "lo"):
            turn.publish_fragment({"text": piece})
        return "Hello"

    agent = durable(ScriptedAgent("before", streaming), name="writer")
    agent.run("s", "first")
    before = store.get_session_head("s").head_seq

    async def collect() -> list[Any]:
        return [found async for found in agent.astream("s", "second")]

    found = async_to_sync(collect)()
    events = [each for each in found if isinstance(each, EventRecord)]
    assert [event.seq for event in events] == list(
        range(before + 1, store.get_session_head("s").head_seq + 1)
    )
    assert (events[0].type, events[0].data["input_id"]) == (
        "input_admitted",
        store.get_messages("s").messages[2]["id"],
    )
    assert "".join(each.data["text"] for each in found if not isinstance(each, EventRecord)) == "Hello"


def test_who_stops_reading_stops_nothing(store: SessionStore) -> None:
    agent = durable(ScriptedAgent(calls("wait"), "done", tools={"wait": lambda *a: "waited"}), name="writer")

    async def first() -> Any:
        stream = agent.astream("s", "go")
        found = await anext(stream)
        await stream.aclose()
        while (await AsyncSessionStore().load_state("s")).status != "completed":
            await asyncio.sleep(0.01)
        return found

    assert async_to_sync(first)().type == "input_admitted"


def test_what_a_wait_is_worth(store: SessionStore) -> None:
    """A retry that comes later is waited for; a session that waits for a person is not."""
    agent = durable(
        ScriptedAgent(TransientError("busy", retry_after=5.2), calls("ask")),
        name="w",
        tools={"ask": ToolOptions(client=True)},
    )
    assert agent.run("s", "go").kind == "suspended_client_tool"
    assert agent.run("s", "and?").kind == "suspended_client_tool"
    store.submit_tool_result("s", "call-1", result="yes")
    assert SessionRunner(agent).wake("s").kind == "completed"


def test_options_reach_the_loop(store: SessionStore) -> None:
    policy = RetryPolicy(max_attempts=1)
    inner = ScriptedAgent(calls("pay"), tools={"pay": lambda *a: 1}, tool_options={"pay": {"retries": 1}})
    agent = durable(
        inner, tools={"pay": {"approval": True}}, retry=policy, turn_timeout=9, budget={"max_steps": 1}
    )
    assert isinstance(agent, DurableAgent)
    assert (agent.name, agent.retry, agent.turn_timeout) == ("ScriptedAgent", policy, 9)
    assert agent.budget == Budget(max_steps=1)
    assert agent.run("s", "go").kind == "suspended_client_tool"
    store.submit_tool_result("s", "call-1", approved=True)
    outcome = SessionRunner(agent).wake("s")
    assert outcome.error["code"] == "budget_exceeded"
    assert store.load_state("s").status == "paused"


def test_what_is_no_agent(store: SessionStore) -> None:
    with pytest.raises(NotConfigured):
        durable(object())
    with pytest.raises(NotConfigured):
        SessionRunner(object())
    with pytest.raises(InvalidInput):
        durable(ScriptedAgent(), deps={"a": 1})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        durable(ScriptedAgent(), tools={"x": {"approval": "perhaps"}})


def test_a_framework_that_is_too_old_is_refused_with_a_sentence() -> None:
    check_version("Django", "5.2")
    check_version("no-such-package", "1.0")
    with pytest.raises(NotConfigured, match=r"Agents of Django .* cannot be driven. Install 99.1 or newer"):
        check_version("Django", "99.1")
