"""What a thread of LangGraph costs to keep: a real graph, turn after turn, on its own store and on ours.

With `delta`, its messages are a `DeltaChannel`, of which LangGraph stores what was written and, now and then,
a snapshot.
"""

from typing import Annotated, Any

from bench import payload
from bench.contestants.langgraph import LangGraph
from bench.operations import new_id
from bench.place import Place

AT_MOST = 3.0
"""Times the text of the messages that ours may store."""


def stored_per_text(place: Place, one: LangGraph, turns: int, *, delta: bool = False) -> float:
    """Bytes that the database grew by, tables, TOAST and indexes, for each byte of the messages' contents:
    `turns` times 1 KB asked and 1 KB answered."""
    graph = _chat(one.saver, delta)
    _talk(graph, 1)
    before = _size(place, one.database)
    said = _talk(graph, turns)
    return (_size(place, one.database) - before) / said


def _chat(saver: Any, delta: bool) -> Any:
    from langchain_core.messages import AIMessage
    from langgraph.graph import START, MessagesState, StateGraph

    graph = StateGraph(delta_state() if delta else MessagesState)
    graph.add_node("model", lambda state: {"messages": [AIMessage(payload.text(payload.MESSAGE_BYTES))]})
    graph.add_edge(START, "model")
    return graph.compile(checkpointer=saver)


def delta_state() -> Any:
    """The state of a graph whose messages are a `DeltaChannel`."""
    from langgraph.channels.delta import DeltaChannel
    from langgraph.graph.message import add_messages
    from typing_extensions import TypedDict

    def add_all(messages: list[Any], writes: list[Any]) -> list[Any]:
        for written in writes:
            messages = add_messages(messages, written)  # type: ignore[assignment]
        return messages

    return TypedDict("DeltaState", {"messages": Annotated[list[Any], DeltaChannel(add_all)]})  # type: ignore[operator]


def _talk(graph: Any, turns: int) -> int:
    config: Any = {"configurable": {"thread_id": new_id()}}
    messages: list[Any] = []
    for _ in range(turns):
        asked = ("user", payload.text(payload.MESSAGE_BYTES))
        messages = graph.invoke({"messages": [asked]}, config)["messages"]
    return sum(len(message.content.encode()) for message in messages)


def _size(place: Place, database: str) -> int:
    return sum(place.table_bytes(database).values())
