"""Many threads of LangGraph in one event loop, on its own async saver and on ours: 40 threads of 50 steps.

With `delta`, their messages are a `DeltaChannel`. `python -m bench.adapters --only-async` measures both.
"""

import asyncio
import time
from typing import Any

from bench import payload
from bench.contestants.langgraph import LangGraph
from bench.langgraph_growth import delta_state
from bench.operations import new_id
from bench.place import Place

THREADS = 40
STEPS = 50
ROUNDS = 3


def best_times(place: Place, *, delta: bool = False) -> tuple[float, float]:
    """Seconds of `AsyncPostgresSaver` and of `DjangoSaver`, the best of some rounds each, in turns."""
    theirs, ours = [], []
    for _ in range(ROUNDS):
        theirs.append(asyncio.run(_theirs(place, delta)))
        ours.append(asyncio.run(_ours(delta)))
    return min(theirs), min(ours)


async def _theirs(place: Place, delta: bool) -> float:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    async with AsyncPostgresSaver.from_conn_string(place.url(LangGraph.database)) as saver:
        return await _run(saver, delta)


async def _ours(delta: bool) -> float:
    from helix_sessions.integrations.langgraph import DjangoSaver

    return await _run(DjangoSaver(), delta)


async def _run(saver: Any, delta: bool) -> float:
    graph = _graph(saver, delta)
    await graph.ainvoke(_INPUT, _config())
    start = time.perf_counter()
    await asyncio.gather(*(graph.ainvoke(_INPUT, _config()) for _ in range(THREADS)))
    return time.perf_counter() - start


_INPUT: Any = {"messages": [("user", "begin")]}


def _config() -> Any:
    return {"configurable": {"thread_id": new_id()}, "recursion_limit": 10 * STEPS}


def _graph(saver: Any, delta: bool) -> Any:
    from langchain_core.messages import AIMessage
    from langgraph.graph import END, START, MessagesState, StateGraph

    async def step(state: Any) -> Any:
        return {"messages": [AIMessage(payload.text(200))]}

    graph = StateGraph(delta_state() if delta else MessagesState)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda state: END if len(state["messages"]) > STEPS else "step")
    return graph.compile(checkpointer=saver)
