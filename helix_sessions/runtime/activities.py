"""An activity: a run of the agent from the inputs that opened it to its end, turn after turn."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from helix_sessions import documents
from helix_sessions.exceptions import Fenced, InvalidInput, InvalidWrites
from helix_sessions.runtime import steps, tool_calls
from helix_sessions.runtime.answers import words
from helix_sessions.runtime.keeper import Driven, HandedOver
from helix_sessions.runtime.runner_context import Shown, Unavailable
from helix_sessions.runtime.runner_io import IO
from helix_sessions.runtime.stops import Stopped
from helix_sessions.runtime.tool_calls import ToolCalls
from helix_sessions.runtime.turn_context import TurnContext, settling
from helix_sessions.store import SessionStore
from helix_sessions.types import InterruptRequest, Run, RunOutcome, TurnOutcome
from helix_sessions.writes import parse_writes

_log = logging.getLogger("helix_sessions.runner")

TURN_LIMIT_EXCEEDED = "turn_limit_exceeded"
AGENT_RAISED = "agent_raised"
AGENT_FAILED = "agent_failed"
CONTEXT_UNAVAILABLE = "context_unavailable"


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
        self._turns = 0
        self._usage: Any = None

    async def run(self) -> tuple[RunOutcome, bool]:
        """Drive it; how it ended, and whether the drain goes on to the next."""
        if self._approved:
            await self._execute_approved()
        while True:
            if self._driven.leaving:
                raise HandedOver
            await self._io.db(self._check_lease)
            if await self._is_interrupted():
                return await self._interrupted()
            promoted = await self._io.db(self._store.promote_inputs, self._key, self._mode)
            self._mode = "steer"
            if not (promoted or self._forced or self._turns):
                return await self._io.db(self._end, "completed"), True  # whoever asked took it back
            ended = await self._turn()
            if ended is not None:
                return ended
            if self._turns >= self._turn_limit:
                return await self._fail(TURN_LIMIT_EXCEEDED, TURN_LIMIT_EXCEEDED), False
            try:
                await self._io.db(self._shown.before_promotion, self._store, self._key)
            except Unavailable as error:
                return await self._fail(str(error), CONTEXT_UNAVAILABLE), False

    async def _turn(self) -> tuple[RunOutcome, bool] | None:
        """One call of the model and what follows from it; `None`: the activity goes on."""
        turn = await self._context()
        try:
            answer = await self._ask(turn)
            outcome = _checked(answer)
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
        self._usage = _added(self._usage, outcome.usage)
        try:
            return await self._follow(turn, outcome)
        except InvalidWrites as error:
            return await self._fail(words(error), AGENT_RAISED), False

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
        failed = outcome.error is not None
        interrupted = await self._is_interrupted()
        if outcome.writes:
            await self._io.db(self._store.stage_changes, self._key, step_id, step_id, outcome.writes)
        if failed or interrupted or not (asked.own or asked.pending):
            return await self._say(outcome, asked, step_id, interrupted=interrupted)
        said = await self._io.db(self._store.append_messages, self._key, [message], run_id=self._run.run_id)
        calls = ToolCalls(self._store, self._agent, turn, step_id=step_id, position=said.first_position)
        results = await calls.execute(self._io, asked.own, self._driven.stop)
        if asked.pending and not await self._is_interrupted():
            await self._io.db(
                steps.suspend, self._store, self._key, results, asked.pending, **self._names(step_id)
            )
            return await self._io.db(self._suspended), False
        waiting = [{"id": call.tool_call_id, "name": call.tool_name} for call in asked.pending]
        results += tool_calls.refused(waiting, tool_calls.NOT_EXECUTED)
        await self._io.db(steps.commit, self._store, self._key, results, **self._names(step_id))
        return await self._interrupted() if await self._is_interrupted() else None

    async def _say(
        self, outcome: TurnOutcome, asked: tool_calls.Asked, step_id: str, *, interrupted: bool
    ) -> tuple[RunOutcome, bool] | None:
        """Commit a message no tool follows. Calls in it are refused, because the activity ends here."""
        messages = [] if outcome.message is None else [outcome.message]
        open_calls = [*asked.own, *({"id": c.tool_call_id, "name": c.tool_name} for c in asked.pending)]
        messages += tool_calls.refused(open_calls, tool_calls.NOT_EXECUTED)
        failed = outcome.error is not None
        waiting = 0
        if not (failed or interrupted):
            waiting = (await self._io.db(self._store.count_inputs, self._key))["steer"]
        ends = not (failed or interrupted or waiting)
        changes = {"status": "completed", "output": outcome.output} if ends else {}
        await self._io.db(steps.commit, self._store, self._key, messages, **self._names(step_id), **changes)
        if interrupted:
            return await self._interrupted()
        if failed:
            return await self._fail(str(outcome.error), AGENT_FAILED), True
        return (await self._io.db(self._end, "completed", output=outcome.output), True) if ends else None

    async def _execute_approved(self) -> None:
        """Calls that somebody approved while the session was suspended."""
        turn = await self._context(number=0)
        calls = [
            {"id": call["tool_call_id"], "name": call["tool_name"], "arguments": call["arguments"]}
            for call in self._approved
        ]
        position = turn.state.message_count
        work = ToolCalls(self._store, self._agent, turn, step_id=turn.turn_id, position=position)
        results = await work.execute(self._io, calls, self._driven.stop)
        await self._io.db(steps.commit, self._store, self._key, results, **self._names(turn.turn_id))

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
        return await self._io.db(self._end_interrupted), False

    async def _fail(self, error: str, reason: str) -> RunOutcome:
        return await self._io.db(self._end, "failed", error=error, reason=reason)

    def _end_interrupted(self) -> RunOutcome:
        request: InterruptRequest | None = self._store.check_interrupt_flag(self._key)
        why = request.reason if request is not None else None
        return self._end("interrupted", context={"reason": why})

    def _end(
        self,
        status: str,
        *,
        output: Any = None,
        error: str | None = None,
        reason: str | None = None,
        context: Any = None,
    ) -> RunOutcome:
        """The run first: whoever finds a session that has ended finds no run of it."""
        run = self._store.update_run_status(
            self._key,
            self._run.run_id,
            status,
            step_count=self._turns,
            output=output,
            error=error,
            usage=self._usage,
        )
        self._store.compare_and_set_status(
            self._key, ["active"], status, error=error, failure_reason=reason, interrupt_context=context
        )
        return RunOutcome(kind=status, run=run, output=output, error=error)

    def _suspended(self) -> RunOutcome:
        run = self._store.get_run(self._key, self._run.run_id)
        return RunOutcome(kind=run.status, run=run)


def _checked(value: Any) -> TurnOutcome:
    """What an agent returned, in the form the store takes; anything else is the agent's error."""
    outcome = value
    if isinstance(value, Mapping) and "message" in value:
        outcome = TurnOutcome(**value)
    if not isinstance(outcome, TurnOutcome):
        raise InvalidInput(f"run_turn must return a TurnOutcome, not {type(value).__name__}.")
    message = outcome.message
    if isinstance(message, str):
        message = {"role": "assistant", "content": message}
    if message is None:
        if outcome.error is None:
            raise InvalidInput("A TurnOutcome needs a message, or an error.")
    elif not isinstance(message, Mapping) or message.get("role") != "assistant":
        raise InvalidInput("The message of a TurnOutcome must be one of the assistant.")
    else:
        message = dict(message)
    documents.dump([message, outcome.usage, outcome.output])
    if outcome.error is not None and not isinstance(outcome.error, str):
        raise InvalidInput("The error of a TurnOutcome must be a string.")
    writes = parse_writes(outcome.writes) if outcome.writes else ()
    return TurnOutcome(
        message, writes=writes, usage=outcome.usage, output=outcome.output, error=outcome.error
    )


def _added(one: Any, other: Any) -> Any:
    """The usage of several turns: numbers are added, anything else is the last."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return {**one, **{name: _added(one.get(name), value) for name, value in other.items()}}
    if _is_number(one) and _is_number(other):
        return one + other
    return one if other is None else other


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
