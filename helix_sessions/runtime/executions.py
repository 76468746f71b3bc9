"""One execution of an agent: model call after model call, until it is done or a limit is reached."""

import asyncio
import time
from collections.abc import Awaitable, Mapping
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from django.utils import timezone

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidInput
from helix_sessions.messages.usage import added, usage_of
from helix_sessions.runtime.actions.base import Desk, Stages
from helix_sessions.runtime.agents import approval_tools_of, client_tools_of, tools_of
from helix_sessions.runtime.answers import MOST_OF_AN_ERROR, Answer, answer_of, result_of, storable
from helix_sessions.runtime.turns import ExecutionTurn
from helix_sessions.transcripts import ToolCall, calls_in
from helix_sessions.types import UNSET
from helix_sessions.values.agents import AgentSession, Budget, Execution
from helix_sessions.writes import apply_writes, parse_writes


def execution_of(agent: Any, session: AgentSession, desk: Desk) -> Stages[AgentSession]:
    """Let an agent answer a session whose message is stored; the session with what it came to."""
    so_far = Progress(session, desk)
    try:
        status, error = yield from _steps(agent, so_far)
        so_far.check_writes()
    except Exception as failure:
        so_far.writes = []
        status, error = "failed", storable(f"{type(failure).__name__}: {failure}")
    return so_far.ended(status, error)


class Progress:
    """What an execution has come to so far. None of it is stored before its end."""

    def __init__(self, session: AgentSession, desk: Desk) -> None:
        self.session = session
        self.desk = desk
        self.messages: list[Mapping[str, Any]] = []
        self.writes: list[Any] = []
        self.usage: dict[str, Any] | None = None
        self.steps = 0
        self._began = time.monotonic()

    def current(self) -> AgentSession:
        """The session with what was said in this execution."""
        return self.session.with_messages(*self.messages)

    def take(self, answer: Answer) -> None:
        """Count a step, and keep what it came to, if all of it can be stored."""
        self.steps += 1
        writes = parse_writes(answer.writes)
        documents.dump([answer.usage, answer.output])
        self.messages.extend(answer.messages)
        self.writes.extend(writes)
        self.usage = added(self.usage, answer.usage)
        if answer.output is not None:
            self.desk.output = answer.output

    def reached(self, budget: Budget | None) -> str | None:
        """The limit that was reached, if one was."""
        if budget is None:
            return None
        used = usage_of(self.usage)
        spent = {
            "max_steps": self.steps,
            "max_tokens": used.tokens,
            "max_seconds": time.monotonic() - self._began,
            "max_cost": used.cost,
        }
        for name, amount in spent.items():
            limit = getattr(budget, name)
            if limit is not None and amount >= limit:
                return f"{name} of {limit} was reached"
        if budget.deadline is not None and timezone.now() >= budget.deadline:
            return f"The deadline of {budget.deadline.isoformat()} has passed"
        return None

    def check_writes(self) -> None:
        """Writes that cannot be applied are the agent's failure, not that of the save."""
        if self.writes:
            custom = self.desk.store.load_state(self.session.session_id).custom_state
            apply_writes(custom, self.writes)

    def ended(self, status: str, error: str | None) -> AgentSession:
        self.desk.writes = self.writes
        if status == "failed":
            self.desk.output = UNSET
        execution = Execution(status, error, self.steps, self.usage)
        return self.current().with_state(execution=execution)


def _steps(agent: Any, so_far: Progress) -> Stages[tuple[str, str | None]]:
    """Call the model until it calls no tool; how that ended, and why."""
    run_turn = getattr(agent, "run_turn", None)
    while True:
        limit = so_far.reached(so_far.session.state.budget)
        if limit is not None:
            return "budget_exceeded", limit
        turn = ExecutionTurn(so_far.current(), so_far.desk.store, steps=so_far.steps)
        if iscoroutinefunction(run_turn):
            turn.prepare()
        if so_far.steps and turn.interrupted():
            return "interrupted", None
        given = agent(so_far.session) if run_turn is None else run_turn(turn)
        answer = answer_of((yield given) if isawaitable(given) else given)
        so_far.take(answer)
        if answer.error is not None:
            return "failed", answer.error[:MOST_OF_AN_ERROR]
        calls = [call for message in answer.messages for call in calls_in(message)]
        if not calls or run_turn is None:
            return "completed", None
        left_to_others = {*client_tools_of(agent), *approval_tools_of(agent)}
        if any(call["name"] in left_to_others for call in calls):
            return "waiting", None
        yield from _tools(agent, turn, calls, so_far)


def _tools(agent: Any, turn: ExecutionTurn, calls: list[ToolCall], so_far: Progress) -> Stages[None]:
    """Execute the calls of a step, async ones all at once; a failing one has an error for its result."""
    outcomes: list[Any] = [_started(agent, turn, call) for call in calls]
    waiting = [outcome for outcome in outcomes if isawaitable(outcome)]
    if waiting:
        settled = iter((yield _all(waiting)))
        outcomes = [next(settled) if isawaitable(outcome) else outcome for outcome in outcomes]
    for call, outcome in zip(calls, outcomes, strict=True):
        message, writes = result_of(call, outcome)
        so_far.messages.append(message)
        so_far.writes.extend(writes)


def _started(agent: Any, turn: ExecutionTurn, call: ToolCall) -> Any:
    tools = tools_of(agent)
    if call["name"] not in tools:
        return InvalidInput(f"There is no tool {call['name']!r:.80}.")
    try:
        return tools[call["name"]](call["arguments"], turn)
    except Exception as error:
        return error


async def _all(waiting: list[Awaitable[Any]]) -> list[Any]:
    return await asyncio.gather(*waiting, return_exceptions=True)
