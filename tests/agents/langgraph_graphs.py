"""Graphs of LangGraph, with models that say what they are told to."""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from helix_sessions.agents import current_turn


def call(name: str, call_id: str = "call-1", **arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "name": name, "args": arguments, "type": "tool_call"}


class Script(BaseChatModel):
    """Each request is answered by the next line, word by word."""

    lines: list[AIMessage]

    @property
    def _llm_type(self) -> str:
        return "script"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.lines.pop(0))])

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        line = self.lines.pop(0)
        for number, word in enumerate(line.text.split(" ")):
            yield _chunk(AIMessageChunk(content=word if number == 0 else f" {word}"))
        for number, each in enumerate(line.tool_calls):
            text = json.dumps(each["args"])
            for piece, name, call_id in ((text[:1], each["name"], each["id"]), (text[1:], None, None)):
                called = tool_call_chunk(name=name, args=piece, id=call_id, index=number)
                yield _chunk(AIMessageChunk(content="", tool_call_chunks=[called]))
        yield _chunk(AIMessageChunk(content="", usage_metadata=line.usage_metadata))


def _chunk(message: AIMessageChunk) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=message)


def says(*lines: Any) -> Callable[[MessagesState], Any]:
    """A node that asks a model which says this."""
    model = Script(lines=[AIMessage(line) if isinstance(line, str) else line for line in lines])

    async def agent(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return agent


def executes(**tools: Callable[..., Any]) -> Callable[[MessagesState], Any]:
    """A node that executes the calls of the last answer."""

    def node(state: MessagesState) -> Any:
        return {
            "messages": [
                ToolMessage(str(tools[each["name"]](**each["args"])), tool_call_id=each["id"])
                for each in getattr(state["messages"][-1], "tool_calls", ())
            ]
        }

    return node


def calls_tools(state: MessagesState) -> str:
    return "tools" if getattr(state["messages"][-1], "tool_calls", None) else END


def react(agent: Any, tools: Any = None, *, name: str = "g", **compiled: Any) -> Any:
    """The graph of an agent with tools."""
    builder: Any = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("tools", tools or executes())
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", calls_tools, ["tools", END])
    builder.add_edge("tools", "agent")
    return builder.compile(name=name, **compiled)


def note(line: str) -> None:
    with Path(current_turn().state.user_id or "").open("a") as file:
        file.write(f"{line}\n")


def held(word: str) -> None:
    """Wait until a test lets it go, if the prompt says so."""
    deadline = time.monotonic() + 60
    path = f"{current_turn().state.user_id}.go"
    while word in str(current_turn().context.messages[0]) and not Path(path).exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _agent(state: MessagesState) -> Any:
    said = [message for message in state["messages"] if message.type == "tool"]
    if said:
        return {"messages": [AIMessage(" and ".join(message.text for message in said))]}
    note(f"asked {os.getpid()}")
    return {"messages": [AIMessage("Looking.", tool_calls=[call("look", "c-look")])]}


def _tools(state: MessagesState) -> Any:
    note("looked")
    held("hang")
    results = [ToolMessage("seen", tool_call_id="c-look")]
    return {"messages": results}


def _approve(state: MessagesState) -> Any:
    order = 7
    if interrupt({"refund": order}):
        note(f"refunded {order}")
    return {}


def _clerk() -> Any:
    builder: Any = StateGraph(MessagesState)
    for name, node in (("agent", _agent), ("tools", _tools), ("approve", _approve)):
        builder.add_node(name, node)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", calls_tools, {"tools": "tools", END: "approve"})
    builder.add_edge("tools", "agent")
    return builder.compile(name="graph-clerk")


clerk = _clerk()
