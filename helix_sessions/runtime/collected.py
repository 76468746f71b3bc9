"""The journal of an action: what an agent comes to is collected, and saved with the action at its end."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.utils import timezone

from helix_sessions.content import documents
from helix_sessions.messages.tool_ledger import ToolCall
from helix_sessions.runtime import budgets, retries, telemetry
from helix_sessions.runtime.budgets import Spent
from helix_sessions.runtime.loop.io import IO
from helix_sessions.runtime.loop.journal import OpenCalls, OverSpent, Progress
from helix_sessions.runtime.loop.stops import Stop
from helix_sessions.runtime.turn_context import TurnContext
from helix_sessions.store import SessionStore
from helix_sessions.store.driving.boundaries import INTERRUPTED, Ending, Next, Outcome, Step
from helix_sessions.store.driving.turn_log import Settled
from helix_sessions.store.engine.spending import Standings
from helix_sessions.store.limits import spend_checks
from helix_sessions.types import ModelContext, PendingCall, Run, SessionState, Spawn, chars_over_four
from helix_sessions.values.agents import AgentDefinition, AgentSession, Budget
from helix_sessions.writes import apply_writes


class CollectedJournal:
    """One execution of an agent in a session that an action holds. None of it is stored before its end."""

    names_models = False
    longest_wait = retries.IN_PLACE_SECONDS  # its caller waits
    failed_attempts = 0
    leaves = False

    def __init__(self, io: IO, store: SessionStore, session: AgentSession, agent: Any, stop: Stop) -> None:
        self._io = io
        self._store = store
        self._session = session
        self._own_budget = budgets.of_agent(agent)
        self.stop = stop
        self._began = time.monotonic()
        self._staged: list[Any] = []
        self._spend: Standings = ()
        self.messages: list[Mapping[str, Any]] = []
        self.writes: list[Any] = []
        self.ending: Ending | None = None
        self.waits = False
        """Calls are left to others."""
        self.progress = Progress()
        self.open_calls = OpenCalls()
        self.run = self._run()

    @property
    def definition(self) -> AgentDefinition:
        state = self._session.state
        return replace(
            self._session.definition,
            system_prompt=state.system_prompt,
            model=state.model,
            budget=state.budget or self._own_budget,
        )

    def current(self) -> AgentSession:
        """The session with what was said in this execution."""
        return self._session.with_messages(*self.messages)

    def spent(self) -> Spent:
        seconds = time.monotonic() - self._began
        return budgets.spent(steps=self.progress.turns, usage=self.progress.usage, seconds=seconds)

    def reached(self, budget: Budget | None) -> str | None:
        return budgets.reached(budget, self.spent())

    def overspent(self, usage: Any = None) -> Standings:
        # What this execution has used is committed at its end, so all of it is added here.
        return spend_checks.reached(spend_checks.with_usage(self._spend, self.progress.usage))

    def ask_spend(self) -> None:
        """See how the spend limits stand; `OverSpent` if nothing is left."""
        self._check_spend(self._store.load_state(self._session.session_id))

    def _check_spend(self, state: SessionState) -> None:
        self._spend = spend_checks.standings(self._store.using, state.owner_id, state.agent_type)
        overspent = self.overspent()
        if overspent:
            raise OverSpent(overspent)

    def span(self) -> telemetry.AgentSpan:
        session = self._session
        return telemetry.agent_span(
            self._store.using,
            session.session_id,
            session.definition.name,
            run_id=self.run.run_id,
            model=session.definition.model,
        )

    def check(self) -> None:
        """No lease can be lost here; the save at the end finds out what other writers did."""

    async def start(self, number: int) -> TurnContext:
        state, context = await self._io.db(self._read)
        if number:
            await self._io.db(self._check_spend, state)
        if self.progress.turns and await self._io.db(self._is_asked_to_stop):
            self.stop.set()
        return TurnContext(
            store=self._store,
            run=replace(self.run, step_count=self.progress.turns),
            state=state,
            context=context,
            stop=self.stop,
            turn_id=f"{self.run.run_id}:{number}",
            definition=self.definition,
            budget=budgets.left(self.definition.budget, self.spent()),
            session=self.current(),
            is_asked=self._is_asked_to_stop,
        )

    async def say(self, turn: TurnContext, step: Step, calls: Sequence[ToolCall]) -> None:
        self.messages.extend(step.messages)
        self._staged.extend(step.writes)

    def settle(self, turn: TurnContext, settled: Settled) -> None:
        self._staged.extend(settled.writes)

    def log_again(self, turn: TurnContext, call: ToolCall, attempt: int, error: str) -> None:
        """Nothing is logged before the end."""

    def key_of(self, turn: TurnContext, call: ToolCall) -> str:
        return documents.digest(turn.session_id, turn.turn_id, call["id"])

    async def commit(self, step: Step, following: Next) -> Outcome:
        self.messages.extend(step.messages)
        self.writes += [*self._staged, *step.writes]
        self._staged.clear()
        ending = INTERRUPTED if self.stop.is_set() else following.ending
        if ending is None and following.limit is not None:
            ending = following.limit(self.definition)
        return Outcome() if ending is None else self._end(ending)

    async def end(self, ending: Ending, step: Step | None = None) -> Outcome:
        if step is not None:
            self.messages.extend(step.messages)
        return self._end(ending)

    async def suspend(
        self, step: Step, pending: Sequence[PendingCall], spawns: Sequence[tuple[ToolCall, Spawn]], kind: str
    ) -> Outcome:
        self.waits = True
        self.messages.extend(step.messages)
        self.writes += [*self._staged, *step.writes]
        return self._end(Ending(status="interrupted"))

    async def refusals(self, spawns: Sequence[tuple[ToolCall, Spawn]]) -> dict[str, str]:
        return {call["id"]: "Sub-agents need a runner." for call, _ in spawns}

    async def call_failed(self, turn: TurnContext, attempt: int, error: Any, wait: float) -> None:
        await self._io.wait(self.stop, wait)

    async def makes_smaller(self, error: Exception) -> bool:
        return False

    def check_writes(self) -> None:
        """Writes that cannot be applied are the agent's failure, not that of the save."""
        if self.writes:
            apply_writes(self._store.load_state(self._session.session_id).custom_state, self.writes)

    def _end(self, ending: Ending) -> Outcome:
        self.ending = ending
        return Outcome(run=replace(self.run, status=ending.status))

    def _read(self) -> tuple[SessionState, ModelContext]:
        messages = [dict(message) for message in self.current().state.messages]
        seen = ModelContext(baseline=self._session.state.system_prompt, messages=messages)
        state = self._store.load_state(self._session.session_id)
        return state, replace(seen, estimated_tokens=chars_over_four(seen))

    def _is_asked_to_stop(self) -> bool:
        return self._store.peek_interrupt_flag(self._session.session_id) is not None

    def _run(self) -> Run:
        """The execution in the shape of a run; it is kept with the session, not as a run."""
        number = self._session.state.execution_count
        return Run(
            run_id=f"{self._session.session_id}-execution-{number}"[-255:],
            session_id=self._session.session_id,
            turn=number,
            status="running",
            step_count=0,
            start_sequence=0,
            end_sequence=None,
            output=None,
            error=None,
            usage=None,
            metadata={},
            started_at=timezone.now(),
            ended_at=None,
        )
