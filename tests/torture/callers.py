"""Processes that make calls at random, and write down what they were told when."""

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from helix_sessions.exceptions import (
    Fenced,
    InboxFull,
    InputConflict,
    InputNotFound,
    LeaseHeld,
    RunEnded,
    RunInProgress,
    StaleState,
    StillWaiting,
)
from helix_sessions.store import SessionStore
from helix_sessions.types import CasOk, CheckpointMeta, Lease, SessionState
from tests.torture.linearizability import Operation
from tests.torture.sequential import CALLS

Made = tuple[dict[str, Any], Callable[[], Any]]
"""The arguments of a call, and how it is made."""

_PLAIN_REFUSALS = (Fenced, InboxFull, InputConflict, InputNotFound, RunEnded, RunInProgress)
"""Those that say no more than their name."""


class Caller:
    """One process among others. It knows what it read last, and goes by that."""

    def __init__(self, store: SessionStore, session: str, lane: int, choice: random.Random) -> None:
        self.store, self.session, self.lane, self.choice = store, session, lane, choice
        self.state: SessionState | None = None
        self.number = lane * 1000
        self.run: str | None = None
        self.last_commit: dict[str, Any] | None = None
        self.lease: Lease | None = None

    @property
    def writer(self) -> SessionStore:
        """The store for what only a driver writes, if this is one."""
        return self.store if self.lease is None else self.store.fenced(self.lease)

    @property
    def held(self) -> dict[str, Any]:
        return {} if self.lease is None else {"lease": (self.lease.owner, self.lease.fence)}

    def make(self, call: str) -> Operation:
        """Make one call and write down what happened when."""
        if call == "save_state_and_promote_staging" and self.state is None:
            call = "load_state"
        if call == "update_run_status" and self.run is None:
            call = "create_run"
        self.number += 1
        given, work = getattr(self, f"_{call}")()
        start = time.monotonic_ns()
        try:
            result = work()
        except StaleState as error:
            result = ("StaleState", error.current_version, error.current_status)
        except StillWaiting as error:
            result = ("StillWaiting", len(error.tool_call_ids))
        except LeaseHeld as error:
            result = ("LeaseHeld", error.owner, error.expires_at)
        except _PLAIN_REFUSALS as error:
            result = type(error).__name__
        end = time.monotonic_ns()
        if call == "create_run" and result != "RunInProgress":
            self.run = given["run_id"]
        return Operation(self.lane, start, end, call, given, result)

    def _load_state(self) -> Made:
        def load() -> Any:
            self.state = state = self.store.load_state(self.session)
            done = tuple(state.custom_state["done"])
            seen = (state.version, state.head_seq, state.status, state.message_count)
            return *seen, done, state.resume_count

        return {}, load

    def _compare_and_set_status(self) -> Made:
        known = None if self.state is None else self.choice.choice([None, self.state.version])
        expected = self.choice.sample(["active", "paused", "interrupted"], 2)
        new = self.choice.choice(["active", "paused"])

        def swap() -> Any:
            outcome = self.store.compare_and_set_status(self.session, expected, new, expected_version=known)
            if isinstance(outcome, CasOk):
                return "ok", outcome.new_version
            return "mismatch", outcome.current_status, outcome.current_version

        return {"expected": expected, "new": new, "version": known}, swap

    def _save_state_and_promote_staging(self) -> Made:
        repeats = self.last_commit is not None and self.choice.random() < 0.3
        if not repeats:
            assert self.state is not None
            done = [*self.state.custom_state["done"], self.number]
            self.last_commit = {
                "n": self.number,
                "checkpoint_id": f"c{self.number}",
                "version": self.state.version,
                "state": replace(self.state, custom_state={"done": done}),
            }
        commit = dict(self.last_commit or {})
        state, writer = commit.pop("state"), self.writer

        def save() -> Any:
            result = writer.save_state_and_promote_staging(
                self.session,
                state,
                [{"role": "assistant", "content": commit["n"]}],
                CheckpointMeta(checkpoint_id=commit["checkpoint_id"]),
                expected_version=commit["version"],
            )
            return "replayed" if result.replayed else "ok", result.version, result.message_count

        return commit | self.held, save

    def _append_messages(self) -> Made:
        count = self.choice.randint(1, 3)
        messages = [{"role": "user", "content": self.number}] * count
        writer = self.writer

        def append() -> Any:
            result = writer.append_messages(self.session, messages)
            return result.first_position, result.message_count, result.version

        return {"count": count, **self.held}, append

    def _merge_custom_state(self) -> Made:
        number, writer = self.number, self.writer
        writes = [{"op": "append", "path": ["done"], "values": [number]}]

        def merge() -> Any:
            state = writer.merge_custom_state(self.session, writes)
            return state.version, tuple(state.custom_state["done"])

        return {"n": number, **self.held}, merge

    def _set_interrupt_flag(self) -> Made:
        reason = str(self.number)
        return {"reason": reason}, lambda: self.store.set_interrupt_flag(self.session, reason)

    def _check_interrupt_flag(self) -> Made:
        def check() -> Any:
            request = self.store.check_interrupt_flag(self.session)
            return None if request is None else request.reason

        return {}, check

    def _create_run(self) -> Made:
        run_id = f"r{self.number}"
        return {"run_id": run_id}, lambda: ("ok", self.store.create_run(self.session, run_id=run_id).turn)

    def _update_run_status(self) -> Made:
        run_id, self.run = self.run, None

        def end() -> Any:
            self.store.update_run_status(self.session, str(run_id), "completed")
            return "ok"

        return {"run_id": run_id}, end

    def _submit_tool_result(self) -> Made:
        call, number = self.choice.choice(CALLS), self.number

        def submit() -> Any:
            answer = self.store.submit_tool_result(self.session, call, result=number)
            return answer.outcome, answer.remaining

        return {"call": call}, submit

    def _resume(self) -> Made:
        run_id = f"r{self.number}"
        version = None if self.state is None else self.choice.choice([None, self.state.version])

        def resume() -> Any:
            resumption = self.store.resume(self.session, run_id=run_id, expected_version=version)
            return "ok", resumption.state.version, resumption.run.turn

        return {"run_id": run_id, "version": version}, resume
