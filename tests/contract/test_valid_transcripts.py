"""Whatever happens to a tree of sessions, the transcript a model is given is valid."""

import itertools
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from helix_sessions.exceptions import (
    CheckpointNotFound,
    NotResumable,
    RunInProgress,
    StillWaiting,
    SubmissionMismatch,
    UnknownToolCall,
)
from helix_sessions.store import SessionStore
from helix_sessions.transcripts import open_tool_calls
from helix_sessions.types import ChildWait, PendingCall, Run, SubSessionRef
from tests.contract.suspended import calling, result, wait_for
from tests.invariants import assert_invariants, assert_valid_transcript
from tests.lengths import at_length

NAMES = ("root", "middle", "leaf")
_examples = itertools.count()
sessions = st.sampled_from(range(len(NAMES)))

HAPPENINGS = [
    *["suspend"] * 4,
    *["answer_everything"] * 2,
    *["resume"] * 5,
    *["step"] * 3,
    *["submit"] * 3,
    *["begin", "rewind", "rewind"] * 2,
    *["complete", "settle", "expire", "branch", "save_memory", "wake", "wake"],
]
"""What may happen to a session, as often as it is to."""
KINDS = ("client_tool", "approval", "server", "expired", "child")
ANSWERS: dict[str, dict[str, Any]] = {
    "result": {"result": {"x": 1}},
    "error": {"error": "broken"},
    "yes": {"approved": True},
    "no": {"approved": False, "reason": "no"},
}


class TreeOfSessions(RuleBasedStateMachine):
    """Three sessions, each the parent of the next, driven by agents that crash, and by people."""

    def __init__(self) -> None:
        super().__init__()
        self.store = SessionStore()
        self.prefix = next(_examples)
        self.calls = 0
        self.known: list[tuple[str, str]] = []
        self.branches: list[str] = []

    def key(self, session: int) -> str:
        return f"{self.prefix} {NAMES[session]}"

    def new_calls(self, count: int) -> list[str]:
        """Ids of this step; every other step numbers them anew, as some providers do."""
        self.calls += 1
        start = self.calls * 10 if self.calls % 2 else 0
        return [f"call_{start + n}" for n in range(count)]

    def running(self, session: int, chance: Random) -> Run | None:
        """The run of a session, begun or resumed if need be; none while a call has no result."""
        key = self.key(session)
        if self.store.get_current_run(key) is None:
            try:
                self.store.begin_turn(key, message="begin")
            except StillWaiting:
                self.answer_everything(session, chance)
                self.resume(session, chance)
        return None if self.is_open(key) else self.store.get_current_run(key)

    @initialize()
    def plant(self) -> None:
        parent = None
        for number in range(len(NAMES)):
            key = self.key(number)
            self.store.create_session(key, agent_type="agent", parent_session_id=parent)
            if parent is not None:
                ref = SubSessionRef(sub_session_id=key, agent_type="agent")
                self.store.add_sub_session_refs(parent, [ref])
            parent = key

    @rule(what=st.sampled_from(HAPPENINGS), session=sessions, chance=st.randoms(use_true_random=False))
    def something_happens(self, what: str, session: int, chance: Random) -> None:
        getattr(self, what)(session, chance)

    def begin(self, session: int, chance: Random) -> None:
        key = self.key(session)
        try:
            turn = self.store.begin_turn(key, message=chance.choice([None, "hello"]))
        except (RunInProgress, StillWaiting):
            return
        assert turn.state.step_count == 0
        assert_valid_transcript(key)

    def step(self, session: int, chance: Random) -> None:
        """A step of a running agent, with all results, or with some when it dies on the way."""
        key = self.key(session)
        run = self.running(session, chance)
        if run is None:
            return
        ids = self.new_calls(chance.randint(0, 3))
        crash = chance.random() < 0.4
        done = ids[: chance.randint(0, 3)] if crash else ids
        state = replace(self.store.load_state(key), step_count=run.turn)
        said = [calling(*ids), *(result(i) for i in done)]
        self.store.save_state_and_promote_staging(key, state, said)
        if crash and chance.random() < 0.5:  # found by nobody yet
            return
        if crash:
            self.store.update_run_status(key, run.run_id, "interrupted")
            self.store.update_status(key, "interrupted")

    def complete(self, session: int, chance: Random) -> None:
        """The agent is done, perhaps by a call of `__finish__` that nobody answers."""
        key = self.key(session)
        run = self.running(session, chance)
        if run is None:
            return
        finish = chance.random() < 0.5
        said = [calling(*self.new_calls(1))] if finish else [{"role": "assistant", "content": "bye"}]
        state = replace(self.store.load_state(key), status="completed", output=1)
        self.store.save_state_and_promote_staging(key, state, said)
        self.store.update_run_status(key, run.run_id, "completed")

    def suspend(self, session: int, chance: Random) -> None:
        key = self.key(session)
        run = self.running(session, chance)
        if run is None:
            return
        kinds = chance.choices(KINDS, k=chance.randint(1, 4))
        ids = self.new_calls(len(kinds))
        said = [calling(*ids)] if ids else []
        pending: list[PendingCall] = []
        waits: list[ChildWait] = []
        for call_id, kind in zip(ids, kinds, strict=True):
            if kind == "server":
                said.append(result(call_id))
            elif kind == "child" and session + 1 < len(NAMES) and not waits:
                waits.append(wait_for(call_id, self.key(session + 1)))
            else:
                deadline = timezone.now() - timedelta(seconds=1) if kind == "expired" else None
                kind = "approval" if kind == "approval" else "client_tool"
                call = PendingCall(
                    tool_call_id=call_id,
                    tool_name=f"tool_{call_id}",
                    arguments={},
                    kind=kind,
                    deadline=deadline,
                )
                pending.append(call)
                self.known.append((key, call_id))
        self.store.suspend(
            key,
            "step_partial",
            state=self.store.load_state(key),
            run_id=run.run_id,
            append_messages=said,
            pending_calls=pending,
            awaiting_children=waits,
        )

    def submit(self, session: int, chance: Random) -> None:
        """Anybody answers anything, also what was answered long ago, also in the wrong way."""
        if not self.known:
            return
        owner, call_id = chance.choice(self.known[-6:])
        to = chance.choice([owner, self.key(0)])
        try:
            outcome = self.store.submit_tool_result(to, call_id, **chance.choice(list(ANSWERS.values())))
        except (SubmissionMismatch, UnknownToolCall):
            return
        assert outcome.outcome in ("accepted", "already_completed", "late")

    def answer_everything(self, session: int, chance: Random) -> None:
        """A person sits down and answers all that a session waits for, and its children end."""
        key = self.key(session)
        state = self.store.load_state(key)
        for call_id, entry in (state.pending_client_tool_calls or {}).items():
            is_approval = entry["kind"] == "approval"
            answer = ANSWERS[chance.choice(["yes", "no"]) if is_approval else "result"]
            self.store.submit_tool_result(key, call_id, **answer)
        for wait in (state.suspended_awaiting_children or {}).values():
            self.store.settle_child(wait["sub_session_id"], "completed", output="o")

    def resume(self, session: int, chance: Random) -> None:
        """Who resumes executes what was approved, or dies before it did."""
        key = self.key(session)
        try:
            resumed = self.store.resume(key, message=chance.choice([None, None, "go on"]))
        except (RunInProgress, StillWaiting, NotResumable):
            return
        approved = [entry["tool_call_id"] for entry in resumed.approved]
        assert_valid_transcript(key, waiting=approved)
        if chance.random() < 0.7:
            self.store.append_messages(key, [result(call_id, "executed") for call_id in approved])
        elif approved:
            self.store.update_run_status(key, resumed.run.run_id, "failed")
            self.store.update_status(key, "paused")

    def wake(self, session: int, chance: Random) -> None:
        """Somebody believes that the worker died, rightly or not; what waits goes on waiting."""
        key = self.key(session)
        before = self.store.load_state(key)
        self.store.wake(key)
        state = self.store.load_state(key)
        assert self.store.get_current_run(key) is None
        assert state.pending_client_tool_calls == before.pending_client_tool_calls
        waiting = {**(state.pending_client_tool_calls or {}), **(state.suspended_awaiting_children or {})}
        assert_valid_transcript(key, waiting=[call_id for call_id in self.is_open(key) if call_id in waiting])

    def settle(self, session: int, chance: Random) -> None:
        key = self.key(max(1, session))
        status = chance.choice(["completed", "failed"])
        if self.store.get_current_run(key) is None:
            self.store.settle_child(key, status, output="o", error="e" if status == "failed" else None)

    def expire(self, session: int, chance: Random) -> None:
        self.store.settle_expired_calls()

    def rewind(self, session: int, chance: Random) -> None:
        key, back = self.key(session), chance.randint(0, 4)
        checkpoints = self.store.list_checkpoints(key).items
        chosen = checkpoints[back].checkpoint_id if back < len(checkpoints) else None
        try:
            state = self.store.rewind(key, checkpoint_id=chosen)
        except CheckpointNotFound:
            assert not checkpoints
        else:
            then = self.store.get_checkpoint(key, state.checkpoint_id or "")
            assert state.message_count == then.message_count
            assert state.custom_state == then.state.custom_state

    def branch(self, session: int, chance: Random) -> None:
        key, back = self.key(session), chance.randint(0, 4)
        checkpoints = self.store.list_checkpoints(key).items
        chosen = checkpoints[back].checkpoint_id if back < len(checkpoints) else None
        branch = f"{key} branch {len(self.branches)}"
        self.store.begin_turn(branch, message="what if", branch=(key, chosen))
        assert_valid_transcript(branch)
        self.branches.append(branch)

    def save_memory(self, session: int, chance: Random) -> None:
        self.store.merge_custom_state(
            self.key(session), [{"op": "append", "path": ["steps"], "values": [self.calls]}]
        )

    @invariant()
    def transcripts_are_valid(self) -> None:
        """At any moment: results follow their calls at once, and each call has at most one."""
        for number in range(len(NAMES)):
            key = self.key(number)
            if self.store.session_exists(key):
                assert_valid_transcript(key, waiting=self.is_open(key))

    def teardown(self) -> None:
        for key in [*map(self.key, range(len(NAMES))), *self.branches]:
            if self.store.session_exists(key):
                assert_invariants(key)

    def is_open(self, key: str) -> list[str]:
        return [call["id"] for call in open_tool_calls(self.store.get_messages(key).messages)]


@pytest.mark.timeout(600)
@pytest.mark.django_db
def test_a_tree_of_sessions():
    few = settings(max_examples=10, stateful_step_count=30, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(TreeOfSessions, settings=few)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.django_db
def test_a_tree_of_sessions_for_long():
    many = settings(
        max_examples=at_length(50), stateful_step_count=60, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(TreeOfSessions, settings=many)
