"""Processes work on one session at once; what they were told is checked for linearizability."""

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from pickle import dumps, loads
from typing import Any

from helix_sessions.exceptions import RunInProgress, StaleState, StillWaiting
from helix_sessions.store import SessionStore
from helix_sessions.types import CasOk, CheckpointMeta, PendingCall, SessionState
from tests.torture.expected import assert_healthy
from tests.torture.lanes import Figures, fork_context, in_lanes
from tests.torture.linearizability import Operation, longest_order
from tests.torture.sequential import CALLS, Row, step
from tests.torture.stops import Stop

LANES = 5
CALLS_OF_A_LANE = 12


def campaign(seed: int, stop: Stop) -> Figures:
    """Check so many histories; each has a session of its own and `LANES * CALLS_OF_A_LANE` calls."""
    with tempfile.TemporaryDirectory() as directory:
        barrier, over = fork_context.Barrier(LANES), fork_context.Event()
        in_lanes(LANES, _take_part, seed, stop, directory, barrier, over)
        figures: Figures = Counter({"anomalies": 0})
        for place in sorted(Path(directory).glob("0-*")):
            history = [
                operation
                for lane in range(LANES)
                for operation in loads((Path(directory) / f"{lane}{place.name[1:]}").read_bytes())
            ]
            initial, *operations = history
            _check(initial, operations)
            figures["histories"] += 1
            figures["operations checked"] += len(operations)
            figures["that overlapped another"] += _overlapping(operations)
    assert_healthy(SessionStore())
    return figures


def _check(initial: Row, history: list[Operation]) -> None:
    order = longest_order(history, initial, step)
    if len(order) < len(history):
        left = sorted(set(map(repr, history)) - set(map(repr, order)))
        raise AssertionError("Not linearizable.\n" + "\n".join([*map(repr, order), "left:", *left]))


def _overlapping(history: list[Operation]) -> int:
    """How many calls another was made beside: a history without any shows nothing."""
    return sum(
        any(one is not other and one.start < other.end and other.start < one.end for other in history)
        for one in history
    )


def _take_part(lane: int, seed: int, stop: Stop, directory: str, barrier: Any, over: Any) -> Figures:
    store, number = SessionStore(), 0
    while True:
        session = f"race-{number}"
        choice = random.Random(f"{seed} {number} {lane}")
        family = FAMILIES[number % len(FAMILIES)]
        record: list[Any] = []
        if lane == 0:
            if not stop.goes_on(number):
                over.set()
            else:
                record.append(family.prepare(store, session))
        barrier.wait(60)
        if over.is_set():
            return Counter()
        caller = Caller(store, session, lane, choice)
        for _ in range(CALLS_OF_A_LANE):
            record.append(caller.make(choice.choice(family.calls)))
        (Path(directory) / f"{lane}-{number}").write_bytes(dumps(record))
        barrier.wait(60)
        number += 1


class Caller:
    """One process among others. It knows what it read last, and goes by that."""

    def __init__(self, store: SessionStore, session: str, lane: int, choice: random.Random) -> None:
        self.store, self.session, self.lane, self.choice = store, session, lane, choice
        self.state: SessionState | None = None
        self.number = lane * 1000
        self.run: str | None = None
        self.last_commit: dict[str, Any] | None = None

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
        except RunInProgress:
            result = "RunInProgress"
        end = time.monotonic_ns()
        if call == "create_run" and result != "RunInProgress":
            self.run = given["run_id"]
        return Operation(self.lane, start, end, call, given, result)

    Made = tuple[dict[str, Any], Callable[[], Any]]

    def _load_state(self) -> Made:
        def load() -> Any:
            self.state = state = self.store.load_state(self.session)
            done = tuple(state.custom_state["done"])
            return state.version, state.status, state.message_count, done, state.resume_count

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
        state = commit.pop("state")

        def save() -> Any:
            result = self.store.save_state_and_promote_staging(
                self.session,
                state,
                [{"role": "assistant", "content": commit["n"]}],
                CheckpointMeta(checkpoint_id=commit["checkpoint_id"]),
                expected_version=commit["version"],
            )
            return "replayed" if result.replayed else "ok", result.version, result.message_count

        return commit, save

    def _append_messages(self) -> Made:
        count = self.choice.randint(1, 3)
        messages = [{"role": "user", "content": self.number}] * count

        def append() -> Any:
            result = self.store.append_messages(self.session, messages)
            return result.first_position, result.message_count, result.version

        return {"count": count}, append

    def _merge_custom_state(self) -> Made:
        number = self.number
        writes = [{"op": "append", "path": ["done"], "values": [number]}]

        def merge() -> Any:
            state = self.store.merge_custom_state(self.session, writes)
            return state.version, tuple(state.custom_state["done"])

        return {"n": number}, merge

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


class Family:
    """Calls that are made side by side."""

    calls: tuple[str, ...]

    def prepare(self, store: SessionStore, session: str) -> Row:
        """Create the session; what it is at the beginning."""
        raise NotImplementedError


class States(Family):
    calls = (
        "load_state",
        "compare_and_set_status",
        "save_state_and_promote_staging",
        "save_state_and_promote_staging",
        "append_messages",
        "merge_custom_state",
        "set_interrupt_flag",
        "check_interrupt_flag",
        "create_run",
        "update_run_status",
    )

    def prepare(self, store: SessionStore, session: str) -> Row:
        store.create_session(session, agent_type="agent", custom_state={"done": []})
        return Row(version=1)


class Swaps(Family):
    """Fewer calls, and so more that want the same."""

    calls = ("load_state", "compare_and_set_status", "save_state_and_promote_staging")
    prepare = States.prepare


class Submissions(Family):
    calls = (
        *["submit_tool_result"] * 3,
        *["resume"] * 2,
        "load_state",
        "set_interrupt_flag",
        "check_interrupt_flag",
    )

    def prepare(self, store: SessionStore, session: str) -> Row:
        asked = [{"id": call, "name": "ask", "arguments": {}} for call in CALLS]
        turn = store.begin_turn(session, message="hello", agent_type="agent", custom_state={"done": []})
        store.suspend(
            session,
            "client_tool",
            state=turn.state,
            run_id=turn.run.run_id,
            append_messages=[{"role": "assistant", "content": "?", "tool_calls": asked}],
            pending_calls=[PendingCall(tool_call_id=call, tool_name="ask", arguments={}) for call in CALLS],
        )
        state = store.load_state(session)
        return Row(version=state.version, messages=2, turns=1, suspended=True)


FAMILIES: list[Family] = [States(), Swaps(), Submissions()]
