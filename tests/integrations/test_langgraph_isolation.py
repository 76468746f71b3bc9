"""Nothing that the saver hands out or takes in is shared with what it keeps."""

from copy import deepcopy
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from helix_sessions.integrations.langgraph import DjangoSaver

pytestmark = pytest.mark.django_db(transaction=True)

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


class Ran(TypedDict):
    ran: Annotated[list[str], lambda before, more: [*before, *more]]


def test_a_fork_before_an_answered_interrupt_asks_again() -> None:
    def ask(state: Ran) -> Any:
        return {"ran": [f"ask {interrupt('really?')}"]}

    builder = StateGraph(Ran)
    builder.add_node("a", lambda state: {"ran": ["a"]})
    builder.add_node("ask", ask)
    builder.add_node("b", lambda state: {"ran": ["b"]})
    builder.add_edge(START, "a")
    builder.add_edge("a", "ask")
    builder.add_edge("ask", "b")
    graph = builder.compile(checkpointer=DjangoSaver())

    graph.invoke({"ran": []}, THREAD)
    assert graph.invoke(Command(resume="yes"), THREAD) == {"ran": ["a", "ask yes", "b"]}
    [before] = [state for state in graph.get_state_history(THREAD) if state.next == ("ask",)]
    fork = graph.update_state(before.config, {"ran": ["forked"]})
    again = graph.invoke(None, fork)

    assert again["__interrupt__"][0].value == "really?"
    assert graph.invoke(Command(resume="no"), THREAD) == {"ran": ["a", "forked", "ask no", "b"]}


def test_a_node_that_changes_a_nested_value_in_place_changes_no_earlier_checkpoint() -> None:
    class Box(TypedDict):
        box: Any
        done: str

    def stuff(state: Box) -> Any:
        state["box"]["in"]["it"].append("stuffed")
        return {"done": "yes"}

    builder = StateGraph(Box)
    builder.add_node("stuff", stuff)
    builder.add_node("after", lambda state: {"done": "after"})
    builder.add_edge(START, "stuff")
    builder.add_edge("stuff", "after")
    graph = builder.compile(checkpointer=DjangoSaver())
    graph.invoke({"box": {"in": {"it": []}}, "done": ""}, THREAD, durability="sync")

    read = [state.values["box"] for state in graph.get_state_history(THREAD) if "box" in state.values]
    assert read == [{"in": {"it": []}}] * 3


def given() -> tuple[Any, Any, Any]:
    """A checkpoint with everything nested, its metadata, and writes after it."""
    values = {
        "messages": [
            HumanMessage([{"type": "text", "text": "one"}], id="h", additional_kwargs={"n": {"m": [1]}}),
            AIMessage("two", id="a", tool_calls=[{"name": "look", "args": {"q": [1]}, "id": "c"}]),
        ],
        "log": [{"entry": [number] * 400} for number in range(4)],
        "plain": {"a": [{"b": [1, 2]}]},
        "odd": {"a": [{"b": {1, 2}}]},
    }
    checkpoint: Any = {
        **empty_checkpoint(),
        "id": str(uuid6(clock_seq=1)),
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, 1),
        "versions_seen": {"node": {"plain": 1}},
        "updated_channels": ["plain"],
    }
    metadata = {"source": "loop", "step": 1, "parents": {"": "x"}, "more": {"nested": [1]}}
    writes = [("plain", {"a": [1]}), ("messages", [HumanMessage("w", id="w", additional_kwargs={"n": [1]})])]
    return checkpoint, metadata, writes


def spoil(value: Any) -> None:
    """Change everything in a value that can be changed in place."""
    if isinstance(value, HumanMessage | AIMessage):
        spoil(vars(value))
    elif isinstance(value, dict):
        for each in [*value.values()]:
            spoil(each)
        value["spoilt"] = True
    elif isinstance(value, list | tuple):
        for each in value:
            spoil(each)
        if isinstance(value, list):
            value.append("spoilt")
    elif isinstance(value, set):
        value.add("spoilt")


def child_of(found: Any, version: int) -> Any:
    """The checkpoint that the loop would put next: all as it was, but for one channel."""
    values = {**deepcopy(found.checkpoint["channel_values"]), "plain": version}
    versions = {**deepcopy(found.checkpoint["channel_versions"]), "plain": version}
    return {
        **deepcopy(found.checkpoint),
        "id": str(uuid6(clock_seq=version)),
        "channel_values": values,
        "channel_versions": versions,
    }


def test_what_was_given_may_be_changed_afterwards() -> None:
    checkpoint, metadata, writes = given()
    original = deepcopy((checkpoint, metadata, writes))
    saver = DjangoSaver()
    here = saver.put(THREAD, checkpoint, metadata, dict(checkpoint["channel_versions"]))
    saver.put_writes(here, writes, "task")
    spoil(checkpoint)
    spoil(metadata)
    spoil(writes)
    spoil(here["configurable"])

    for reader in (saver, DjangoSaver()):
        found: Any = reader.get_tuple(THREAD)
        assert (found.checkpoint, found.metadata) == original[:2]
        assert [(channel, value) for _, channel, value in found.pending_writes] == original[2]


def test_what_was_read_may_be_changed_afterwards() -> None:
    checkpoint, metadata, writes = given()
    saver = DjangoSaver()
    here = saver.put(THREAD, checkpoint, metadata, dict(checkpoint["channel_versions"]))
    saver.put_writes(here, writes, "task")
    first: Any = deepcopy(saver.get_tuple(THREAD))
    for read in (lambda: saver.get_tuple(THREAD), lambda: next(saver.list(THREAD))):
        spoil(read())
    second = saver.put(here, child_of(first, 2), {"source": "loop", "step": 2}, {"plain": 2})
    spoil(saver.get_tuple(second))

    for reader in (saver, DjangoSaver()):
        newest, oldest = reader.list(THREAD)
        assert oldest == first
        expected = {**first.checkpoint["channel_values"], "plain": 2}
        assert newest.checkpoint["channel_values"] == expected


@pytest.mark.parametrize("channel", ["messages", "log"])
def test_an_item_that_changed_is_stored_again_whatever_changed_about_it(channel: str) -> None:
    """In place or not, in fields the class does not know, and in nothing but the type of a number."""
    saver = DjangoSaver()
    item: Any = HumanMessage("one " * 900, id="m", additional_kwargs={"n": 1})
    where: Any = THREAD
    expected = []
    for version, change in enumerate(
        [
            lambda: None,
            lambda: item.additional_kwargs.update(n=True),
            lambda: item.additional_kwargs.update(n=1.0),
            lambda: setattr(item, "unknown", [1]),
            lambda: item.unknown.append(2),
            lambda: setattr(item, "content", "two " * 900),
        ],
        1,
    ):
        change()
        checkpoint: Any = {
            **empty_checkpoint(),
            "id": str(uuid6(clock_seq=version)),
            "channel_values": {channel: [item, item]},
            "channel_versions": {channel: version},
        }
        expected.append(repr(item))
        where = saver.put(where, checkpoint, {"source": "loop", "step": version}, {channel: version})

    for reader in (saver, DjangoSaver()):
        read = [one.checkpoint["channel_values"][channel] for one in reader.list(THREAD)]
        assert [[repr(each) for each in items] for items in reversed(read)] == [
            [each] * 2 for each in expected
        ]
