"""Graphs of several shapes. What they do depends on their state alone, so that any saver sees the same."""

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Send, interrupt


class Trail(TypedDict, total=False):
    ran: Annotated[list[Any], operator.add]
    last: Any


def marks(name: str) -> Callable[[Trail], Any]:
    return lambda state: {"ran": [f"{name} {len(state['ran'])}"], "last": {"by": name, "seen": {len(name)}}}


def asks(name: str) -> Callable[[Trail], Any]:
    return lambda state: {"ran": [f"{name} {interrupt({'asks': name, 'after': len(state['ran'])})}"]}


def line(saver: Any, *nodes: tuple[str, Any], state: Any = Trail) -> Any:
    """A graph of nodes one after another."""
    builder = StateGraph(state)
    before = START
    for name, node in nodes:
        builder.add_node(name, node)
        builder.add_edge(before, name)
        before = name
    return builder.compile(checkpointer=saver)


def asking(saver: Any) -> Any:
    return line(saver, ("a", marks("a")), ("ask", asks("ask")), ("b", marks("b")))


def asking_twice_in_one_node(saver: Any) -> Any:
    def ask(state: Trail) -> Any:
        first = interrupt("first?")
        return {"ran": [f"{first} {interrupt('second?')}"], "last": ("tuple", first)}

    return line(saver, ("a", marks("a")), ("ask", ask))


def parallel(saver: Any) -> Any:
    """Three branches, two of which ask, and a node that waits for all."""
    builder: Any = StateGraph(Trail)
    for name, node in (
        ("left", asks("left")),
        ("middle", lambda state: {"ran": ["middle"]}),
        ("right", asks("right")),
    ):
        builder.add_node(name, node)
        builder.add_edge(START, name)
    builder.add_node("join", lambda state: {"last": sorted(map(str, state["ran"]))})
    builder.add_edge(["left", "middle", "right"], "join")
    return builder.compile(checkpointer=saver)


def fanning_out(saver: Any) -> Any:
    """As many tasks as something was said, one of which asks."""

    def task(given: Any) -> Any:
        return {"ran": [interrupt("odd?") if given["number"] == 1 else f"task {given['number']}"]}

    builder: Any = StateGraph(Trail)
    builder.add_node("task", task)
    builder.add_node("end", marks("end"))
    sends = [Send("task", {"number": number}) for number in range(3)]
    builder.add_conditional_edges(START, lambda state: sends[: 1 + len(state["ran"]) % 3], ["task"])
    builder.add_edge("task", "end")
    return builder.compile(checkpointer=saver)


def nested(saver: Any) -> Any:
    """A subgraph in a subgraph, which asks, and forgets."""
    inner = line(None, ("inside", marks("inside")), ("ask inside", asks("inside")))
    middle = line(None, ("before", marks("before")), ("inner", inner))
    return line(saver, ("a", marks("a")), ("middle", middle), ("b", marks("b")))


def remembering(saver: Any) -> Any:
    """A subgraph that asks, and remembers what it did in earlier runs."""
    inner = line(True, ("inside", marks("inside")), ("ask inside", asks("inside")))
    return line(saver, ("a", marks("a")), ("sub", inner), ("b", asks("b")))


def looping(saver: Any) -> Any:
    builder: Any = StateGraph(Trail)
    builder.add_node("step", marks("step"))
    builder.add_edge(START, "step")
    builder.add_conditional_edges("step", lambda state: END if len(state["ran"]) % 4 == 0 else "step")
    return builder.compile(checkpointer=saver, interrupt_before=["step"])


def failing(saver: Any) -> Any:
    """A node that fails until it is told to stop."""

    def fail(state: Trail) -> Any:
        if "mend" not in str(state["ran"]):
            raise RuntimeError("broken")
        return {"ran": ["mended"]}

    return line(saver, ("a", marks("a")), ("fail", fail), ("b", marks("b")))


class Conversation(MessagesState, total=False):
    ran: Annotated[list[Any], operator.add]
    log: Annotated[list[Any], operator.add]


def conversing(saver: Any) -> Any:
    """Answers, calls, changes and removes messages, and keeps a log that gets long."""

    def agent(state: Conversation) -> Any:
        count = len(state["messages"])
        call = {"name": "look", "args": {"q": "q" * 80, "n": count}, "id": f"c{count}", "type": "tool_call"}
        said = AIMessage(f"answer {count} " * 20, id=f"a{count}", tool_calls=[call] if count % 3 else [])
        return {"messages": [said], "log": [f"agent {count} " * 90, {"set": {count}}]}

    def tools(state: Conversation) -> Any:
        first, last = state["messages"][0], state["messages"][-1]
        if len(state["messages"]) > 6:
            return {"messages": [RemoveMessage(str(first.id)), HumanMessage("changed", id=last.id)]}
        return {"messages": [ToolMessage("42" * 40, id=f"t{last.id}", tool_call_id="c", artifact={1: {2}})]}

    return line(saver, ("agent", agent), ("tools", tools), ("agent again", agent), state=Conversation)


class Mutable(MessagesState, total=False):
    ran: Annotated[list[Any], operator.add]
    box: Any


def changing_in_place(saver: Any) -> Any:
    """Nodes that change what they are given, and return it or do not."""

    def box_of(state: Any) -> Any:
        return state.get("box") or {"in": {"it": []}}

    def quietly(state: Mutable) -> Any:
        box_of(state)["in"]["it"].append("quietly")
        return {"ran": ["quietly"]}

    def openly(state: Mutable) -> Any:
        box = box_of(state)
        box["in"]["it"].append("openly")
        return {"box": box}

    def message(state: Mutable) -> Any:
        if state["messages"]:
            state["messages"][0].additional_kwargs.setdefault("seen", []).append(len(state["messages"]))
        return {"messages": [AIMessage("said", id=f"a{len(state['messages'])}")]}

    nodes = [("openly", openly), ("quietly", quietly), ("message", message), ("ask", asks("ask"))]
    return line(saver, *nodes, ("quietly again", quietly), state=Mutable)


SHAPES: dict[str, Callable[[Any], Any]] = {
    shape.__name__: shape
    for shape in (
        asking,
        asking_twice_in_one_node,
        parallel,
        fanning_out,
        nested,
        remembering,
        looping,
        failing,
        conversing,
        changing_in_place,
    )
}
