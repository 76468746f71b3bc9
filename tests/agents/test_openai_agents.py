"""Agents of the OpenAI Agents SDK under our loop, with a fake model."""

# mypy: disable-error-code="arg-type,union-attr"

from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("agents")

from agents import Agent, function_tool
from asgiref.sync import async_to_sync
from openai import APIConnectionError, RateLimitError
from pydantic import BaseModel

from helix_sessions.agents import ToolOptions, current_turn, durable
from helix_sessions.exceptions import NotConfigured
from helix_sessions.runtime import AgentDefinition, RetryPolicy, SessionRunner, SessionRuntime
from helix_sessions.runtime.agents import agent_for
from helix_sessions.store import SessionStore
from helix_sessions.types import Fragment
from tests.agents.openai_models import Script, call, text
from tests.agents.test_crashes import approve, drive, killed_while, lines, swept
from tests.parallel import Worker

pytestmark = pytest.mark.django_db(transaction=True)


class City(BaseModel):
    name: str


def results(store: SessionStore, session: str = "s") -> list[tuple[Any, bool]]:
    messages = store.get_messages(session).messages
    return [(m["content"], m.get("is_error", False)) for m in messages if m["role"] == "tool"]


def test_our_loop_executes_its_tools(store: SessionStore) -> None:
    seen: list[Any] = []

    @function_tool
    def double(n: int) -> int:
        """Twice."""
        turn = current_turn()
        seen.append((turn.session_id, turn.tool_call_id, len(store.get_events("s", types=["tool_called"]))))
        return 2 * n

    model = Script([call("double", arguments='{"n": 21}')], [text("42 it is")], [text("again")])
    agent = Agent(name="A", instructions="Count.", model=model, tools=[double])
    SessionRuntime(store).create(AgentDefinition("A", system_prompt="Well."), session_id="s")
    outcome = durable(agent).run("s", "Twice 21?")
    assert (outcome.kind, outcome.output, outcome.run.step_count) == ("completed", "42 it is", 2)
    assert seen == [("s", "call-1", 1)]
    assert results(store) == [(42, False)]
    assert model.instructions[0] == "Count.\n\nWell."
    assert store.get_usage("s").input_tokens == 20
    durable(agent).run("s", "Again?")
    kinds = [item.get("type", item.get("role")) for item in model.inputs[-1]]
    assert kinds == ["user", "function_call", "function_call_output", "message", "user"]


def test_an_approval_suspends_and_goes_on_anywhere(store: SessionStore) -> None:
    ran: list[int] = []

    async def is_large(context: Any, arguments: Any, call_id: str) -> bool:
        return bool(arguments["cents"] > 100)

    @function_tool(needs_approval=is_large)
    def pay(cents: int) -> str:
        """Pay."""
        ran.append(cents)
        return "paid"

    large, small = call("pay", "a", '{"cents": 500}'), call("pay", "b", '{"cents": 5}')
    agent = Agent(name="A", model=Script([large, small], [text("done")]), tools=[pay])
    assert durable(agent).run("s", "go").kind == "suspended_step_partial"
    assert ran == [5]
    approve(store, "s")
    assert SessionRunner(agent).wake("s").output == "done"
    assert ran == [5, 500]


def test_options_sub_agents_and_outputs(store: SessionStore, settings: Any) -> None:
    helper = Agent(name="helper", model=Script([text("It is 42.")]))
    settings.HELIX_SESSIONS = {"AGENTS": {"helper": helper}}

    @function_tool
    def page() -> str:
        """Ask the page."""
        return "never"

    lines = ([call("ask", arguments='{"prompt": "What?"}'), call("page", "b")], [text('{"name": "Bern"}')])
    agent = Agent(name="A", model=Script(*lines), tools=[page], output_type=City)
    driven = durable(agent, subagents={"ask": "helper"}, tools={"page": ToolOptions(client=True)})
    assert driven.run("s", "go").kind == "suspended_step_partial"
    store.submit_tool_result("s", "b", result="yes")
    SessionRunner(helper, agent_types=["helper"]).sweep()
    outcome = SessionRunner(driven).wake("s")
    assert (outcome.kind, outcome.output) == ("completed", {"name": "Bern"})
    assert sorted(content for content, _ in results(store)) == ["It is 42.", "yes"]


def test_a_handoff_is_a_line_in_the_timeline_and_lasts(store: SessionStore) -> None:
    expert_model = Script([call("look")], [text("seen")], [text("still me")])

    @function_tool
    def look() -> str:
        """Look."""
        return "seen"

    expert = Agent(name="expert", model=expert_model, tools=[look])
    first = Agent(name="first", model=Script([call("transfer_to_expert", "handed")]), handoffs=[expert])
    outcome = durable(first).run("s", "go")
    assert (outcome.kind, outcome.output, outcome.error) == ("completed", "seen", None)
    (event,) = store.get_events("s", types=["handoff"])
    assert event.data == {"from": "first", "to": "expert"}
    assert durable(first).run("s", "more").output == "still me"


def test_text_is_streamed(store: SessionStore) -> None:
    agent = durable(Agent(name="A", model=Script([text("Hello there")], streams=True)))

    async def collect() -> list[Any]:
        return [found async for found in agent.astream("s", "go")]

    found = async_to_sync(collect)()
    said = "".join(each.data["text"] for each in found if isinstance(each, Fragment))
    assert said.strip() == "Hello there"
    assert store.get_messages("s").messages[-1]["content"] == "Hello there"


def test_errors_of_the_provider(store: SessionStore) -> None:
    request = httpx.Request("POST", "https://x.test")
    response = httpx.Response(429, headers={"retry-after": "0.01"}, request=request)
    errors = [RateLimitError("slow", response=response, body=None), APIConnectionError(request=request)]
    for number, error in enumerate(errors):
        agent = Agent(name="A", model=Script(error, error, [text("done")]))
        driven = durable(agent, retry=RetryPolicy(initial=0.01))
        assert driven.run(f"s{number}", "go").kind == "completed"


def test_what_is_refused() -> None:
    with pytest.raises(NotConfigured, match="tool_use_behavior"):
        durable(Agent(name="A", model=Script(), tool_use_behavior="stop_on_first_tool"))


def test_killed_in_a_tool_and_resumed_elsewhere(store: SessionStore, tmp_path: Path, settings: Any) -> None:
    from tests.agents import settings as configured

    settings.HELIX_SESSIONS = configured.HELIX_SESSIONS
    notes = tmp_path / "notes"
    store.create_session("s", agent_type="sdk-clerk", user_id=str(notes))
    store.admit_input("s", "hang")
    killed_while("s", "sdk-clerk", lambda: "looked" in lines(notes))
    Path(f"{notes}.go").touch()
    swept("sdk-clerk")
    assert lines(notes) == ["asked", "looked"]
    assert all(is_error for _, is_error in results(store))
    assert agent_for("sdk-clerk").name == "sdk-clerk"

    other = tmp_path / "other"
    store.create_session("t", agent_type="sdk-clerk", user_id=str(other))
    store.admit_input("t", "go")
    for _ in range(2):
        worker = Worker(drive, "sdk-clerk", "t")
        try:
            worker.wait_until_ready()
            worker.go()
            worker.result(60)
        finally:
            worker.kill()
        approve(store, "t")
    assert lines(other) == ["asked", "looked", "refunded"]
    assert store.get_messages("t").messages[-1]["content"] == "seen and refunded 7"
