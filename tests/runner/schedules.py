"""Random schedules: workers that are killed, people who decide and answer, and at last one worker alone.

A schedule is made of its seed. Two workers and the process that meddles run side by side; which of them dies,
and when, is chance. Whatever happened, a worker that is left alone must bring every session to an end or to a
wait for a person. No tool may have been executed twice. Where no run was asked for, the agent has answered
prompts and tools only.
"""

import gc
import itertools
import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import DatabaseError, connection, connections
from django.test import override_settings
from django.utils import timezone

from helix_sessions.exceptions import HelixSessionsError, TransientError
from helix_sessions.models import Session
from helix_sessions.runtime import SessionRunner, Spawn, ToolResult, TurnContext, TurnOutcome, retries
from helix_sessions.store import SessionStore
from tests.invariants import assert_healthy, assert_invariants
from tests.runner.rest import Progress, assert_answers_something, assert_at_rest, assert_executed_once

TTL = 0.25
IN_PLACE_SECONDS = 0.02
"""Shorter than it is, so that longer waits for the next attempt are waits of the session."""
SETTINGS = {"MAX_INTERRUPTED_ATTEMPTS": 50}
"""Workers die so often here that a crash loop would be no surprise; it has a test of its own."""

_SHIFT_SECONDS = 0.35
_SHIFT_WORK = 0.03
"""Seconds of the processor that a worker gets at least: on a busy machine a shift takes longer."""
_LONGEST_SHIFT = 5.0
_MOST_STATEMENTS = 60
"""A worker that is to die at a statement has so many at most."""


class Clerk:
    """Does what the prompt names: tools, a sub-agent or a companion, an approval, a client's tool. It knows
    nothing but the transcript."""

    approval_tools = ("refund",)
    client_tools = ("locate",)

    def __init__(self, notes: Path, seconds: float = 0, trouble: float = 0) -> None:
        """`seconds`: how long a tool takes. `trouble`: how often the model is busy, as a share."""
        self._notes = notes
        self._seconds = seconds
        self._trouble = trouble
        self.tools = {name: self._tool(name) for name in ("pay", "book", "refund")}
        self.tools["delegate"] = lambda arguments, turn: Spawn("clerk", "pay")
        self.tools["consult"] = lambda arguments, turn: Spawn("clerk", "pay", mode="persistent", name="aide")

    def _tool(self, name: str) -> Callable[..., Any]:
        def work(arguments: Any, turn: TurnContext) -> ToolResult:
            what = f"{turn.session_id} {turn.idempotency_key} {name}"
            with self._notes.open("a") as file:
                file.write(f"{what}\n")
            time.sleep(self._seconds)
            return ToolResult(what, [{"op": "append", "path": ["done"], "values": [what]}])

        return work

    def run_turn(self, turn: TurnContext) -> TurnOutcome:
        if random.random() < self._trouble:
            raise TransientError("busy", retry_after=random.choice((IN_PLACE_SECONDS / 2, 0.1)))
        last = turn.context.messages[-1]
        if last["role"] != "user":
            return TurnOutcome("done", output="done", usage={"input_tokens": 1, "output_tokens": 1})
        names = str(last["content"]).split(" and ")
        listed = [
            {"id": f"{number}", "name": name, "arguments": {}}
            for number, name in enumerate(names)
            if name in (*self.tools, *self.client_tools)
        ]
        if not listed:
            return TurnOutcome("nothing to do")
        return TurnOutcome({"role": "assistant", "content": "", "tool_calls": listed})


STATUSES = ("failed", "paused", "interrupted", "completed", "active")
PROMPTS = (
    "pay",
    "consult",
    "locate and pay",
    "pay and book",
    "delegate",
    "delegate and delegate and pay",
    "refund",
    "refund and delegate",
    "hi",
)


class Schedule:
    """Schedules of sessions of their own, side by side: the workers and their deaths are of all of them."""

    def __init__(self, seed: int, directory: Path, sessions: int = 1) -> None:
        self.seed = seed
        self._chance = random.Random(seed)
        self._notes = directory / f"notes {seed}"
        self._notes.touch()
        self._sessions = [f"x{seed}-{number}" for number in range(sessions)]
        self._store = SessionStore()
        self._kills = self._calls = 0
        self._by_hand: dict[str, set[str]] = {}
        """The statuses that a person gave to sessions."""
        self._runs_by_name = self._chance.random() < 0.4
        """Whether workers also run and wake sessions that are named, as tasks do."""
        self._sent_on: set[str] = set()
        """Sessions that a person had go on, with nothing new for the agent to answer."""

    def run(self) -> dict[str, int]:
        """Run it; how often what happened."""
        with override_settings(HELIX_SESSIONS=SETTINGS):
            for key in self._sessions:
                self._store.create_session(key, agent_type="clerk")
                for _ in range(self._chance.randint(1, 3)):
                    self._admit(key)
            for _ in range(self._chance.randint(1, 3)):
                self._shift()
            self._finish()
        return {"kills": self._kills, "calls": self._calls}

    def _shift(self) -> None:
        """Two workers, some of which die, and somebody who meddles."""
        connections.close_all()
        workers = [self._fork(number) for number in range(2)]
        meddling = [key for key in self._sessions for _ in range(self._chance.randint(0, 4))]
        self._chance.shuffle(meddling)
        for done, key in enumerate(meddling, 1):
            time.sleep(self._chance.uniform(0, 0.06 / len(self._sessions) ** 0.5))
            self._meddle(key)
            if done < len(meddling) and self._chance.random() < 0.4:
                connections.close_all()
                self._kill(workers.pop(self._chance.randrange(2)))
                workers.append(self._fork(done + 1))
        connections.close_all()
        for worker in workers:
            if self._chance.random() < 0.6:
                time.sleep(self._chance.uniform(0, 0.1))
                self._kill(worker)
            else:
                self._await(worker)

    def _kill(self, worker: int) -> None:
        os.kill(worker, signal.SIGKILL)
        self._await(worker)

    def _await(self, worker: int) -> None:
        _, status = os.waitpid(worker, 0)
        self._kills += os.WIFSIGNALED(status)

    def _fork(self, number: int) -> int:
        """Start a worker. Every other one dies at a statement, the others when they are killed."""
        last = self._chance.randint(1, _MOST_STATEMENTS) if self._chance.random() < 0.5 else None
        child = os.fork()
        if child:
            return child
        try:
            gc.disable()  # it would touch, and so copy, all that is shared with the process before
            random.seed(f"{self.seed} {number}")
            retries.IN_PLACE_SECONDS = IN_PLACE_SECONDS
            if last is not None:
                _die_at(last)
            self._work(f"{self.seed} {number} {os.getpid()}")
        finally:
            os._exit(0)

    def _work(self, owner: str) -> None:
        runner = SessionRunner(Clerk(self._notes, trouble=0.1), lease_ttl=TTL, owner=owner)
        begun, worked = time.monotonic(), time.process_time()
        while (passed := time.monotonic() - begun) < _LONGEST_SHIFT:
            if passed > _SHIFT_SECONDS and time.process_time() - worked > _SHIFT_WORK:
                break
            swept = 0
            with suppress(HelixSessionsError, DatabaseError):
                if self._runs_by_name and random.random() < 0.3:
                    random.choice((runner.run, runner.wake))(random.choice(self._sessions))
                swept = runner.sweep()
            time.sleep(0 if swept else 0.02)

    def _admit(self, key: str, *, resume: bool = True) -> None:
        prompt = self._chance.choice(PROMPTS)
        delivery = self._chance.choice(("steer", "queue"))
        self._store.admit_input(key, prompt, delivery=delivery, resume=resume)

    def _meddle(self, key: str) -> None:
        """One call of somebody else; a refusal is no surprise."""
        store = self._store
        quiet: list[Callable[[], object]] = [
            lambda: self._admit(key),
            lambda: self._answer(key),
            lambda: self._answer(key),
            self._meddle_with_a_child,
            lambda: self._admit(key, resume=False),
            lambda: store.set_interrupt_flag(key, "enough"),
        ]
        sending_on: list[Callable[[], object]] = [
            lambda: self._decide(key),
            lambda: self._decide(key),
            lambda: store.request_run(key),
            lambda: store.request_run(key, at=timezone.now() + timedelta(seconds=0.05)),
            lambda: store.retry_run(key),
            lambda: store.move_session(key, "elsewhere"),
            lambda: store.wake(key),
            lambda: store.rewind(key),
        ]
        call = self._chance.choice(quiet + sending_on)
        if call in sending_on:
            self._sent_on.add(key)
        self._calls += 1
        with suppress(HelixSessionsError):
            call()

    def _decide(self, key: str) -> None:
        status = self._chance.choice(STATUSES)
        self._by_hand.setdefault(key, set()).add(status)
        self._store.update_status(key, status)

    def _meddle_with_a_child(self) -> None:
        children = [key for key in self._tree() if key not in self._sessions]
        if not children:
            return
        child, store = self._chance.choice(children), self._store
        self._chance.choice(
            [
                lambda: store.settle_child(child, "failed", error="stopped"),
                lambda: self._decide(child),
                lambda: store.set_interrupt_flag(child, "enough"),
                lambda: store.retry_run(child),
                lambda: store.wake(child),
            ]
        )()

    def _answer(self, key: str) -> bool:
        """Decide what waits for a decision; whether there was anything."""
        pending = self._store.load_state(key).pending_client_tool_calls or {}
        waiting = [call_id for call_id, entry in pending.items() if not entry.get("submitted_at")]
        for call_id in waiting:
            if pending[call_id]["kind"] == "approval":
                self._store.submit_tool_result(key, call_id, approved=self._chance.random() < 0.8)
            else:
                self._store.submit_tool_result(key, call_id, result="here")
        return bool(waiting)

    def _finish(self) -> None:
        """One worker is left alone, and a person answers; then a person retries what was stopped."""
        for ended in (False, True):
            self._drive_to_rest()
            tree = self._tree()
            for key in tree:
                whole = ended and "completed" not in self._by_hand.get(key, ())
                assert_at_rest(key, ends=ended and key in self._sessions, whole=whole)
            assert_executed_once(self._notes.read_text().splitlines(), asks=Clerk.approval_tools)
            if not ended:
                for key in self._sessions if not self._runs_by_name else ():
                    if key not in self._sent_on:
                        assert_answers_something(key)
                for key in tree:
                    if self._store.load_state(key).status != "completed":
                        self._store.retry_run(key)
        for key in self._chance.sample(tree, -(-len(tree) // 3)):  # they are long, and the doctor sees all
            assert_invariants(key, examined=True)
        assert_healthy(*tree)

    def _drive_to_rest(self) -> None:
        runner = SessionRunner(Clerk(self._notes), lease_ttl=5)
        progress = Progress()
        quiet = 0
        while quiet < 2:
            swept = runner.sweep()
            if swept or progress.somebody_is_to_run() or self._answer_all():
                quiet = 0
                time.sleep(0 if swept else 0.02)
            else:
                quiet += 1

    def _answer_all(self) -> bool:
        asking = Session.objects.filter(session_id__in=self._sessions, awaiting_client=True)
        return sum(self._answer(key) for key in asking.values_list("session_id", flat=True)) > 0

    def _tree(self) -> list[str]:
        return list(Session.objects.order_by("session_id").values_list("session_id", flat=True))

    def executed(self) -> int:
        """How many tools were."""
        return len(self._notes.read_text().splitlines())

    def clear(self) -> None:
        """Make room for the next schedule."""
        connections.close_all()
        for key in self._sessions:
            self._store.delete_session(key)
        for key in self._tree():
            self._store.delete_session(key)


def _die_at(last: int) -> None:
    """Let this process be killed when it is about to execute its last statement, or to commit it."""
    count = itertools.count(1)
    wrapper: Any = connection
    commit = wrapper._commit

    def live_or_die() -> None:
        if next(count) >= last:
            os.kill(os.getpid(), signal.SIGKILL)

    def execute(execute: Any, *arguments: Any) -> Any:
        live_or_die()
        return execute(*arguments)

    def commit_or_die() -> Any:
        live_or_die()
        return commit()

    wrapper.execute_wrappers.append(execute)
    wrapper._commit = commit_or_die


def run_schedules(first: int, count: int, directory: str, sessions: int = 1) -> dict[str, int]:
    """Schedules with these seeds, one after the other; what happened in all of them."""
    told: dict[str, int] = {}
    for seed in range(first, first + count):
        schedule = Schedule(seed, Path(directory), sessions)
        try:
            found = schedule.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {traceback.format_exc()}") from error
        finally:
            schedule.clear()
        for name, number in found.items():
            told[name] = told.get(name, 0) + number
    return told
