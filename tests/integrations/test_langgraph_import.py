"""Threads of LangGraph's own savers go on in ours."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from typing import Any

import pytest
from django.db import connection
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from psycopg.conninfo import make_conninfo

from helix_sessions.integrations.langgraph import DjangoSaver, import_threads
from helix_sessions.store import SessionStore
from tests.integrations.langgraph_graphs import SHAPES
from tests.integrations.their_databases import their_schema

pytestmark = pytest.mark.django_db(transaction=True)

ORDERED = hasattr(InMemorySaver, "_ordered_writes")
"""Before langgraph-checkpoint 4.3 it listed writes in the order in which they were put."""


class Failing(DjangoSaver):
    """One that fails after so many puts."""

    def __init__(self, puts: int) -> None:
        super().__init__()
        self.puts = puts

    def put(self, *args: Any, **kwargs: Any) -> Any:
        self.puts -= 1
        if self.puts < 0:
            raise KeyboardInterrupt
        return super().put(*args, **kwargs)


@contextmanager
def sources() -> Iterator[dict[str, Any]]:
    """Theirs, as far as they are installed."""
    with ExitStack() as stack:
        found: dict[str, Any] = {"memory": InMemorySaver()}
        if find_spec("langgraph.checkpoint.sqlite"):
            from langgraph.checkpoint.sqlite import SqliteSaver

            found["sqlite"] = stack.enter_context(SqliteSaver.from_conn_string(":memory:"))
        if find_spec("langgraph.checkpoint.postgres") and connection.vendor == "postgresql":
            from langgraph.checkpoint.postgres import PostgresSaver

            place = make_conninfo(**stack.enter_context(their_schema()))
            postgres = stack.enter_context(PostgresSaver.from_conn_string(place))
            postgres.setup()
            found["postgres"] = postgres
        yield found


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread, "user_id": "ada"}, "recursion_limit": 12}


def lead(source: Any, shape: str) -> None:
    """Some runs, an answer, a branch, and a run that waits or has failed."""
    graph = SHAPES[shape](source)
    given = {"ran": ["given"], "messages": [HumanMessage("said " * 30, id="h")]}
    for _ in range(2):
        attempt(lambda: graph.invoke(given, config(shape)))
        attempt(lambda: graph.invoke(Command(resume="answer"), config(shape)))
    history = list(graph.get_state_history(config(shape)))
    attempt(lambda: graph.invoke(None, history[-1].config))
    graph.update_state(history[len(history) // 2].config, {"ran": ["changed"]})


def attempt(call: Any) -> None:
    with suppress(RuntimeError):
        call()


def told(saver: Any, thread: str) -> dict[Any, Any]:
    return {
        (one.config["configurable"]["checkpoint_ns"], one.checkpoint["id"]): (
            {**one.checkpoint, "pending_sends": None},
            one.metadata,
            one.parent_config["configurable"]["checkpoint_id"] if one.parent_config else "",
            one.pending_writes if ORDERED else sorted(one.pending_writes or (), key=str),
        )
        for one in saver.list({"configurable": {"thread_id": thread}})
    }


def test_everything_comes_over_and_goes_on(store: SessionStore) -> None:
    with sources() as found:
        for name, source in found.items():
            shapes = [*SHAPES] if name == "memory" else ["conversing", "nested"]
            for shape in shapes:
                lead(source, shape)
            assert sorted(import_threads(source, DjangoSaver())) == sorted(shapes), name
            for shape in shapes:
                assert told(DjangoSaver(), shape) == told(source, shape), (name, shape)
                assert store.get_session_head(shape).version, (name, shape)
                assert store.load_state(shape).user_id == "ada", (name, shape)
                state = SHAPES[shape](DjangoSaver()).get_state(config(shape))
                assert state.values == SHAPES[shape](source).get_state(config(shape)).values, (name, shape)
                again = {"ran": ["again mend"], "messages": [HumanMessage("again", id="again")]}
                SHAPES[shape](DjangoSaver()).invoke(again, config(shape))
                assert import_threads(source, DjangoSaver(), [shape]) == [], "it has gone on here"
                store.delete_session(shape)
    assert store.examine_sessions(deep=True) == []


def test_an_interrupted_import_is_completed() -> None:
    source = InMemorySaver()
    lead(source, "conversing")
    for puts in (0, 1, 3):
        with pytest.raises(KeyboardInterrupt):
            import_threads(source, Failing(puts))
    import_threads(source, DjangoSaver())
    once = told(DjangoSaver(), "conversing")
    assert once == told(source, "conversing")
    assert import_threads(source, DjangoSaver()) == ["conversing"], "again"
    assert told(DjangoSaver(), "conversing") == once
