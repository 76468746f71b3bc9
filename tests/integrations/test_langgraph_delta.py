"""Graphs with a `DeltaChannel`, of which LangGraph stores what was written and, now and then, a snapshot."""

import operator
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from helix_sessions.integrations.langgraph import DjangoSaver
from helix_sessions.store import SessionStore

DeltaChannel = pytest.importorskip("langgraph.channels.delta").DeltaChannel

pytestmark = pytest.mark.django_db(transaction=True)

THREAD: Any = {"configurable": {"thread_id": "t"}}


def add_all(messages: list[Any], writes: list[Any]) -> list[Any]:
    for written in writes:
        messages = add_messages(messages, written)  # type: ignore[assignment]
    return messages


def extend(numbers: list[int], writes: list[list[int]]) -> list[int]:
    return [*numbers, *(number for written in writes for number in written)]


class State(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(add_all, snapshot_frequency=3)]
    numbers: Annotated[list[int], DeltaChannel(extend)]
    plain: Annotated[list[int], operator.add]


def graph(saver: Any) -> Any:
    """Two nodes, the second of which begins again until there are enough messages."""

    def say(state: Any) -> Any:
        count = len(state["messages"])
        return {
            "messages": [AIMessage(f"said {count}", id=f"a{count}")],
            "numbers": [count],
            "plain": [count],
        }

    builder = StateGraph(State)
    builder.add_node("say", say)
    builder.add_node("count", lambda state: {"numbers": [-1]})
    builder.add_edge(START, "say")
    builder.add_edge("say", "count")
    builder.add_conditional_edges("count", lambda state: END if len(state["messages"]) % 4 == 0 else "say")
    return builder.compile(checkpointer=saver)


def lead(build: Any) -> None:
    """Turns, a change of the past, a turn on that branch, and one on the newest."""
    for number in range(3):
        asked = HumanMessage(f"asked {number}", id=f"h{number}")
        build().invoke({"messages": [asked], "numbers": [100], "plain": []}, THREAD)
    past = list(build().get_state_history(THREAD))[7].config
    forked = build().update_state(past, {"messages": [HumanMessage("instead", id="i")], "numbers": [7]})
    build().invoke(None, forked)
    build().invoke({"messages": [HumanMessage("more", id="more")]}, THREAD)


def history(build: Any) -> list[Any]:
    return [(each.values, each.next, each.metadata["step"]) for each in build().get_state_history(THREAD)]


def test_it_is_what_langgraphs_own_saver_makes_of_it(store: SessionStore) -> None:
    memory = InMemorySaver()
    lead(lambda: graph(memory))
    lead(lambda: graph(DjangoSaver()))
    ours, theirs = (history(lambda one=one: graph(one())) for one in (DjangoSaver, lambda: memory))
    assert ours == theirs
    assert len(ours) > 25
    assert store.examine_sessions(deep=True) == []


def test_it_goes_on_when_it_was_pruned() -> None:
    lead(lambda: graph(DjangoSaver()))
    before = graph(DjangoSaver()).get_state(THREAD).values
    DjangoSaver().prune(["t"])
    assert graph(DjangoSaver()).get_state(THREAD).values == before
    after = graph(DjangoSaver()).invoke({"messages": [HumanMessage("on", id="on")]}, THREAD)
    assert after["messages"][: len(before["messages"])] == before["messages"]
    assert len(after["messages"]) > len(before["messages"])
