"""What another agent said comes in a framework's own form, or is refused with a sentence: never as something
else."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from helix_sessions.exceptions import FrameworkMismatch
from helix_sessions.store import SessionStore
from tests.invariants import dump

pytest.importorskip("agents")
pytest.importorskip("google.adk")
pytest.importorskip("pydantic_ai")
pytest.importorskip("langgraph")

from google.adk.events import Event, EventActions
from google.genai.types import Content, FunctionCall, FunctionResponse, Part
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from helix_sessions.integrations.google_adk import DjangoSessionService
from helix_sessions.integrations.langgraph import DjangoSaver
from helix_sessions.integrations.openai_agents import DjangoSession
from helix_sessions.integrations.pydantic_ai import DjangoHistory

pytestmark = pytest.mark.django_db(transaction=True)

KEY = "app/ada/s"
"""An id that every adapter can address."""

OPENAI = [
    {"role": "user", "content": "look"},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "seen"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
]
PYDANTIC: list[ModelMessage] = [
    ModelRequest(parts=[UserPromptPart("look")]),
    ModelResponse(parts=[ToolCallPart("look", {}, "c")]),
    ModelRequest(parts=[ToolReturnPart("look", "seen", "c")]),
    ModelResponse(parts=[TextPart("done")]),
]
ADK = [
    Event(author="user", content=Content(role="user", parts=[Part(text="look")])),
    Event(
        author="agent",
        content=Content(role="model", parts=[Part(function_call=FunctionCall(id="c", name="look", args={}))]),
        actions=EventActions(),
    ),
    Event(
        author="agent",
        content=Content(
            role="user",
            parts=[Part(function_response=FunctionResponse(id="c", name="look", response={"r": 1}))],
        ),
    ),
    Event(author="agent", content=Content(role="model", parts=[Part(text="done")])),
]
LANGGRAPH = [
    HumanMessage("look"),
    AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "c"}]),
    ToolMessage("seen", tool_call_id="c"),
    AIMessage("done"),
]
RUNNER: list[dict[str, Any]] = [
    {"role": "user", "content": "look"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "name": "look", "arguments": {}}]},
    {"role": "tool", "tool_call_id": "c", "tool_name": "look", "content": {"r": 1}},
    {"role": "assistant", "content": "done"},
]


def by_openai(store: SessionStore) -> None:
    asyncio.run(DjangoSession(KEY).add_items(OPENAI))  # type: ignore[arg-type]


def by_pydantic(store: SessionStore) -> None:
    DjangoHistory(KEY).save(PYDANTIC)


def by_adk(store: SessionStore) -> None:
    async def talk() -> None:
        service = DjangoSessionService()
        session = await service.create_session(app_name="app", user_id="ada", session_id="s")
        for event in ADK:
            await service.append_event(session, event.model_copy(deep=True))

    asyncio.run(talk())


def by_langgraph(store: SessionStore) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("all", lambda state: {"messages": LANGGRAPH[1:]})
    graph.add_edge(START, "all")
    config = {"configurable": {"thread_id": KEY}}
    graph.compile(checkpointer=DjangoSaver()).invoke({"messages": LANGGRAPH[:1]}, config)  # type: ignore[call-overload]


def by_the_runner(store: SessionStore) -> None:
    store.create_session(KEY, agent_type="support")
    store.append_messages(KEY, RUNNER)


def read_openai() -> list[Any]:
    return asyncio.run(DjangoSession(KEY).get_items())


def read_pydantic() -> list[Any]:
    return DjangoHistory(KEY).load()


def read_adk() -> list[Any]:
    found = asyncio.run(DjangoSessionService().get_session(app_name="app", user_id="ada", session_id="s"))
    assert found is not None
    return found.events


WRITERS: dict[str, Callable[[SessionStore], None]] = {
    "openai": by_openai,
    "pydantic": by_pydantic,
    "adk": by_adk,
    "langgraph": by_langgraph,
    "runner": by_the_runner,
}


def read_langgraph() -> list[Any]:
    config: Any = {"configurable": {"thread_id": KEY, "checkpoint_ns": ""}}
    found = DjangoSaver().get_tuple(config)
    return [] if found is None else found.checkpoint["channel_values"]["messages"]


READERS = {"openai": read_openai, "pydantic": read_pydantic, "adk": read_adk}


READS: dict[str, set[str]] = {
    "openai": {"openai", "langgraph", "runner"},
    "pydantic": {"pydantic", "langgraph", "runner"},
    "adk": {"adk", "langgraph", "runner"},
    "langgraph": {"langgraph"},
}
"""Whose sessions each framework reads. LangGraph's and the runner's have the shape of a transcript, which
everybody reads; a graph needs checkpoints, which only LangGraph writes."""


def test_each_reads_what_it_can_and_refuses_the_rest_with_a_sentence(store: SessionStore) -> None:
    readers = {**READERS, "langgraph": read_langgraph}
    for writer, write in WRITERS.items():
        write(store)
        before = dump()
        for reader, read in readers.items():
            if writer in READS[reader]:
                assert len(read()) == 4, (writer, reader)
                continue
            with pytest.raises(FrameworkMismatch) as caught:
                read()
            assert KEY in str(caught.value), (writer, reader)
            assert str(caught.value).endswith("."), (writer, reader)
        assert dump() == before, writer
        store.delete_session(KEY)


def test_what_a_graph_said_comes_in_each_frameworks_own_form(store: SessionStore) -> None:
    by_langgraph(store)
    assert read_openai() == [*OPENAI[:3], {"role": "assistant", "content": "done"}]
    asked, called, answered, said = read_pydantic()
    assert (asked.parts[0].content, said.parts[0].content) == ("look", "done")
    call, result = called.parts[0], answered.parts[0]
    assert (call.tool_name, call.args, call.tool_call_id) == ("look", {}, "c")
    assert (result.content, result.tool_call_id) == ("seen", "c")
    events = read_adk()
    assert events[1].get_function_calls() == ADK[1].get_function_calls()
    [response] = events[2].get_function_responses()
    assert (response.id, response.response) == ("c", {"result": "seen"})


def test_calls_and_results_come_in_each_frameworks_own_form(store: SessionStore) -> None:
    by_the_runner(store)
    assert read_openai() == [
        {"role": "user", "content": "look"},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": '{"r":1}'},
        {"role": "assistant", "content": "done"},
    ]
    assert asyncio.run(DjangoSession(KEY).get_items(2)) == read_openai()[2:]
    found = read_pydantic()
    assert [type(message.parts[0]) for message in found] == [type(message.parts[0]) for message in PYDANTIC]
    assert (found[1].parts[0].tool_name, found[1].parts[0].args) == ("look", {})
    assert (found[2].parts[0].tool_name, found[2].parts[0].content) == ("look", {"r": 1})
    events = read_adk()
    assert events[1].get_function_calls() == ADK[1].get_function_calls()
    assert events[2].get_function_responses() == ADK[2].get_function_responses()
    assert [event.content.role for event in events] == ["user", "model", "user", "model"]


def test_what_an_agent_under_our_loop_said_is_everybodys(store: SessionStore) -> None:
    """Of whichever framework it is, and without the keys that only the loop knows."""
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    from helix_sessions.agents import durable

    agent: Agent[None, str] = Agent(TestModel(custom_output_text="done"), name="support")

    @agent.tool_plain
    def look() -> str:
        """Look."""
        return "seen"

    assert durable(agent).run(KEY, "hi").output == "done"
    items = read_openai()
    assert [item.get("type", item.get("role")) for item in items] == [
        "user",
        "function_call",
        "function_call_output",
        "assistant",
    ]
    assert items[0] == {"role": "user", "content": "hi"}
    assert len(read_pydantic()) == len(read_adk()) == 4


def test_content_that_is_no_text_is_refused(store: SessionStore) -> None:
    store.create_session(KEY, agent_type="support")
    for content in ({"a": 1}, 7, [{"type": "image", "source": {}}]):
        store.append_messages(KEY, [{"role": "user", "content": content}])
        with pytest.raises(FrameworkMismatch, match="ADK cannot read"):
            read_adk()
        store.truncate_messages(KEY, 0)


def test_langgraph_reads_no_session_of_another_framework(store: SessionStore) -> None:
    for writer in ("openai", "pydantic", "adk", "runner"):
        WRITERS[writer](store)
        before = dump()
        for call in (read_langgraph, lambda: by_langgraph(store)):
            with pytest.raises(FrameworkMismatch, match="LangGraph"):
                call()
            assert dump() == before, writer
        store.delete_session(KEY)
    by_langgraph(store)
    assert len(read_langgraph()) == 4


def test_what_would_change_a_foreign_session_is_refused(store: SessionStore) -> None:
    changes: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "add_items": lambda: DjangoSession(KEY).add_items([{"role": "user", "content": "x"}]),
        "pop_item": lambda: DjangoSession(KEY).pop_item(),
        "clear_session": lambda: DjangoSession(KEY).clear_session(),
    }
    for writer in ("pydantic", "adk", "langgraph"):
        WRITERS[writer](store)
        before = dump()
        for change in changes.values():
            with pytest.raises(FrameworkMismatch):
                asyncio.run(change())
            assert dump() == before, writer
        store.delete_session(KEY)
    for writer in ("openai", "adk", "langgraph"):
        WRITERS[writer](store)
        before = dump()
        with pytest.raises(FrameworkMismatch):
            DjangoHistory(KEY).save(PYDANTIC)
        assert dump() == before, writer
        store.delete_session(KEY)


def test_items_that_look_like_others_come_back(store: SessionStore) -> None:
    items: list[Any] = [
        *RUNNER[:2],
        {"role": "user", "event": {"a": 1}},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]},
        {"role": "assistant", "content": "x", "lc": {"type": "ai"}},
        {"role": "system"},
    ]
    asyncio.run(DjangoSession(KEY).add_items(items))
    assert read_openai() == items
    assert asyncio.run(DjangoSession(KEY).pop_item()) == items[-1]


def test_plain_messages_and_empty_sessions_are_everybodys(store: SessionStore) -> None:
    store.create_session(KEY, agent_type="support")
    for read in READERS.values():
        assert read() == []
    store.append_messages(
        KEY,
        [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "id": "i", "content": "hi", "event": {"of": "mine"}},
            {"role": "assistant", "content": "ho"},
        ],
    )
    for name, read in READERS.items():
        assert len(read()) == 3, name
    DjangoHistory(KEY).save(PYDANTIC[:1])
    assert len(read_pydantic()) == 4
