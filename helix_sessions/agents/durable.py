"""`durable`: an agent of any framework, driven by our loop."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from django.utils import timezone

from helix_sessions.exceptions import InvalidInput, NotConfigured
from helix_sessions.runtime.agents import LANGGRAPH, OPENAI_AGENTS, PYDANTIC_AI, agent_for, framework_of
from helix_sessions.runtime.loop.io import IO, Inline, OnLoop, finished
from helix_sessions.runtime.loop.session_loop import outcome_of
from helix_sessions.runtime.turn_context import TurnContext
from helix_sessions.store import AsyncSessionStore, SessionStore
from helix_sessions.types import EventRecord, Fragment, RetryPolicy, RunOutcome
from helix_sessions.values.agents import Budget, value_of
from helix_sessions.values.tools import ToolOptions

_LOOK_SECONDS = 0.2
"""How often a session is looked at that another process drives."""

_UNDER_WAY: set["asyncio.Future[RunOutcome]"] = set()
"""Sessions that are driven while a caller streams them, and after."""


def durable(
    agent: Any,
    *,
    name: str | None = None,
    subagents: Mapping[str, str] | None = None,
    tools: Mapping[str, ToolOptions | Mapping[str, Any]] | None = None,
    budget: Budget | Mapping[str, Any] | None = None,
    retry: RetryPolicy | Mapping[str, Any] | None = None,
    turn_timeout: float | None = None,
    deps: Callable[[TurnContext], Any] | None = None,
) -> "DurableAgent":
    """An agent that our loop drives, for `AGENTS`, for a `SessionRunner`, or to be run in place.

    `agent` has `run_turn`, or is an `Agent` of pydantic-ai or of the OpenAI Agents SDK, or a compiled graph
    of LangGraph. `name` is the agent type of the sessions it creates; `subagents` maps names of tools to
    agent types; `tools` maps names of tools to `ToolOptions`; `budget` holds for sessions that have none.
    `deps` is a function of the turn that makes pydantic-ai's deps, or the context of the SDK or the graph, in
    each process anew. What cannot hold under a durable loop is refused here, with a `NotConfigured`.
    """
    if deps is not None and not callable(deps):
        raise InvalidInput("deps must be a function of the turn: deps cannot be kept for another process.")
    options = {tool: value_of(ToolOptions, given) for tool, given in (tools or {}).items()}
    inner = _adapted(agent, dict(subagents or {}), options, deps)
    return DurableAgent(
        inner,
        name=name,
        subagents=subagents,
        tools=options,
        budget=None if budget is None else value_of(Budget, budget),
        retry=None if retry is None else value_of(RetryPolicy, retry),
        turn_timeout=turn_timeout,
    )


def _adapted(
    agent: Any,
    subagents: dict[str, str],
    tools: dict[str, ToolOptions],
    deps: Callable[[TurnContext], Any] | None,
) -> Any:
    if hasattr(agent, "run_turn") and not isinstance(agent, type):
        return agent
    framework = framework_of(agent)
    if framework == PYDANTIC_AI:
        from helix_sessions.agents.pydantic_ai import PydanticAgent

        return PydanticAgent(agent, subagents=subagents, deps=deps)
    if framework == OPENAI_AGENTS:
        from helix_sessions.agents.openai_agents import OpenAIAgent

        return OpenAIAgent(agent, subagents=subagents, deps=deps)
    if framework == LANGGRAPH:
        from helix_sessions.agents.langgraph import GraphAgent

        return GraphAgent(agent, subagents=subagents, tools=tools, deps=deps)
    raise NotConfigured(
        f"A {type(agent).__name__} is no agent: it has no run_turn, and is of no known framework."
    )


class DurableAgent:
    """An agent with `run_turn`, and with calls that create its sessions and drive them in place."""

    def __init__(
        self,
        agent: Any,
        *,
        name: str | None,
        subagents: Mapping[str, str] | None,
        tools: Mapping[str, ToolOptions | Mapping[str, Any]] | None,
        budget: Budget | None,
        retry: RetryPolicy | None,
        turn_timeout: float | None,
    ) -> None:
        self.agent = agent
        self.name = str(name or getattr(agent, "name", None) or type(agent).__name__)
        self.run_turn = agent.run_turn
        self.tools = getattr(agent, "tools", None) or {}
        self.client_tools = getattr(agent, "client_tools", None) or ()
        self.approval_tools = getattr(agent, "approval_tools", None) or ()
        self.subagents = {**(getattr(agent, "subagents", None) or {}), **(subagents or {})}
        given = {**(getattr(agent, "tool_options", None) or {}), **(tools or {})}
        self.tool_options = {tool: value_of(ToolOptions, options) for tool, options in given.items()}
        self.budget = budget or getattr(agent, "budget", None)
        self.retry = retry or getattr(agent, "retry", None)
        self.turn_timeout = getattr(agent, "turn_timeout", None) if turn_timeout is None else turn_timeout

    def run(self, session_id: str, prompt: Any, **fields: Any) -> RunOutcome:
        """Admit a prompt, and drive the session here until it has nothing more to do. A session that is not
        there is created, with `fields` of `create_session`."""
        io = Inline()
        finished(self._admit(io, session_id, prompt, fields))
        return finished(_drive(io, self, session_id))

    async def arun(self, session_id: str, prompt: Any, **fields: Any) -> RunOutcome:
        """`run`, awaited."""
        io = OnLoop()
        await self._admit(io, session_id, prompt, fields)
        return await _drive(io, self, session_id)

    async def astream(
        self, session_id: str, prompt: Any, **fields: Any
    ) -> AsyncGenerator[EventRecord | Fragment, None]:
        """The events and fragments of `arun`, from the admission to the end. The run goes on if the
        caller stops reading."""
        io, store = OnLoop(), AsyncSessionStore()
        admitted = await self._admit(io, session_id, prompt, fields)
        tail = store.subscribe(session_id, after=admitted - 1, fragments=True)
        first = await anext(tail)  # from here on it is told of fragments
        driving = asyncio.ensure_future(_drive(io, self, session_id))
        _UNDER_WAY.add(driving)
        driving.add_done_callback(_UNDER_WAY.discard)
        reading: asyncio.Future[Any] | None = None
        try:
            yield first
            seen, last = admitted, None
            while True:
                reading = asyncio.ensure_future(anext(tail))
                if last is None:
                    await asyncio.wait({reading, driving}, return_when=asyncio.FIRST_COMPLETED)
                if last is None and driving.done():
                    driving.result()
                    last = (await store.get_session_head(session_id)).head_seq
                if last is not None and seen >= last and not reading.done():
                    break
                found = await reading
                if isinstance(found, EventRecord):
                    seen = found.seq
                yield found
        finally:
            if reading is not None:
                reading.cancel()
            await tail.aclose()

    async def _admit(self, io: IO, session_id: str, prompt: Any, fields: Mapping[str, Any]) -> int:
        """The number of the event of the admission."""
        store = SessionStore()
        shaped = getattr(self.agent, "prompt_of", None)
        content = prompt if shaped is None else shaped(prompt)
        await io.db(partial(store.ensure_session, session_id, agent_type=self.name, **fields))
        receipt = await io.db(partial(store.admit_input, session_id, content))
        return receipt.admitted_seq


async def _drive(io: IO, agent: Any, session_id: str) -> RunOutcome:
    """Drive a session until it has nothing more to do; if another process drives it, wait for that. Its
    sub-agents are driven here too, where `AGENTS` names them."""
    from helix_sessions.runtime.scheduling import configured_runner

    store = SessionStore()
    runner = configured_runner(agent, store)
    while True:
        outcome = await runner._drive(io, session_id, forced=False)
        if outcome.kind == "suspended_awaiting_children" and await _drive_children(io, store, session_id):
            continue
        if outcome.kind != "idle":
            return outcome
        at, lease = await io.db(_when, store, session_id)
        if at is None and lease is None:
            runs = await io.db(partial(store.list_runs, session_id, limit=1))
            return outcome_of(next(iter(runs.items), None))
        wait = _LOOK_SECONDS if at is None else (at - timezone.now()).total_seconds()
        await io.sleep(min(max(wait, 0.01), 1.0))


async def _drive_children(io: IO, store: SessionStore, session_id: str) -> bool:
    """Whether one of the sub-agents that a session waits for could be driven."""
    state = await io.db(store.load_state, session_id)
    drove = False
    for wait in (state.suspended_awaiting_children or {}).values():
        agent = await io.db(agent_for, wait["agent_type"])
        if agent is not None:
            child = await _drive(io, agent, wait["sub_session_id"])
            drove |= child.kind in ("completed", "failed")
    return drove


def _when(store: SessionStore, session_id: str) -> tuple[datetime | None, Any]:
    state, lease = store.load_state(session_id), store.get_lease(session_id)
    return state.runnable_at, lease if lease is not None and store.is_lease_live(lease) else None
