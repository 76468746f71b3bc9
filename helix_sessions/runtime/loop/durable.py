"""The journal of a session that is driven: every step is committed under the lease as it happens."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from helix_sessions.conf import conf
from helix_sessions.content import documents
from helix_sessions.exceptions import Fenced
from helix_sessions.messages.tool_ledger import ToolCall
from helix_sessions.runtime import budgets, retries, telemetry
from helix_sessions.runtime.budgets import Spent
from helix_sessions.runtime.loop.context_policy import ContextPolicy
from helix_sessions.runtime.loop.io import IO
from helix_sessions.runtime.loop.journal import OpenCalls, OverSpent, Progress, Waits
from helix_sessions.runtime.loop.lease_keeper import OwnedSession
from helix_sessions.runtime.turn_context import TurnContext
from helix_sessions.store.driving import boundaries, claims, suspensions, trees
from helix_sessions.store.driving.boundaries import Ending, Next, Outcome, Step
from helix_sessions.store.driving.driver import Driver
from helix_sessions.store.driving.suspensions import SpawnedCall
from helix_sessions.store.driving.turn_log import Settled, TurnStart
from helix_sessions.store.engine.spending import Standings
from helix_sessions.store.limits import spend_checks
from helix_sessions.store.runs.runs import turn_id_of
from helix_sessions.store.transcript.fragments import MessageStream
from helix_sessions.types import PendingCall, Run, Spawn
from helix_sessions.values.agents import AgentDefinition, Budget, narrower


class DurableJournal:
    """One run of an owned session."""

    names_models = True
    longest_wait = math.inf

    def __init__(
        self,
        io: IO,
        driver: Driver,
        owned: OwnedSession,
        policy: ContextPolicy,
        agent: Any,
        *,
        run: Run,
        opened: int | None = None,
        open_calls: OpenCalls | None = None,
        adopted: bool = False,
        before: Spent | None = None,
    ) -> None:
        """`opened`: the turn that has begun already. `adopted`: the run waited for its next attempt.
        `before`: what the activity had used before this run."""
        self._io = io
        self._driver = driver
        self._owned = owned
        self._policy = policy
        self._agent = agent
        self._opened = opened
        self._adopted = adopted
        self._keys: dict[str, int] = {}
        self._stream: MessageStream | None = None
        self._began = time.monotonic()
        self._base = before or Spent()
        self._tree, self._measured = trees.Tree(), 0
        self.run = run
        self.progress = Progress(turns=run.step_count, usage=run.usage)
        self.open_calls = open_calls or OpenCalls()

    @property
    def definition(self) -> AgentDefinition:
        return self._driver.definition

    @property
    def failed_attempts(self) -> int:
        return max(0, int(self._driver.known.row.retry_attempt) - 1)

    @property
    def leaves(self) -> bool:
        return self._owned.leaving

    def span(self) -> telemetry.AgentSpan:
        row = self._driver.known.row
        return telemetry.agent_span(
            self._driver.using,
            row.session_id,
            row.agent_type,
            run_id=self.run.run_id,
            model=self.definition.model,
        )

    def check(self) -> None:
        if self._owned.lost:
            raise Fenced(f"The session {self._driver.session_id!r} is driven elsewhere.")

    def spent(self) -> Spent:
        seconds = time.monotonic() - self._began
        own = budgets.spent(steps=self.progress.turns, usage=self.progress.usage, seconds=seconds)
        return self._base + own

    def reached(self, budget: Budget | None) -> str | None:
        return budgets.reached_in_tree(budget, self.spent(), self._tree)

    def overspent(self, usage: Any = None) -> Standings:
        return spend_checks.reached(spend_checks.with_usage(self._driver.spend, usage))

    async def start(self, number: int) -> TurnContext:
        await self._end_stream()
        if number:
            await self._check_spend()
        if number and self._opened != number:
            await self._policy_prepare()
            start = TurnStart(
                number=number,
                model=self.definition.model,
                attempt=self.failed_attempts + 1,
                begun=self._adopted,
                most_steers=int(conf.MAX_STEERS_PER_TURN),
            )
            await self._io.db(self._driver.open_turn, start)
            self._opened, self._adopted = number, False
        if self._driver.is_asked_to_stop:
            self._owned.stop.set()
        await self._measure(number)
        context = await self._slow(partial(self._policy.context, self._driver))
        turn_id = turn_id_of(self.run.run_id, number)
        self._stream = MessageStream(
            self._driver.using,
            self._driver.session_id,
            run_id=self.run.run_id,
            turn_id=turn_id,
            after_seq=self._driver.known.row.head_seq,
        )
        return TurnContext(
            store=self._driver.store,  # type: ignore[arg-type]
            run=self.run,
            state=self._driver.state,
            context=context,
            stop=self._owned.stop,
            turn_id=turn_id,
            stream=self._stream,
            definition=self.definition,
            budget=self._left(),
        )

    async def say(self, turn: TurnContext, step: Step, calls: Sequence[ToolCall]) -> None:
        if step.number == 0:
            self._keys = await self._io.db(claims.places_of, self._driver, [call["id"] for call in calls])
            await self._io.db(self._driver.say_again, turn.turn_id, calls, self.open_calls.tries)
            return
        await self._end_stream()
        message = step.messages[-1] if step.messages else None
        seq = await self._io.db(
            self._driver.say, turn.turn_id, message, calls, writes=step.writes, usage=step.usage
        )
        self._keys = dict.fromkeys([call["id"] for call in calls], seq)
        self._stop_if_asked()

    def settle(self, turn: TurnContext, settled: Settled) -> None:
        self._driver.settle(turn.turn_id, settled)
        self._stop_if_asked()

    def log_again(self, turn: TurnContext, call: ToolCall, attempt: int, error: str) -> None:
        data = {"attempt": attempt, "error": error}
        self._driver.settle(turn.turn_id, Settled(call=call, kind="tool_retried", data=data))

    def key_of(self, turn: TurnContext, call: ToolCall) -> str:
        place = str(self._keys.get(call["id"], ""))
        return documents.digest(turn.session_id, place, call["id"])

    async def commit(self, step: Step, following: Next) -> Outcome:
        if following.turn is not None:
            await self._measure(following.turn.number)
        await self._end_stream()
        combined = following.turn if not self._policy.has_sources else None
        following = replace(following, turn=combined, closing=self._owned.closing())
        outcome = await self._io.db(boundaries.commit, self._driver, step, following, **self._used())
        if outcome.opened and combined is not None:
            self._opened = combined.number
        self._stop_if_asked()
        return outcome

    async def end(self, ending: Ending, step: Step | None = None) -> Outcome:
        await self._end_stream()
        turn_id = turn_id_of(self.run.run_id, self._opened) if self._opened else None
        return await self._io.db(
            boundaries.end, self._driver, ending, turn_id=turn_id, step=step, **self._used()
        )

    async def suspend(
        self, step: Step, pending: Sequence[PendingCall], spawns: Sequence[tuple[ToolCall, Spawn]], kind: str
    ) -> Outcome:
        await self._end_stream()
        left = self._left()
        spawned = [
            SpawnedCall(call=call, spawn=spawn, budget=narrower(spawn.budget, left)) for call, spawn in spawns
        ]
        return await self._io.db(
            suspensions.suspend,
            self._driver,
            step,
            kind,
            pending=pending,
            spawns=spawned,
            spent=self.spent().as_document(),
            **self._used(),
        )

    async def refusals(self, spawns: Sequence[tuple[ToolCall, Spawn]]) -> dict[str, str]:
        most = conf.MAX_SUBAGENT_DEPTH
        depth = await self._io.db(suspensions.depth_of, self._driver, most)
        if depth >= most:
            return {call["id"]: f"Sub-agents may be {most} deep." for call, _ in spawns}
        refused: dict[str, str] = {}
        asked: set[str] = set()
        for call, spawn in spawns:
            companion = suspensions.companion_id(self._driver.session_id, spawn)
            if companion is not None and companion in asked:
                refused[call["id"]] = "The sub-agent answers another call of this turn. Call it again."
            elif len(asked) == conf.MAX_CHILDREN_PER_TURN:
                refused[call["id"]] = f"A turn may spawn {conf.MAX_CHILDREN_PER_TURN} sub-agents."
            else:
                asked.add(companion or call["id"])
        return refused

    async def call_failed(self, turn: TurnContext, attempt: int, error: Any, wait: float) -> None:
        await self._end_stream()
        release = wait > retries.IN_PLACE_SECONDS
        await self._io.db(
            self._driver.call_failed,
            turn.turn_id,
            attempt=attempt,
            error=error,
            retry_at=retries.moment(wait),
            release=release,
            metadata=self._waiting() if release else None,
            **self._used(),
        )
        if release:
            raise Waits
        self._stop_if_asked()
        await self._io.wait(self._owned.stop, wait)
        if not self._owned.stop.is_set():
            await self._check_spend()
            self._driver.spend_is_asked = True
            number = self.progress.turns + 1
            await self._io.db(
                self._driver.call_again, turn.turn_id, number, self.definition.model, attempt + 1
            )

    async def makes_smaller(self, error: Exception) -> bool:
        return bool(await self._slow(partial(self._policy.after_overflow, self._driver, error)))

    async def _check_spend(self) -> None:
        """See that something is left of every limit of spending, as of now."""
        if not self._driver.spend_is_asked:
            await self._io.db(self._driver.ask_spend)
        self._driver.spend_is_asked = False
        overspent = self.overspent()
        if overspent and not self._driver.is_asked_to_stop:
            raise OverSpent(overspent)

    async def _measure(self, turn: int) -> None:
        """See what those have used that count for the session's budget, once for each turn."""
        metadata = self.run.metadata
        if turn > self._measured and trees.is_part_of_tree(self._driver, metadata):
            self._tree = await self._io.db(trees.measure, self._driver, metadata)
            self._measured = turn

    def _waiting(self) -> dict[str, Any]:
        """The run's metadata while it waits. Its row has what it used but the seconds, so they count as spent
        before it."""
        before = budgets.spent_of(self.run.metadata.get("spent"))
        seconds = before.seconds + time.monotonic() - self._began
        return {**self.run.metadata, "spent": replace(before, seconds=seconds).as_document()}

    def _left(self) -> Budget | None:
        return budgets.left_in_tree(self.definition.budget, self.spent(), self._tree)

    async def _end_stream(self) -> None:
        """Nothing is added to what was said; what is kept of it goes with the next write."""
        stream, self._stream = self._stream, None
        if stream is not None and stream.was_used:
            self._driver.fragments_are_kept |= await self._io.db(stream.close)

    async def _policy_prepare(self) -> None:
        if self._policy.has_sources:
            await self._io.db(self._policy.prepare, self._driver)

    async def _slow(self, call: Any) -> Any:
        """A call that may ask a model for a summary."""
        if self._policy.compaction is None:
            return await self._io.db(call)
        return await self._io.ask(call, self._owned.stop)

    def _used(self) -> dict[str, Any]:
        return {"usage": self.progress.usage, "turns": self.progress.turns}

    def _stop_if_asked(self) -> None:
        if self._driver.is_asked_to_stop:
            self._owned.stop.set()
