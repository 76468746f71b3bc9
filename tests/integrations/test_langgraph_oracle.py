"""LangGraph's own savers say what a saver must do: the same random calls on theirs and on ours.

Whatever a graph is asked to do (run, resume, fork, replay, copy, go on from an old checkpoint), every answer,
and at the end the whole history, must be the same, but for ids and times.
"""

import asyncio
import difflib
import pprint
import re
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from helix_sessions.integrations.langgraph import DjangoSaver
from tests.integrations.langgraph_graphs import SHAPES
from tests.lengths import at_length

pytestmark = pytest.mark.django_db(transaction=True)

_threads = count()
_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b[0-9a-f]{32}\b")
_LEFT_OUT = ("created_at", "ts", "thread_id", "pending_sends", "__pregel_checkpointer")

Script = Generator[tuple[str, tuple[Any, ...], dict[str, Any]], Any, Any]


@dataclass(frozen=True)
class Call:
    """One thing to ask of a graph; `which` chooses among the checkpoints there are."""

    what: str
    which: int
    number: int
    durability: str


calls = st.builds(
    Call,
    st.sampled_from(
        [
            "run",
            "resume",
            "run",
            "resume",
            "fork",
            "replay",
            "branch",
            "copy",
            "update",
            "subgraph",
            "new saver",
        ]
    ),
    st.integers(0, 40),
    st.integers(0, 3),
    st.sampled_from(["sync", "async", "exit"]),
)


def play(call: Call, thread: Any, shape: str) -> Script:
    """The calls of a graph that it takes; what came of it."""
    durability = (
        "sync" if shape == "changing_in_place" else call.durability
    )  # or theirs stores what it became
    message = HumanMessage(f"said {call.number} " * 30, id=f"h{call.number}")
    given: Any = {"ran": [f"given {call.number}" + " mend" * (call.number == 3)], "messages": [message]}
    history = yield "get_state_history", (thread,), {}
    config = history[call.which % len(history)].config if history else thread
    run = {"durability": durability}
    if call.what == "run":
        return (yield "invoke", (given, thread), run)
    if call.what == "branch":
        return (yield "invoke", (given, config), run)
    if call.what == "replay":
        return (yield "invoke", (None, config), run)
    if call.what == "resume":
        state = yield "get_state", (thread,), {}
        waiting = [each.id for each in state.interrupts]
        some = waiting[: 1 + call.which % len(waiting)] if waiting else []
        resume = dict.fromkeys(some, call.number) if len(waiting) > 1 else call.number
        return (yield "invoke", (Command(resume=resume), thread), run)
    if call.what == "copy":
        return (yield "update_state", (config, None, "__copy__"), {})
    if call.what == "subgraph":
        return (yield from _play_in_subgraph(call, config, given))
    base = config if call.what == "fork" else thread
    return (yield "update_state", (base, given), {})


def _play_in_subgraph(call: Call, config: Any, given: Any) -> Script:
    """Look into a subgraph, and change its state or run on from it."""
    state = yield "get_state", (config,), {"subgraphs": True}
    if not hasattr(state, "tasks"):
        return state
    inner = [task.state for task in state.tasks if getattr(task.state, "config", None)]
    if not inner:
        return told(state)
    if call.number % 2:
        return (yield "invoke", (None, inner[0].config), {})
    changed = yield "update_state", (inner[0].config, given), {}
    return told((state, changed))


@contextmanager
def savers(shape: str) -> Iterator[list[Any]]:
    """Theirs: the one in memory, and the one on SQLite if it is installed."""
    with ExitStack() as stack:
        theirs: list[Any] = [InMemorySaver()]
        if find_spec("langgraph.checkpoint.sqlite") and shape not in (
            "changing_in_place",
            "fanning_out",
            "parallel",
        ):
            from langgraph.checkpoint.sqlite import SqliteSaver

            theirs.append(stack.enter_context(SqliteSaver.from_conn_string(":memory:")))
        yield theirs


def compare(shape: str, script: list[Call], *, asynchronous: bool) -> None:
    thread: Any = {"configurable": {"thread_id": f"oracle-{next(_threads)}"}, "recursion_limit": 12}
    perform = aperform if asynchronous else performed
    with savers(shape) as theirs:
        theirs = theirs[:1] if asynchronous else theirs
        graphs = [SHAPES[shape](saver) for saver in theirs]
        ours = SHAPES[shape](DjangoSaver())
        for call in script:
            if call.what == "new saver":
                ours = SHAPES[shape](DjangoSaver())
                continue
            answers = [perform(graph, play(call, thread, shape)) for graph in [*graphs, ours]]
            for answer in answers[1:]:
                same(answer, answers[0], f"{shape}: {script}\nthe answer to {call}")
        fresh = SHAPES[shape](DjangoSaver())
        for graph in (*graphs[1:], ours, fresh):
            name = f"{type(graph.checkpointer).__name__}{' anew' * (graph is fresh)}"
            about = f"{shape}: {script}\nthe history of {name}"
            same(whole(perform, graph, thread), whole(perform, graphs[0], thread), about)
            if graph not in graphs:
                same(
                    everything(graph.checkpointer, thread), everything(graphs[0].checkpointer, thread), about
                )


def same(ours: str, theirs: str, about: str) -> None:
    if ours != theirs:
        difference = difflib.unified_diff(
            theirs.splitlines(), ours.splitlines(), "theirs", "ours", lineterm=""
        )
        raise AssertionError("\n".join([about, *difference]))


def performed(graph: Any, script: Script) -> str:
    """Make the calls, one after another; an error is an answer too."""
    answer: Any = None
    try:
        while True:
            method, arguments, options = script.send(answer)
            try:
                answer = getattr(graph, method)(*arguments, **options)
                answer = [*answer] if method == "get_state_history" else answer
            except Exception as error:
                answer = f"{type(error).__name__}: {error}"
    except StopIteration as stop:
        return told(stop.value)


@async_to_sync
async def aperform(graph: Any, script: Script) -> str:
    answer: Any = None
    try:
        while True:
            method, arguments, options = script.send(answer)
            try:
                called = getattr(graph, f"a{method}")(*arguments, **options)
                if method == "get_state_history":
                    answer = [state async for state in called]
                else:
                    answer = await asyncio.wait_for(called, 60)
            except Exception as error:
                answer = f"{type(error).__name__}: {error}"
    except StopIteration as stop:
        return told(stop.value)


def whole(perform: Any, graph: Any, thread: Any) -> str:
    """The whole history, with the newest state of subgraphs."""

    def script() -> Script:
        history = yield "get_state_history", (thread,), {}
        newest = yield "get_state", (thread,), {"subgraphs": True}
        return told((history, newest))

    answer: str = perform(graph, script())
    return answer


def everything(saver: Any, thread: Any) -> str:
    """All a saver has of a thread, in whichever namespace."""
    spaces: dict[str, list[Any]] = {}
    for one in saver.list(thread):
        spaces.setdefault(one.config["configurable"]["checkpoint_ns"], []).append(one)
    ordered = sorted(spaces.values(), key=lambda found: (_named(found[-1]), found[-1].checkpoint["id"]))
    return told(
        [
            {
                **one._asdict(),
                "checkpoint": {
                    **one.checkpoint,
                    "ts": None,
                    "pending_sends": None,
                    "channel_versions": _versions(one.checkpoint["channel_versions"]),
                    "versions_seen": {
                        name: _versions(seen) for name, seen in one.checkpoint["versions_seen"].items()
                    },
                },
            }
            for found in ordered
            for one in found
        ]
    )


def _named(one: Any) -> str:
    return _ID.sub("", one.config["configurable"]["checkpoint_ns"])


def _versions(versions: dict[str, Any]) -> dict[str, int]:
    return {name: int(str(version).split(".")[0]) for name, version in versions.items()}


def told(value: Any) -> str:
    """An answer as a text, the same for the same answer: ids numbered as they come, times left out."""
    if isinstance(value, str):
        return value
    text = pprint.pformat(_plain(value), width=100, sort_dicts=False)
    names: dict[str, str] = {}
    return _ID.sub(lambda found: names.setdefault(found[0], f"id-{len(names)}"), text)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseMessage):
        fields = {name: each for name, each in value if each not in (None, [], {}, "")}
        return type(value).__name__, _plain(fields)
    if hasattr(value, "_asdict"):
        return type(value).__name__, _plain(value._asdict())
    if hasattr(value, "__slots__") and hasattr(value, "value"):
        return type(value).__name__, repr(value)
    if isinstance(value, dict):
        fields = {name: each for name, each in value.items() if not str(name).startswith(_LEFT_OUT)}
        if isinstance(fields.get("__interrupt__"), list):  # in the order in which branches got there
            fields["__interrupt__"] = sorted(fields["__interrupt__"], key=lambda each: str(each.value))
        return {
            name: _plain(fields[name]) for name in sorted(fields, key=lambda name: _ID.sub("", str(name)))
        }
    if isinstance(value, list | tuple):
        return type(value)(_plain(each) for each in value)
    return value


def check(examples: int, *, asynchronous: bool) -> None:
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(sorted(SHAPES)), st.lists(calls, min_size=2, max_size=8))
    def examine(shape: str, script: list[Call]) -> None:
        compare(shape, script, asynchronous=asynchronous)

    examine()


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_the_same_calls_make_the_same_history(asynchronous: bool) -> None:
    check(15, asynchronous=asynchronous)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_many_calls_make_the_same_history(asynchronous: bool) -> None:
    check(at_length(200), asynchronous=asynchronous)
