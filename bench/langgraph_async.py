"""Many threads of LangGraph in one event loop, on its own async saver and on ours: 40 threads of 50 steps."""

import asyncio
import time
from typing import Any

from bench import payload
from bench.contestants.langgraph import LangGraph
from bench.operations import new_id
from bench.place import Place

THREADS = 40
STEPS = 50
ROUNDS = 3


def best_times(place: Place) -> tuple[float, float]:
    """Seconds of `AsyncPostgresSaver` and of `DjangoSaver`, the best of some rounds each, in turns."""
    theirs, ours = [], []
    for _ in range(ROUNDS):
        theirs.append(asyncio.run(_theirs(place)))
        ours.append(asyncio.run(_ours()))
    return min(theirs), min(ours)


async def _theirs(place: Place) -> float:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    async with AsyncPostgresSaver.from_conn_string(place.url(LangGraph.database)) as saver:
        return await _run(saver)


async def _ours() -> float:
    from helix_sessions.integrations.langgraph import DjangoSaver

    return await _run(DjangoSaver())


async def _run(saver: Any) -> float:
    graph = _graph(saver)
    await graph.ainvoke(_INPUT, _config())
    start = time.perf_counter()
    await asyncio.gather(*(graph.ainvoke(_INPUT, _config()) for _ in range(THREADS)))
    return time.perf_counter() - start


_INPUT: Any = {"messages": [("user", "begin")]}


def _config() -> Any:
    return {"configurable": {"thread_id": new_id()}, "recursion_limit": 10 * STEPS}


def _graph(saver: Any) -> Any:
    from langchain_core.messages import AIMessage
    from langgraph.graph import END, START, MessagesState, StateGraph

    async def step(state: Any) -> Any:
        return {"messages": [AIMessage(payload.text(200))]}

    graph = StateGraph(MessagesState)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda state: END if len(state["messages"]) > STEPS else "step")
    return graph.compile(checkpointer=saver)
