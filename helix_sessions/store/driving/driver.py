"""The owner of a session at work: each step of a run is one write, decided on what the owner knows.

A driver is made by a claim and writes under its lease. It knows what it wrote; a write that finds the row
changed reads again, under the lock, what others did. So each write also tells it of requests to stop and of
new inputs, and `Fenced` tells it that the session is no longer its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from helix_sessions import models
from helix_sessions.content import documents
from helix_sessions.exceptions import Fenced, RunInProgress
from helix_sessions.store.calls import children, stops
from helix_sessions.store.driving import knowledge
from helix_sessions.store.driving.knowledge import Appended, Attempt, Knowledge, PendingInput
from helix_sessions.store.driving.turn_log import Settled, TurnStart, start_turn
from helix_sessions.store.engine import ids, session_rows, spending
from helix_sessions.store.engine.operation import operation
from helix_sessions.store.engine.session_columns import ALL_COLUMNS
from helix_sessions.store.engine.session_rows import SessionRow
from helix_sessions.store.engine.spending import Standings
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.transactions import Transaction, write_tree
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.inbox import inbox
from helix_sessions.store.limits import spend_checks
from helix_sessions.store.runs import interrupts, usages
from helix_sessions.store.runs.interrupts import AskedToStop
from helix_sessions.store.sessions import turns
from helix_sessions.store.state import runnable, staging
from helix_sessions.types import Lease, Run, SessionState
from helix_sessions.values.agents import AgentDefinition, Budget

T = TypeVar("T")

_translated = partial(operation, traced=False)
"""Errors of the database in the store's words, as every operation has them."""


class NothingToDo(Exception):
    """There is no input to begin a run with, and no run was asked for."""


class NeedsFamily(Exception):
    """A write is about more than the session's own row."""


class Family(NamedTuple):
    """The rows around a session that are locked with it."""

    tree: Transaction
    parent: UnitOfWork | None


class Driver:
    """One session under one lease. Its methods are called by one thread at a time."""

    def __init__(self, store: Store, lease: Lease, row: SessionRow, *, owner_before: str | None) -> None:
        self.store = store
        self.using = store.using
        self.session_id = lease.session_id
        self.lease: Lease | None = lease
        self.owner_before = owner_before
        """Who had the lease when it was taken; `None`: it had been given back."""
        self.known = Knowledge(row)
        self.stale_request: datetime | None = row.interrupt_requested_at
        """When a request to stop was made that was there before the claim, and meant for another owner."""
        self.appended = Appended()
        self._attempt = Attempt(0, False)
        self.run: Run | None = None
        self.own_budget: Budget | None = None
        """That of the agent that drives the session."""
        self.above: Any = None
        """The budgets of the sessions above, once they were looked for; see `trees`."""
        self.fragments_are_kept = False
        """What was said so far is kept, and goes with the next write."""
        self.spend: Standings = ()
        """How the limits of spending stood when they were last asked for, with what was committed here."""
        self.spend_is_asked = False
        """They were asked for since the model was."""
        self._spend_is_read = False
        """They were read with the rest, and no caller has asked yet."""
        self.context_rows: list[tuple[Any, ...]] | None = None
        """The model's context as it was then, until it is built of them."""

    @property
    def state(self) -> SessionState:
        return self.known.state

    @property
    def definition(self) -> AgentDefinition:
        return self.known.defined(self.own_budget)

    @property
    def is_asked_to_stop(self) -> bool:
        """As of the last write."""
        return self.known.row.interrupt_requested_at is not None

    @_translated
    def load(self, *, to_run: bool) -> None:
        """Read what belongs to the session; `to_run`, also what its next run begins with."""
        connection = self.store._connection
        if not (to_run and self.store._dialect.reads_any_tables):
            self.known = knowledge.read(connection, self.known.row)
            return
        self.known, self.context_rows, self.spend = knowledge.read_at_claim(connection, self.known.row)
        self._spend_is_read = True

    @_translated
    def ask_spend(self) -> None:
        """See how the limits of spending stand, and send the warnings that are due."""
        row = self.known.row
        if not self._spend_is_read:
            self.spend = spend_checks.standings(self.using, row.owner_id, row.agent_type)
        self._spend_is_read, self.spend_is_asked = False, True
        spend_checks.warn(self.using, self.session_id, self.spend)

    def resumed(self, run: Run, metadata: Mapping[str, Any]) -> None:
        """Another operation has begun a run of the session; note what it goes on with."""
        self.reload()
        self.run = run
        if metadata:
            text = documents.dump({**run.metadata, **metadata})
            self.write(lambda work, known: work.update(models.Run, {"run_id": run.run_id}, metadata=text))
            self.run = replace(run, metadata=documents.load(text))

    @_translated
    def reload(self) -> None:
        """Read everything again: another operation has written."""
        row = session_rows.read_row(self.store._connection, self.session_id, ALL_COLUMNS)
        self.known = knowledge.read(self.store._connection, row)
        self.appended.others_wrote = True

    def begin(
        self,
        *,
        forced: bool,
        turn: TurnStart | None,
        metadata: Mapping[str, Any] | None = None,
        takes_queued: bool = True,
    ) -> Run:
        """Begin a run with the inputs that wait: its steers, or else, with `takes_queued`, one that is
        queued. Without any, and not `forced`, `NothingToDo`. A run without a turn takes none of them."""
        run_id = ids.new_id()
        text = documents.write(dict(metadata or {}))

        def decide(work: UnitOfWork, known: Knowledge) -> Run:
            if work.session.run_id is not None:
                raise RunInProgress(f"Run {work.session.run_id!r} is running.")
            taken = [] if turn is None else _opening(known, turn.most_steers, takes_queued)
            if work.session.interrupt_requested_at not in (None, self.stale_request):
                raise AskedToStop
            if not (taken or forced):
                raise NothingToDo
            interrupts.clear(work)  # one that was there before the claim was meant for another run
            run = turns.go_on(work, None, run_id, text, fresh=True)
            self._promote(work, known, taken)
            if taken and work.session.retry_attempt:  # of the prompt before
                work.change(retry_attempt=0)
            if turn is not None:
                start_turn(work, run_id, turn)
            return run

        self.run = self.write(decide)
        return self.run

    def open_turn(self, turn: TurnStart) -> int:
        """Begin the next turn of the run with the steers that wait; how many those were."""

        def decide(work: UnitOfWork, known: Knowledge) -> int:
            taken = known.steers()[: turn.most_steers]
            self._promote(work, known, taken)
            start_turn(work, self.running.run_id, turn)
            return len(taken)

        return self.write(decide)

    def say(
        self,
        turn_id: str,
        message: Mapping[str, Any] | None,
        calls: Sequence[Mapping[str, Any]],
        *,
        writes: Sequence[Any] = (),
        usage: Any = None,
    ) -> int:
        """Log calls before they are executed, with the message that makes them, whose number is returned.
        The message's own writes are staged for the commit of the step."""

        def decide(work: UnitOfWork, known: Knowledge) -> int:
            if message is not None:
                self.append(work, message, turn_id=turn_id)
            seq: int = work.session.head_seq
            if writes:
                staging.stage(work, turn_id, turn_id, documents.dump(list(writes)))
            for call in calls:
                data = {"tool_call_id": call["id"], "tool_name": call["name"], "arguments": call["arguments"]}
                work.event("tool_called", text=documents.dump(data), turn_id=turn_id)
            usages.add(work, usage)
            return seq

        return self.write(decide)

    def say_again(self, turn_id: str, calls: Sequence[Mapping[str, Any]], tries: Mapping[str, int]) -> None:
        """Log calls of an earlier step before they are executed. Those that were tried before are open."""

        def decide(work: UnitOfWork, known: Knowledge) -> None:
            for call in calls:
                data = {"tool_call_id": call["id"], "tool_name": call["name"]}
                before = tries.get(call["id"], 0)
                if before:
                    work.event("tool_retried", {**data, "attempt": before + 1}, turn_id=turn_id)
                else:
                    text = documents.dump({**data, "arguments": call["arguments"]})
                    work.event("tool_called", text=text, turn_id=turn_id)

        self.write(decide)

    def settle(self, turn_id: str, settled: Settled) -> None:
        """Log how a call ended, with its writes staged: what is logged survives this process."""

        def decide(work: UnitOfWork, known: Knowledge) -> None:
            if settled.writes:
                staging.stage(work, turn_id, settled.call["id"], documents.dump(list(settled.writes)))
            named = {"tool_call_id": settled.call["id"], "tool_name": settled.call["name"]}
            work.event(settled.kind, text=documents.dump({**named, **settled.data}), turn_id=turn_id)

        self.write(decide)

    def call_again(self, turn_id: str, number: int, model: Any, attempt: int) -> None:
        """Log that the model is asked once more."""

        def decide(work: UnitOfWork, known: Knowledge) -> None:
            work.event("model_called", {"turn": number, "model": model, "attempt": attempt}, turn_id=turn_id)

        self.write(decide)

    def call_failed(
        self,
        turn_id: str,
        *,
        attempt: int,
        error: Any,
        retry_at: datetime,
        release: bool,
        metadata: Mapping[str, Any] | None = None,
        usage: Any = None,
        turns: int = 0,
    ) -> None:
        """Log that the model could not be asked. With `release` the session is left alone until
        `retry_at`, its run under way with this `metadata`; any driver goes on with it then."""

        def decide(work: UnitOfWork, known: Knowledge) -> None:
            data = {"attempt": attempt, "error": error, "retry_at": retry_at.isoformat()}
            work.event("model_call_failed", text=documents.dump(data), turn_id=turn_id)
            work.change(retry_attempt=attempt + 1)
            if release:
                columns = {
                    "step_count": turns,
                    "usage": None if usage is None else documents.dump(usage),
                    "metadata": documents.write(dict(metadata or {})),
                }
                work.update(models.Run, {"run_id": self.running.run_id}, **columns)
                give_back(work, at=retry_at)

        self.write(decide)
        if release:
            self.lease = None

    def release(self, *, at: datetime | None = None, leave: bool = False) -> None:
        """Give the session back, as it is. With a time it is looked at again then; with `leave`, not before
        a caller asks for it."""

        def decide(work: UnitOfWork, known: Knowledge) -> None:
            work.versioned = work.is_drivers = False  # it is no sign of the process that began the run
            give_back(work, at=at)
            if leave:
                runnable.leave(work)

        self.write(decide)
        self.lease = None

    @_translated
    def stop(self) -> None:
        """Meet a request to stop that came between two runs: the session is interrupted, and keeps its
        inbox."""
        with write_tree(self.using, self.store._lease) as tree:
            parent, work = children.lock_with_parent(tree, self.session_id, self.store._owner)
            self.store._check_head(work)
            stops.interrupt(tree, parent, work)
            give_back(work)
        self.lease = None

    @property
    def running(self) -> Run:
        if self.run is None:
            raise Fenced(f"No run of {self.session_id!r} is driven here.")
        return self.run

    def append(self, work: UnitOfWork, message: Mapping[str, Any], *, turn_id: str | None = None) -> None:
        """Append a message, and remember it for the context."""
        text = documents.dump(dict(message))
        self._attempt.seq = work.message(str(message["role"]), text, turn_id=turn_id)
        self._attempt.messages.append(documents.load(text))

    @_translated
    def write(self, decide: Callable[[UnitOfWork, Knowledge], T]) -> T:
        """One write, on the row as it is known; under the lock if others have written."""
        before = self.known
        found: list[Knowledge] = []

        def decision(work: UnitOfWork) -> T:
            return decide(work, self._complete(work, before, found))

        work, outcome = self.store._decide(self.session_id, decision)
        self._learn(work, found[-1], before)
        return outcome

    @_translated
    def write_in_tree(self, decide: Callable[[UnitOfWork, Knowledge, Family | None], T]) -> T:
        """One write that the session's parent or children may have to be told of. It is decided on the
        session's row alone first; where that asks for the others, they are locked with it."""
        before = self.known
        if before.row.parent_session_id is None:
            try:
                return self.write(lambda work, known: decide(work, known, None))
            except NeedsFamily:
                pass
        found: list[Knowledge] = []
        with write_tree(self.using, self.store._lease) as tree:
            parent, work = children.lock_with_parent(tree, self.session_id, self.store._owner)
            self.store._check_head(work)
            known = self._complete(work, before, found)
            outcome = decide(work, known, Family(tree, parent))
        self._learn(work, known, before)
        return outcome

    def _complete(self, work: UnitOfWork, before: Knowledge, found: list[Knowledge]) -> Knowledge:
        self._attempt = Attempt(work.session.message_count, before.is_current(work.session))
        if self.fragments_are_kept:
            work.delete(models.FragmentBatch)
        known = knowledge.complete(work, before)
        found.append(known)
        return known

    def _learn(self, work: UnitOfWork, known: Knowledge, before: Knowledge) -> None:
        self.fragments_are_kept = False
        if work.answer is not None:
            self.spend, self.spend_is_asked = spending.standings_of(work), work.asks_spend
        known.row = work.session
        attempt = self._attempt
        whole = work.session.message_count == attempt.message_count + len(attempt.messages)
        self.appended.others_wrote |= not (attempt.is_undisturbed and whole)
        if attempt.messages:
            self.appended.messages.extend(attempt.messages)
            self.appended.seq = attempt.seq
        self.known = known

    def take_appended(self) -> Appended:
        """What was appended since the last call."""
        appended, self.appended = self.appended, Appended()
        return appended

    def _promote(self, work: UnitOfWork, known: Knowledge, taken: Sequence[PendingInput]) -> None:
        for one in taken:
            message = inbox.message_of(one.input_id, documents.load(one.prompt))
            self.append(work, message)
            inbox.promoted(work, one.input_id, work.session.head_seq)
        known.without(taken)


def _opening(known: Knowledge, most_steers: int, takes_queued: bool) -> list[PendingInput]:
    steers = known.steers()[:most_steers]
    return steers or (known.queued()[:1] if takes_queued else [])


def give_back(work: UnitOfWork, *, at: datetime | None = None) -> None:
    """End the lease with this write; its holder is fenced from then on. The session is runnable when it has
    something to do, or `at` a time."""
    work.change(lease_owner=None, lease_token=None, lease_expires_at=None, attempts=0)
    runnable.give_back(work, at)
