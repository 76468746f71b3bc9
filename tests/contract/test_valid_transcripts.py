"""Whatever happens to a tree of sessions, the transcript a model is given is valid."""

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from helix_sessions.exceptions import (
    CheckpointNotFound,
    HelixSessionsError,
    NotResumable,
    RunInProgress,
    StillWaiting,
)
from helix_sessions.store import SessionStore
from helix_sessions.transcripts import open_tool_calls
from helix_sessions.types import PendingCall, SubSessionRef
from tests.contract.suspended import calling, result, wait_for
from tests.invariants import assert_invariants, assert_valid_transcript

NAMES = ("root", "middle", "leaf")
_examples = itertools.count()
sessions = st.sampled_from(range(len(NAMES)))


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

    @rule(session=sessions, text=st.sampled_from([None, "hello"]))
    def begin(self, session: int, text: str | None) -> None:
        key = self.key(session)
        try:
            turn = self.store.begin_turn(key, message=text)
        except (RunInProgress, StillWaiting):
            return
        assert turn.state.step_count == 0
        assert_valid_transcript(key)

    @rule(session=sessions, count=st.integers(0, 3), answered=st.integers(0, 3), crash=st.booleans())
    def step(self, session: int, count: int, answered: int, crash: bool) -> None:
        """A step of a running agent, with all results, or with some when it dies on the way."""
        key = self.key(session)
        run = self.store.get_current_run(key)
        if run is None or self.is_open(key):
            return
        ids = self.new_calls(count)
        done = ids[:answered] if crash else ids
        state = replace(self.store.load_state(key), step_count=run.turn)
        said = [calling(*ids), *(result(i) for i in done)]
        self.store.save_state_and_promote_staging(key, state, said)
        if crash:
            self.store.update_run_status(key, run.run_id, "interrupted")
            self.store.update_status(key, "interrupted")

    @rule(session=sessions, finish=st.booleans())
    def complete(self, session: int, finish: bool) -> None:
        """The agent is done, perhaps by a call of `__finish__` that nobody answers."""
        key = self.key(session)
        run = self.store.get_current_run(key)
        if run is None or self.is_open(key):
            return
        said = [calling(*self.new_calls(1))] if finish else [{"role": "assistant", "content": "bye"}]
        state = replace(self.store.load_state(key), status="completed", output=1)
        self.store.save_state_and_promote_staging(key, state, said)
        self.store.update_run_status(key, run.run_id, "completed")

    @rule(
        session=sessions,
        kinds=st.lists(
            st.sampled_from(["client_tool", "approval", "server", "expired", "child"]), max_size=4
        ),
        data=st.data(),
    )
    def suspend(self, session: int, kinds: list[str], data: Any) -> None:
        key = self.key(session)
        run = self.store.get_current_run(key)
        if run is None or self.is_open(key):
            return
        ids = self.new_calls(len(kinds))
        said = [calling(*ids)] if ids else []
        pending, waits = [], []
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

    @rule(through_root=st.booleans(), kind=st.sampled_from(["result", "error", "yes", "no"]), data=st.data())
    def submit(self, through_root: bool, kind: str, data: Any) -> None:
        if not self.known:
            return
        owner, call_id = data.draw(st.sampled_from(self.known[-6:]))
        answer: dict[str, Any] = {
            "result": {"result": {"x": 1}},
            "error": {"error": "broken"},
            "yes": {"approved": True},
            "no": {"approved": False, "reason": "no"},
        }[kind]
        try:
            outcome = self.store.submit_tool_result(self.key(0) if through_root else owner, call_id, **answer)
        except HelixSessionsError as error:
            assert error.code in ("submission_mismatch", "unknown_tool_call")
        else:
            assert outcome.outcome in ("accepted", "already_completed", "late")

    @rule(session=sessions, text=st.sampled_from([None, "go on"]), execute=st.booleans())
    def resume(self, session: int, text: str | None, execute: bool) -> None:
        """Who resumes executes what was approved, or dies before it did."""
        key = self.key(session)
        try:
            resumed = self.store.resume(key, message=text)
        except (RunInProgress, StillWaiting, NotResumable):
            return
        approved = [entry["tool_call_id"] for entry in resumed.approved]
        assert_valid_transcript(key, waiting=approved)
        if execute:
            self.store.append_messages(key, [result(call_id, "executed") for call_id in approved])
        elif approved:
            self.store.update_run_status(key, resumed.run.run_id, "failed")
            self.store.update_status(key, "paused")

    @rule(session=st.sampled_from([1, 2]), status=st.sampled_from(["completed", "failed"]))
    def settle(self, session: int, status: str) -> None:
        key = self.key(session)
        if self.store.get_current_run(key) is None:
            self.store.settle_child(key, status, output="o", error="e" if status == "failed" else None)

    @rule()
    def expire(self) -> None:
        self.store.settle_expired_calls()

    @rule(session=sessions, back=st.integers(0, 4))
    def rewind(self, session: int, back: int) -> None:
        key = self.key(session)
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

    @rule(session=sessions, back=st.integers(0, 4))
    def branch(self, session: int, back: int) -> None:
        key = self.key(session)
        checkpoints = self.store.list_checkpoints(key).items
        chosen = checkpoints[back].checkpoint_id if back < len(checkpoints) else None
        branch = f"{key} branch {len(self.branches)}"
        self.store.begin_turn(branch, message="what if", branch=(key, chosen))
        assert_valid_transcript(branch)
        self.branches.append(branch)

    @rule(session=sessions)
    def save_memory(self, session: int) -> None:
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


@pytest.mark.django_db
def test_a_tree_of_sessions():
    few = settings(max_examples=25, stateful_step_count=30, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(TreeOfSessions, settings=few)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.django_db
def test_a_tree_of_sessions_for_long():
    many = settings(max_examples=1000, stateful_step_count=60, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(TreeOfSessions, settings=many)
