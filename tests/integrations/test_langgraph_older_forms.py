"""Threads that were stored in forms of before, with what was read of them then.

`stored/langgraph_v1.json` is of the time before the form had a version, `langgraph_v2.json` of the second
form. They were written by those versions of the adapter, and cannot be made again.
"""

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from helix_sessions.integrations.langgraph import DjangoSaver
from helix_sessions.store import SessionStore

pytestmark = pytest.mark.django_db(transaction=True)

STORED = {
    thread: stored
    for form in ("v1", "v2")
    for thread, stored in json.loads(
        (Path(__file__).parent / "stored" / f"langgraph_{form}.json").read_text()
    ).items()
}


class Rot:
    """The cipher of the thread that is encrypted."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "rot", bytes(byte ^ 42 for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return bytes(byte ^ 42 for byte in ciphertext)


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def saver(thread: str) -> DjangoSaver:
    return DjangoSaver(serde=EncryptedSerializer(Rot()) if thread == "cipher" else None)


@pytest.fixture(autouse=True)
def stored(store: SessionStore) -> None:
    for thread, of_thread in STORED.items():
        store.create_session(thread, agent_type="langgraph")
        store.append_messages(thread, of_thread["messages"])
        for key, run_id, document in of_thread["notes"]:
            store.put_notes(thread, {key: document}, run_id=run_id)


def told(thread: str) -> list[Any]:
    """What the adapter of that time read."""
    kind, data = STORED[thread]["told"]
    read = JsonPlusSerializer().loads_typed((kind, zlib.decompress(base64.b64decode(data))))
    return [(*one[:4], [tuple(write) for write in one[4]]) for one in read]


def test_every_thread_is_read_as_it_was() -> None:
    for thread in STORED:
        assert [tuple(one) for one in saver(thread).list(config(thread))] == told(thread), thread
        newest = next(one for one in told(thread) if not one[0]["configurable"]["checkpoint_ns"])
        assert tuple(saver(thread).get_tuple(config(thread)) or ()) == newest, thread
        for one in told(thread):
            assert tuple(saver(thread).get_tuple(one[0]) or ()) == one, thread


def chat(thread: str) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [AIMessage("new answer", id="new a")]})
    builder.add_edge(START, "agent")
    return builder.compile(checkpointer=saver(thread))


@pytest.mark.parametrize("thread", ["chat", "forked", "cipher", "nested"])
def test_a_conversation_goes_on(thread: str, store: SessionStore) -> None:
    before = told(thread)
    said = len(store.get_messages(thread).messages)
    after = chat(thread).invoke({"messages": [HumanMessage("new", id="new")]}, config(thread))

    assert after["messages"] == [
        *before[0][1]["channel_values"]["messages"],
        HumanMessage("new", id="new"),
        AIMessage("new answer", id="new a"),
    ]
    assert len(store.get_messages(thread).messages) == said + 2, "nothing is said again"
    listed = [
        tuple(one) for one in saver(thread).list({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
    ]
    assert [one[:4] for one in listed[3:]] == [
        one[:4] for one in before if not one[0]["configurable"]["checkpoint_ns"]
    ]
    assert (
        len(chat(thread).invoke({"messages": [HumanMessage("more", id="more")]}, before[-1][0])["messages"])
        == 2
    )


def test_an_interrupt_is_answered() -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("ask", lambda state: {"messages": [AIMessage(interrupt("really?"), id="a")]})
    builder.add_edge(START, "ask")
    graph = builder.compile(checkpointer=DjangoSaver())
    assert graph.get_state(config("asked")).interrupts[0].value == "really?"
    assert graph.invoke(Command(resume="yes"), config("asked"))["messages"][-1].content == "yes"


def test_writes_find_their_checkpoint() -> None:
    """Some are with it, some apart, and some were there before it."""
    newest = told("writes")[0]
    [coming] = [
        name for key, _, document in STORED["writes"]["notes"] if key == "h|" for name in document["early"]
    ]
    DjangoSaver().put_writes(newest[0], [("b", "of another")], "another")
    child: Any = {**newest[1], "id": coming}
    there = DjangoSaver().put(newest[0], child, {"source": "loop"}, {})

    found = DjangoSaver().get_tuple(newest[0])
    assert found is not None
    writes = newest[4]
    assert sorted(found.pending_writes or [], key=str) == sorted(
        [*writes, ("another", "b", "of another")], key=str
    )
    after = DjangoSaver().get_tuple(there)
    assert after is not None
    assert after.pending_writes == [("to come", "b", {3})]
    assert after.checkpoint["channel_values"] == newest[1]["channel_values"]


@pytest.mark.parametrize("thread", sorted(STORED))
def test_pruning_keeps_what_the_newest_needs(thread: str) -> None:
    saver(thread).prune([thread])
    left = [tuple(one) for one in saver(thread).list(config(thread))]
    newest: dict[str, Any] = {}
    for one in told(thread):
        newest.setdefault(one[0]["configurable"]["checkpoint_ns"], one)
    root = newest[""][0]["configurable"]["checkpoint_id"]
    kept = [
        (config, checkpoint, metadata, None, writes)  # without a parent
        for config, checkpoint, metadata, _, writes in newest.values()
        if metadata.get("parents", {}).get("", root) == root  # otherwise it is a call that is over
    ]
    assert sorted(left, key=str) == sorted(kept, key=str)


def test_a_run_is_removed(store: SessionStore) -> None:
    DjangoSaver().delete_for_runs(["run-4"])
    assert [tuple(one) for one in DjangoSaver().list(config("writes"))] == told("writes")[1:]
