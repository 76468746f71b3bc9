"""An activity: a run of the agent from the inputs that opened it to its end, turn after turn."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, cast

from helix_sessions.exceptions import Fenced, InvalidDocument, InvalidWrites
from helix_sessions.runtime import tool_calls
from helix_sessions.runtime.answers import words
from helix_sessions.runtime.loop import steps
from helix_sessions.runtime.loop.context_policy import Shown, Unavailable
from helix_sessions.runtime.loop.drivers import IO
from helix_sessions.runtime.loop.lease_keeper import Driven, HandedOver
from helix_sessions.runtime.loop.stops import Stopped
from helix_sessions.runtime.outcomes import added, checked
from helix_sessions.runtime.tool_calls import ToolCalls
from helix_sessions.runtime.turn_context import TurnContext, settling
from helix_sessions.store import SessionStore
from helix_sessions.types import PendingCall, Run, RunOutcome, TurnOutcome

_log = logging.getLogger("helix_sessions.runner")

TURN_LIMIT_EXCEEDED = "turn_limit_exceeded"
AGENT_RAISED = "agent_raised"
AGENT_FAILED = "agent_failed"
CONTEXT_UNAVAILABLE = "context_unavailable"


@dataclass(frozen=True, slots=True)
class Step:
    """What a step comes to."""

    step_id: str
    messages: Sequence[dict[str, Any]]
    writes: Sequence[Any] = ()
    """What the turn itself writes, where no tool was executed."""
    discard: bool = False
    """What it staged is forgotten."""


class Activity:
    """One run, driven to its end."""

    def __init__(
        self,
        io: IO,
        store: SessionStore,
        agent: Any,
        driven: Driven,
        run: Run,
        *,
        mode: str,
        turn_limit: int,
        shown: Shown,
        forced: bool,
        approved: Sequence[Mapping[str, Any]] = (),
        recovered: bool = False,
    ) -> None:
        self._io = io
        self._store = store
        self._agent = agent
        self._driven = driven
        self._key = run.session_id
        self._run = run
        self._mode = mode
        self._turn_limit = turn_limit
        self._shown = shown
        self._forced = forced
        self._approved = approved
        self._recovered = recovered
        self._turns = 0
        self._usage: Any = None

    async def run(self) -> tuple[RunOutcome, bool]:
        """Drive it; how it ended, and whether the drain goes on to the next."""
        try:
            return await self._work()
        except Unavailable as error:
            return await self._fail(str(error), CONTEXT_UNAVAILABLE), False

    async def _work(self) -> tuple[RunOutcome, bool]:
        if self._recovered:
            await self._io.db(self._shown.before_promotion, self._store, self._key)
        if self._approved:
            ended = await self._execute_approved()
            if ended is not None:
                return ended
        while True:
            if self._driven.leaving:
                raise HandedOver
            await self._io.db(self._check_lease)
            if await self._is_interrupted():
                return await self._interrupted()
            promoted = await self._io.db(self._store.promote_inputs, self._key, self._mode)
            self._mode = "steer"
            if not (promoted or self._forced or self._turns):
                return await self._end("completed"), True  # whoever asked took it back
            ended = await self._turn()
            if ended is not None:
                return ended
            if self._turns >= self._turn_limit:
                return await self._fail(TURN_LIMIT_EXCEEDED, TURN_LIMIT_EXCEEDED), False
            await self._io.db(self._shown.before_promotion, self._store, self._key)

    async def _turn(self) -> tuple[RunOutcome, bool] | None:
        """One call of the model and what follows from it; `None`: the activity goes on."""
        turn = await self._context()
        try:
            answer = await self._ask(turn)
            outcome = checked(answer)
        except Stopped:
            return await self._interrupted()
        except Fenced:
            raise
        except Exception as error:
            if self._driven.stop.is_set():  # it was asked to stop, and does so by raising
                return await self._interrupted()
            _log.warning("The agent of session %r raised.", self._key, exc_info=error)
            return await self._fail(words(error), AGENT_RAISED), False
        self._turns += 1
        self._usage = added(self._usage, outcome.usage)
        return await self._follow(turn, outcome)

    async def _ask(self, turn: TurnContext) -> Any:
        """The model, a second time if its context was too large and could be made smaller."""
        try:
            return await self._once(turn)
        except Exception as error:
            if turn.wrote or not await self._slow(
                partial(self._shown.after_overflow, self._store, self._key, error)
            ):
                raise
        return await self._once(await self._context())

    async def _once(self, turn: TurnContext) -> Any:
        return await self._io.ask(settling(self._agent.run_turn, turn, turn=turn), self._driven.stop)

    async def _follow(self, turn: TurnContext, outcome: TurnOutcome) -> tuple[RunOutcome, bool] | None:
        """Store what the model said, execute the tools it asks for, decide what is next."""
        step_id, message = turn.turn_id, outcome.message
        asked = tool_calls.asked(self._agent, message)
        interrupted = await self._is_interrupted()
        if message is None or outcome.error is not None or interrupted or not (asked.own or asked.pending):
            return await self._say(outcome, asked, step_id, interrupted=interrupted)
        said = await self._io.db(
            self._store.open_step, self._key, writes=outcome.writes, message=message, **self._names(step_id)
        )
        calls = ToolCalls(self._store, self._agent, turn, step_id=step_id, position=said.first_position)
        results = await calls.execute(self._io, asked.own, self._driven.stop)
        interrupted = await self._is_interrupted()
        if asked.pending and not interrupted:
            await self._io.db(
                steps.suspend, self._store, self._key, results, asked.pending, **self._names(step_id)
            )
            return await self._io.db(self._suspended), False
        results += tool_calls.refused(_plain(asked.pending), tool_calls.NOT_EXECUTED)
        return await self._commit(Step(step_id, results), "interrupted" if interrupted else None)

    async def _say(
        self, outcome: TurnOutcome, asked: tool_calls.Asked, step_id: str, *, interrupted: bool
    ) -> tuple[RunOutcome, bool] | None:
        """Commit a message no tool follows. Calls in it are refused, because the activity ends here."""
        messages = [] if outcome.message is None else [cast(dict[str, Any], outcome.message)]
        messages += tool_calls.refused([*asked.own, *_plain(asked.pending)], tool_calls.NOT_EXECUTED)
        step = Step(step_id, messages, outcome.writes)
        if interrupted:
            return await self._commit(step, "interrupted")
        if outcome.error is not None:
            return await self._commit(step, "failed", error=outcome.error, failure_reason=AGENT_FAILED)
        if (await self._io.db(self._store.count_inputs, self._key))["steer"]:
            return await self._commit(step, None)
        return await self._commit(step, "completed", output=outcome.output)

    async def _execute_approved(self) -> tuple[RunOutcome, bool] | None:
        """Calls that somebody approved while the session was suspended."""
        turn = await self._context(number=0)
        calls = [
            {"id": call["tool_call_id"], "name": call["tool_name"], "arguments": call["arguments"]}
            for call in self._approved
        ]
        position = turn.state.message_count
        work = ToolCalls(self._store, self._agent, turn, step_id=turn.turn_id, position=position)
        results = await work.execute(self._io, calls, self._driven.stop)
        return await self._commit(Step(turn.turn_id, results), None)

    async def _commit(self, step: Step, ends: str | None, **outcome: Any) -> tuple[RunOutcome, bool] | None:
        """Commit a step; with an ending, the run and the session end in the same transaction. Writes that
        cannot be applied fail the run; what was said and done is kept."""
        try:
            if ends is not None:
                return await self._end(ends, step, **outcome), ends != "interrupted"
            await self._io.db(
                steps.commit,
                self._store,
                self._key,
                step.messages,
                writes=step.writes,
                **self._names(step.step_id),
            )
        except (InvalidWrites, InvalidDocument) as error:
            said = Step(step.step_id, step.messages, discard=True)
            return await self._fail(words(error), AGENT_RAISED, said), False
        return None

    async def _context(self, number: int | None = None) -> TurnContext:
        shown = await self._slow(partial(self._shown.context, self._store, self._key))
        return TurnContext(
            store=self._store,
            run=self._run,
            state=await self._io.db(self._store.load_state, self._key),
            context=shown,
            stop=self._driven.stop,
            turn_id=f"{self._run.run_id}:{self._turns + 1 if number is None else number}",
        )

    async def _slow(self, call: Any) -> Any:
        """A call that may ask a model for a summary."""
        if self._shown.compaction is None:
            return await self._io.db(call)
        return await self._io.ask(call, self._driven.stop)

    def _names(self, step_id: str) -> dict[str, str]:
        return {"step_id": step_id, "run_id": self._run.run_id}

    def _check_lease(self) -> None:
        """At each boundary: a model is not asked for somebody else's session."""
        newest, ours = self._store.get_lease(self._key), self._driven.lease
        if newest is None or ours is None:
            raise Fenced
        if (newest.fence, newest.token) != (ours.fence, ours.token):
            raise Fenced

    async def _is_interrupted(self) -> bool:
        if self._driven.lost:
            raise Fenced
        if not self._driven.stop.is_set():
            request = await self._io.db(self._store.peek_interrupt_flag, self._key)
            if request is not None:
                self._driven.stop.set()
        return self._driven.stop.is_set()

    async def _interrupted(self) -> tuple[RunOutcome, bool]:
        if self._driven.lost:
            raise Fenced
        return await self._end("interrupted"), False

    async def _fail(self, error: str, reason: str, step: Step | None = None) -> RunOutcome:
        return await self._end("failed", step, error=error, failure_reason=reason)

    async def _end(self, status: str, step: Step | None = None, **outcome: Any) -> RunOutcome:
        """End the run and its session, with the last step, if there is one to commit."""
        if step is not None:
            outcome.update((one.name, getattr(step, one.name)) for one in fields(step))
        run = await self._io.db(
            self._store.end_run,
            self._key,
            self._run.run_id,
            status,
            step_count=self._turns,
            usage=self._usage,
            **outcome,
        )
        return RunOutcome(kind=run.status, run=run, output=run.output, error=run.error)

    def _suspended(self) -> RunOutcome:
        run = self._store.get_run(self._key, self._run.run_id)
        return RunOutcome(kind=run.status, run=run)


def _plain(calls: Sequence[PendingCall]) -> list[dict[str, Any]]:
    return [{"id": call.tool_call_id, "name": call.tool_name} for call in calls]
