"""The loop: one run of an agent, turn after turn, from what opened it to its end."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from helix_sessions.exceptions import Fenced
from helix_sessions.messages.tool_ledger import ToolCall, calls_in
from helix_sessions.runtime import errors, retries, telemetry, tools
from helix_sessions.runtime.agents import Toolbox
from helix_sessions.runtime.loop.context_policy import Unavailable
from helix_sessions.runtime.loop.endings import budget_exceeded, ended_by_spend, failed, overspent
from helix_sessions.runtime.loop.io import IO
from helix_sessions.runtime.loop.journal import Journal, OverSpent
from helix_sessions.runtime.loop.stops import Stop
from helix_sessions.runtime.outcomes import Answer, added, interrupted, read
from helix_sessions.runtime.turn_context import TurnContext, settling
from helix_sessions.store.calls.tool_rules import applicable
from helix_sessions.store.driving.boundaries import INTERRUPTED, REFUSED, Ending, Next, Outcome, Step
from helix_sessions.store.driving.suspensions import Interrupted
from helix_sessions.store.driving.turn_log import TurnStart
from helix_sessions.types import RetryPolicy, ToolRule
from helix_sessions.values.agents import AgentDefinition, value_of

_log = logging.getLogger("helix_sessions.runner")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How far a run may go."""

    turn_limit: int | None = 25
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    turn_timeout: float | None = None
    most_steers: int = 32


class HandedOver(Exception):
    """This process ends, and has left the session to the next that looks for it."""


class _Ended(Exception):
    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


class RunLoop:
    """One run, driven to its end."""

    def __init__(self, io: IO, agent: Any, journal: Journal, stop: Stop, bounds: Bounds) -> None:
        self._io = io
        self._agent = agent
        self._toolbox = Toolbox(agent)
        self._journal = journal
        self._stop = stop
        self._bounds = bounds
        self._span: telemetry.AgentSpan | None = None
        self._began = 0.0
        """When the model was asked."""

    async def run(self) -> Outcome:
        """Drive it; what became of it."""
        if not telemetry.is_on():
            return await self._drive()
        with await self._io.db(self._journal.span) as self._span:
            outcome = await self._drive()
            run, progress = outcome.run, self._journal.progress
            if run is not None:
                self._span.finish(run.status, usage=progress.usage, error=run.error)
            return outcome

    async def _drive(self) -> Outcome:
        try:
            if self._journal.open_calls.calls:
                await self._execute_open_calls()
            while True:
                await self._turn()
        except _Ended as ended:
            return ended.outcome
        except OverSpent as error:
            return await self._journal.end(ended_by_spend(error.limits, self._journal.spent()))
        except Unavailable as error:
            return await self._journal.end(failed(errors.CONTEXT_UNAVAILABLE, str(error)))

    async def _turn(self) -> None:
        """One call of the model and what follows from it."""
        self._journal.check()
        number = self._journal.progress.turns + 1
        turn = await self._journal.start(number)
        if self._stop.is_set():
            await self._interrupted(turn)
        exceeded = budget_exceeded(self._journal, turn.definition)
        if exceeded is not None:
            raise _Ended(await self._journal.end(exceeded))
        began = self._began = time.monotonic()
        answer, turn = await self._answer(turn)
        if turn.saw_stop:
            answer = interrupted(answer, turn.said_so_far)
        progress = self._journal.progress
        progress.turns += 1
        progress.usage = added(progress.usage, answer.usage)
        model = turn.definition.model
        messages = tuple(self._named(message, model) for message in answer.messages)
        answer = replace(answer, messages=messages)
        model = (answer.message or {}).get("model", model)
        asked = tools.asked(self._toolbox, answer, await self._rules(turn, answer))
        finished = {
            "turn": number,
            "model": model,
            "usage": answer.usage,
            "finish_reason": "interrupted" if turn.saw_stop else _finish_reason(answer, asked),
        }
        step = Step(
            turn_id=turn.turn_id,
            number=number,
            messages=messages,
            writes=answer.writes,
            usage=answer.usage,
            finished=finished,
            rulings=asked.rulings,
        )
        self._journal.check()
        ends = answer.final is not False if not asked.order else bool(answer.final) and not asked.open
        if answer.error is not None or self._stop.is_set() or ends:
            await self._conclude(answer, asked, _timed(step, began))
        else:
            await self._follow(turn, step, answer, asked, began)

    async def _answer(self, turn: TurnContext) -> tuple[Answer, TurnContext]:
        """What the model says, asked again as the retry policy says, or once more with a smaller context."""
        attempt, smaller = self._journal.failed_attempts + 1, False
        while True:
            try:
                call = settling(self._agent.run_turn, turn, turn=turn)
                if self._span is not None:
                    model = _name(turn.definition.model)
                    opens = partial(telemetry.chat_span, self._span, model=model, context=turn.context)
                    call = telemetry.around(opens, call)
                value = await self._io.ask(call, self._stop, self._turn_timeout)
                return read(value), turn
            except Fenced:
                raise
            except Exception as error:
                self._journal.check()
                if self._stop.is_set():  # it was cancelled, or stops by raising
                    await self._interrupted(turn)
                if not (smaller or turn.wrote) and await self._journal.makes_smaller(error):
                    smaller, turn = True, await self._journal.start(self._journal.progress.turns + 1)
                    continue
                await self._retry(turn, error, attempt)
                attempt += 1
                turn.close()
                turn = await self._journal.start(self._journal.progress.turns + 1)

    async def _retry(self, turn: TurnContext, error: Exception, attempt: int) -> None:
        """Wait for the next attempt, or end the run."""
        turn.close()
        wait = retries.delay(error, self._retry_policy, attempt)
        if wait is not None and wait > self._journal.longest_wait:
            wait = None
        told = errors.document(errors.code_of(error), error, attempt=attempt)
        if wait is None:
            _log.warning("The agent of session %r raised.", turn.session_id, exc_info=error)
            step = {"turn_id": turn.turn_id, "attempt": attempt, "error": told, "retry_at": None}
            ending = replace(failed(errors.AGENT_RAISED, told), failed_call=step)
            raise _Ended(await self._journal.end(ending))
        await self._journal.call_failed(turn, attempt, told, wait)
        self._journal.check()
        if self._stop.is_set():
            await self._interrupted(turn)

    async def _interrupted(self, turn: TurnContext) -> None:
        """End the run, with what was said so far."""
        self._journal.check()
        turn.close()
        said = turn.said_so_far
        step = None
        if said:
            message = {"role": "assistant", "content": said, "interrupted": True}
            model, number = turn.definition.model, self._journal.progress.turns + 1
            finished = {"turn": number, "model": model, "usage": None, "finish_reason": "interrupted"}
            messages = [self._named(message, model)]
            step = Step(turn_id=turn.turn_id, number=0, messages=messages, finished=finished)
            step = _timed(step, self._began)
        raise _Ended(await self._journal.end(INTERRUPTED, step))

    async def _follow(
        self, turn: TurnContext, step: Step, answer: Answer, asked: tools.Asked, began: float
    ) -> None:
        """Execute the tools of a step, and commit it, or wait for the others who answer."""
        results = {call["id"]: tools.refused(call, why) for call, why in asked.refused}
        spawns = list(asked.spawns)
        if asked.own:
            await self._journal.say(turn, step, asked.own)
            step = replace(step, messages=(), writes=(), usage=None)
            await self._execute(turn, asked, results, spawns)
        failed = any(result.get("is_error") for result in results.values())
        results.update(answer.results)
        ending = Ending(status="completed", output=answer.output) if answer.final and not failed else None
        await self._settle_step(_timed(step, began), asked, results, spawns, ending)

    async def _rules(self, turn: TurnContext, answer: Answer) -> Sequence[ToolRule]:
        """The tool rules that may be about the calls of an answer."""
        if not calls_in(answer.message):
            return ()
        state = turn.state
        return await self._io.db(applicable, turn.using, state.session_id, state.agent_type, state.owner_id)

    async def _execute_open_calls(self) -> None:
        """Calls that a person approved while the session was suspended, or that may be repeated."""
        open_calls = self._journal.open_calls
        turn = await self._journal.start(0)
        step = Step(turn_id=turn.turn_id, number=0)
        order = [call["id"] for call in open_calls.calls]
        asked = tools.Asked(order=order, approved=set(order) - set(open_calls.tries))
        for call in open_calls.calls:
            tools.add_executed(asked, self._toolbox, call)
        clients = {call.tool_call_id for call in asked.pending}
        await self._journal.say(turn, step, [call for call in open_calls.calls if call["id"] not in clients])
        results = {call["id"]: tools.refused(call, why) for call, why in asked.refused}
        spawns: list[tuple[ToolCall, Any]] = list(asked.spawns)
        if asked.own:
            await self._execute(turn, asked, results, spawns)
        await self._settle_step(step, asked, results, spawns)

    async def _execute(
        self,
        turn: TurnContext,
        asked: tools.Asked,
        results: dict[str, dict[str, Any]],
        spawns: list[tuple[ToolCall, Any]],
    ) -> None:
        journal = self._journal
        work = tools.ToolCalls(
            self._toolbox,
            turn,
            key_of=lambda call: journal.key_of(turn, call),
            settle=lambda settled: journal.settle(turn, settled),
            log_again=lambda call, attempt, error: journal.log_again(turn, call, attempt, error),
            policy=self._retry_policy,
            approved=asked.approved,
            span=self._span,
        )
        work.tried(journal.open_calls.tries)
        for result in await work.execute(self._io, asked.own, self._stop):
            if result.spawn is not None:
                spawns.append((result.call, result.spawn))
            elif result.waits is not None:
                asked.pending.append(tools.pending_call(self._toolbox, result.call, result.waits))
            elif result.message is not None:
                results[result.call["id"]] = result.message

    async def _settle_step(
        self,
        step: Step,
        asked: tools.Asked,
        results: dict[str, dict[str, Any]],
        spawns: list[tuple[ToolCall, Any]],
        ending: Ending | None = None,
    ) -> None:
        """Commit what is ready, and wait for the rest; or go on with the next turn, or end as it says."""
        self._journal.check()
        not_spawned = await self._journal.refusals(spawns) if spawns else {}
        results.update(
            (call["id"], tools.refused(call, not_spawned[call["id"]]))
            for call, _ in spawns
            if call["id"] in not_spawned
        )
        spawns = [(call, spawn) for call, spawn in spawns if call["id"] not in not_spawned]
        if (asked.pending or spawns) and not self._stop.is_set():
            kind = _kind(asked, spawns, results)
            ready = replace(step, messages=(*step.messages, *_in_order(asked, results)))
            try:
                raise _Ended(await self._journal.suspend(ready, asked.pending, spawns, kind))
            except Interrupted:
                self._stop.set()
            except REFUSED as error:
                await self._discard(step, asked, results, error)
        for call in asked.all():
            results.setdefault(call["id"], tools.refused(call))
        step = replace(step, messages=(*step.messages, *_in_order(asked, results), *asked.follow_up))
        await self._commit(step, INTERRUPTED if self._stop.is_set() else ending)

    async def _conclude(self, answer: Answer, asked: tools.Asked, step: Step) -> None:
        """Commit a message that no tool follows. Calls in it are refused, because the run ends here."""
        results = {**{call["id"]: tools.refused(call) for call in asked.all()}, **answer.results}
        step = replace(step, messages=(*step.messages, *_in_order(asked, results)))
        if self._stop.is_set():
            ending = INTERRUPTED
        elif answer.error is not None:
            code = answer.error_code or errors.AGENT_FAILED
            ending = replace(failed(code, answer.error), goes_on=True)
        else:
            ending = Ending(status="completed", output=answer.output)
        await self._commit(step, ending)

    async def _commit(self, step: Step, ending: Ending | None) -> None:
        """Commit a step; with an ending, the run ends unless steers wait. Writes that cannot be applied fail
        the run; what was said and done is kept."""
        start = TurnStart(
            number=self._journal.progress.turns + 1,
            model=self._journal.definition.model,
            most_steers=self._bounds.most_steers,
        )
        leaves = self._journal.leaves
        limit = partial(self._limit, step.usage)
        following = Next(ending=ending, turn=None if leaves else start, limit=limit)
        try:
            outcome = await self._journal.commit(step, following)
        except REFUSED as error:
            await self._discard(step, None, {}, error)
            return
        if outcome.run is not None:
            raise _Ended(outcome)
        if leaves:
            raise HandedOver

    async def _discard(
        self, step: Step, asked: tools.Asked | None, results: dict[str, Any], error: Exception
    ) -> None:
        """End the run, because what the step writes cannot be stored; what was said is kept."""
        messages = list(step.messages)
        if asked is not None:
            for call in asked.all():
                results.setdefault(call["id"], tools.refused(call))
            messages += _in_order(asked, results)
        said = replace(step, messages=messages, writes=(), discard=True)
        told = errors.document(errors.AGENT_RAISED, error)
        raise _Ended(await self._journal.end(failed(errors.AGENT_RAISED, told), said))

    def _limit(self, usage: Any, definition: AgentDefinition) -> Ending | None:
        """How the run ends because of its limits, if one is reached and work remains. `usage` is what the
        step adds to what was spent."""
        limit = self._bounds.turn_limit
        if limit is not None and self._journal.progress.turns >= limit:
            said = f"The run has taken {limit} turns, and work remains."
            return failed(errors.TURN_LIMIT_EXCEEDED, said)
        held = budget_exceeded(self._journal, definition)
        return held or overspent(self._journal, usage)

    def _named(self, message: dict[str, Any], model: Any) -> dict[str, Any]:
        """A message with the model that said it, where that is kept."""
        if model is None or not self._journal.names_models:
            return message
        return {**message, "model": message.get("model", model)}

    @property
    def _retry_policy(self) -> RetryPolicy:
        own = getattr(self._agent, "retry", None)
        return value_of(RetryPolicy, own) if own else self._bounds.retry

    @property
    def _turn_timeout(self) -> float | None:
        own = getattr(self._agent, "turn_timeout", None)
        return self._bounds.turn_timeout if own is None else own


def _name(model: Any) -> str | None:
    return model if isinstance(model, str) else None


def _finish_reason(answer: Answer, asked: tools.Asked) -> str:
    said = (answer.message or {}).get("finish_reason")
    if isinstance(said, str):
        return said
    return "error" if answer.error is not None else "tool_calls" if asked.order else "stop"


def _timed(step: Step, began: float) -> Step:
    if step.finished is None:
        return step
    took = round((time.monotonic() - began) * 1000)
    return replace(step, finished={**step.finished, "duration_ms": took})


def _in_order(asked: tools.Asked, results: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [results[call_id] for call_id in asked.order if call_id in results]


def _kind(asked: tools.Asked, spawns: list[Any], results: Mapping[str, Any]) -> str:
    """What the session waits for: children alone, or a client or person alone, or a part of a mixed batch."""
    if spawns:
        return "step_partial" if asked.pending else "awaiting_children"
    kinds = {call.kind for call in asked.pending}
    return "step_partial" if results or len(kinds) > 1 else "client_tool"
