"""Random schedules: workers that are killed, people who decide and answer, and at last one worker alone.

A schedule is made of its seed. Two workers and the process that meddles run side by side; which of them dies,
and when, is chance. Whatever happened, a worker that is left alone must bring every session to an end or to a
wait for a person, and no tool may have been executed twice.
"""

import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.db import DatabaseError, connections
from django.test import override_settings

from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.runtime import SessionRunner, Spawn, ToolResult, TurnContext, TurnOutcome
from helix_sessions.store import SessionStore
from tests.invariants import assert_invariants, assert_valid_transcript

TTL = 0.25
SETTINGS = {"MAX_INTERRUPTED_ATTEMPTS": 50}
"""Workers die so often here that a crash loop would be no surprise; it has a test of its own."""

_SHIFT_SECONDS = 0.35
_PATIENCE_SECONDS = 60.0


class Clerk:
    """Does what the prompt names: tools, a sub-agent, an approval. It knows nothing but the transcript."""

    approval_tools = ("refund",)

    def __init__(self, notes: Path, seconds: float = 0) -> None:
        """`seconds`: how long a tool takes."""
        self._notes = notes
        self._seconds = seconds
        self.tools = {name: self._tool(name) for name in ("pay", "book", "refund")}
        self.tools["delegate"] = lambda arguments, turn: Spawn("clerk", "pay")

    def _tool(self, name: str) -> Callable[..., Any]:
        def work(arguments: Any, turn: TurnContext) -> ToolResult:
            what = f"{turn.session_id} {turn.idempotency_key} {name}"
            with self._notes.open("a") as file:
                file.write(f"{what}\n")
            time.sleep(self._seconds)
            return ToolResult(what, [{"op": "append", "path": ["done"], "values": [what]}])

        return work

    def run_turn(self, turn: TurnContext) -> TurnOutcome:
        last = turn.context.messages[-1]
        if last["role"] != "user":
            return TurnOutcome("done", output="done", usage={"input_tokens": 1, "output_tokens": 1})
        names = str(last["content"]).split(" and ")
        listed = [
            {"id": f"{number}", "name": name, "arguments": {}}
            for number, name in enumerate(names)
            if name in self.tools
        ]
        if not listed:
            return TurnOutcome("nothing to do")
        return TurnOutcome({"role": "assistant", "content": "", "tool_calls": listed})


PROMPTS = (
    "pay",
    "pay and book",
    "delegate",
    "delegate and delegate and pay",
    "refund",
    "refund and delegate",
    "hi",
)


class Schedule:
    """One schedule, on sessions of its own."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.seed = seed
        self._chance = random.Random(seed)
        self._notes = directory / f"notes {seed}"
        self._notes.touch()
        self._session = f"x{seed}"
        self._store = SessionStore()

    def run(self) -> dict[str, int]:
        """Run it; how often what happened."""
        told = {"kills": 0, "calls": 0}
        with override_settings(HELIX_SESSIONS=SETTINGS):
            self._store.create_session(self._session, agent_type="clerk")
            for _ in range(self._chance.randint(1, 3)):
                self._admit()
            for _ in range(self._chance.randint(1, 3)):
                told["kills"] += self._shift()
            told["calls"] = self._calls
            self._finish()
        return told

    _calls = 0

    def _shift(self) -> int:
        """Two workers, some of which die, and somebody who meddles."""
        connections.close_all()
        workers = [self._fork(number) for number in range(2)]
        kills = 0
        for _ in range(self._chance.randint(0, 4)):
            time.sleep(self._chance.uniform(0, 0.06))
            self._meddle()
        connections.close_all()
        for worker in workers:
            if self._chance.random() < 0.6:
                time.sleep(self._chance.uniform(0, 0.1))
                os.kill(worker, signal.SIGKILL)
                kills += 1
            os.waitpid(worker, 0)
        return kills

    def _fork(self, number: int) -> int:
        child = os.fork()
        if child:
            return child
        try:
            runner = SessionRunner(
                Clerk(self._notes), lease_ttl=TTL, owner=f"{self.seed} {number} {os.getpid()}"
            )
            until = time.monotonic() + _SHIFT_SECONDS
            while time.monotonic() < until:
                with suppress(HelixSessionsError, DatabaseError):
                    runner.sweep()
                time.sleep(0.005)
        finally:
            os._exit(0)

    def _admit(self) -> None:
        prompt = self._chance.choice(PROMPTS)
        self._store.admit_input(self._session, prompt, delivery=self._chance.choice(("steer", "queue")))

    def _meddle(self) -> None:
        """One call of somebody else; a refusal is no surprise."""
        key, store = self._session, self._store
        call = self._chance.choice(
            [
                self._admit,
                self._answer,
                self._answer,
                lambda: store.set_interrupt_flag(key, "enough"),
                lambda: store.update_status(key, "failed"),
                lambda: store.update_status(key, "paused"),
                lambda: store.update_status(key, "active"),
                lambda: store.request_run(key),
                lambda: store.retry_run(key),
                lambda: store.move_session(key, "elsewhere"),
                lambda: store.wake(key),
            ]
        )
        self._calls += 1
        with suppress(HelixSessionsError):
            call()

    def _answer(self) -> bool:
        """Decide what waits for a decision; whether there was anything."""
        pending = self._store.load_state(self._session).pending_client_tool_calls or {}
        waiting = [call_id for call_id, entry in pending.items() if not entry.get("submitted_at")]
        for call_id in waiting:
            approved = self._chance.random() < 0.8
            self._store.submit_tool_result(self._session, call_id, approved=approved)
        return bool(waiting)

    def _finish(self) -> None:
        """One worker is left alone, and a person answers; then a person retries what was stopped."""
        for last in (False, True):
            self._drive_to_rest()
            self._check(ended=last)
            if not last:
                for key in self._tree():
                    if self._store.load_state(key).status != "completed":
                        self._store.retry_run(key)

    def _drive_to_rest(self) -> None:
        runner = SessionRunner(Clerk(self._notes), lease_ttl=5)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        quiet = 0
        while quiet < 2:
            assert time.monotonic() < deadline, f"seed {self.seed}: the worker comes to no end"
            swept = runner.sweep()
            later = [self._store.load_state(key).runnable_at for key in self._tree()]
            if swept or any(later) or self._answer():
                quiet = 0
                time.sleep(0 if swept else 0.02)
            else:
                quiet += 1

    def _tree(self) -> list[str]:
        return [summary.session_id for summary in self._store.list_sessions(limit=500).items]

    def _check(self, *, ended: bool) -> None:
        allowed = ("completed", "failed", "interrupted", "paused")
        for key in self._tree():
            state = self._store.load_state(key)
            where = f"seed {self.seed}, {key!r}"
            assert_invariants(key)
            assert self._store.get_current_run(key) is None, where
            assert self._store.get_lease(key) is None, where
            rests = state.status in allowed or (
                state.status == "active" and not self._store.list_inputs(key) and state.runnable_at is None
            )
            assert rests, f"{where} is {state.status}"
            if state.status in ("completed", "failed", "active"):
                waits = (state.pending_client_tool_calls, state.suspended_awaiting_children)
                assert not any(waits), f"{where} is {state.status} and waits: {waits}"
            if ended and key == self._session:
                assert state.status == "completed", f"{where} is {state.status}"
            if ended and state.status == "completed":  # who stops a session leaves its calls to the next run
                assert_valid_transcript(key)
        noted = self._notes.read_text().splitlines()
        assert len(noted) == len(set(noted)), f"seed {self.seed}: a tool was executed twice"

    def executed(self) -> int:
        """How many tools were."""
        return len(self._notes.read_text().splitlines())

    def clear(self) -> None:
        """Make room for the next schedule."""
        for key in self._tree():
            self._store.delete_session(key)


def run_schedules(first: int, count: int, directory: str) -> dict[str, int]:
    """Schedules with these seeds, one after the other; what happened in all of them."""
    told: dict[str, int] = {}
    for seed in range(first, first + count):
        schedule = Schedule(seed, Path(directory))
        try:
            found = schedule.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {traceback.format_exc()}") from error
        for name, number in found.items():
            told[name] = told.get(name, 0) + number
        schedule.clear()
    return told
