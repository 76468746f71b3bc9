"""Notes at rest: sealed wherever they are written, opened wherever they are read."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

from helix_sessions.integrations.langgraph import DjangoSaver
from helix_sessions.models import Note
from helix_sessions.store import SessionStore

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "the diagnosis"


def stored() -> str:
    return str(list(Note.objects.values_list("session_id", "key", "document")))


def test_notes_are_sealed_and_come_back(store: SessionStore) -> None:
    store.create_session("s", agent_type="a")
    store.put_notes("s", {"a": [SECRET, 1], "b": 1}, run_id="r")
    store.put_notes("s", {"b": [SECRET, 2]}, run_id="r")  # in place of another
    store.put_notes("s", {"b": [SECRET, 3], "c": SECRET}, quietly=True)
    store.clone_session("s", "branch")

    for key in ("s", "branch"):
        assert [note.document for note in store.get_notes(key)] == [[SECRET, 1], [SECRET, 3], SECRET]
        assert store.get_notes(key, keys=["c"])[0].document == SECRET
    assert [note.document for note in store.find_notes(run_id="r")] == [[SECRET, 1]] * 2
    assert SECRET not in stored()


def test_a_thread_of_langgraph_is_sealed(store: SessionStore) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("agent", lambda state: {"messages": [AIMessage(f"{SECRET} {len(state['messages'])}")]})
    graph.add_edge(START, "agent")
    config = {"configurable": {"thread_id": "t"}}
    for _ in range(2):
        compiled: Any = graph.compile(checkpointer=DjangoSaver())
        said = compiled.invoke({"messages": [("user", SECRET)]}, config)

    assert [message.content for message in said["messages"]] == [
        *(SECRET, f"{SECRET} 1", SECRET, f"{SECRET} 3")
    ]
    assert SECRET not in stored()
