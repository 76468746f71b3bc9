"""Any sequence of what people and drivers do to a session, with a runner that may be stopped anywhere."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from helix_sessions.exceptions import HelixSessionsError, TransientError
from helix_sessions.runtime import RetryPolicy, SessionRunner, Spawn, TurnContext, TurnOutcome
from helix_sessions.store import SessionStore
from tests.invariants import assert_invariants, assert_valid_transcript

PROMPTS = ("hi", "pay", "refund", "delegate", "pay and refund", "delegate and pay", "fail")


class Died(BaseException):
    """The process is gone."""


class Clerk:
    """Does what the last prompt names. `faults` are what its next calls of the model come to."""

    approval_tools = ("refund",)

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.done: list[str] = []
        self.tools = {
            "pay": self.work,
            "refund": self.work,
            "delegate": lambda arguments, turn: Spawn("clerk", "pay"),
        }

    def work(self, arguments: Any, turn: TurnContext) -> str:
        self.done.append(str(turn.idempotency_key))
        return "done"

    def run_turn(self, turn: TurnContext) -> TurnOutcome:
        fault = self.faults.pop() if self.faults else ""
        if fault == "transient":
            raise TransientError("busy")
        if fault == "later":
            raise TransientError("busy", retry_after=60)
        if fault == "death":
            raise Died
        last = turn.context.messages[-1] if turn.context.messages else {"role": "assistant"}
        if last["role"] != "user" or last["content"] == "hi":
            return TurnOutcome("ok", output="ok", usage={"input_tokens": 1})
        if last["content"] == "fail":
            return TurnOutcome("no", error="refused")
        names = str(last["content"]).split(" and ")
        listed = [{"id": name, "name": name, "arguments": {}} for name in names]
        return TurnOutcome({"role": "assistant", "content": "", "tool_calls": listed})


class Sessions(RuleBasedStateMachine):
    """One tree of sessions, and one runner at a time."""

    @initialize()
    def begin(self) -> None:
        self.store = SessionStore()
        self.agent = Clerk()
        for summary in self.store.list_sessions(limit=500).items:
            self.store.delete_session(summary.session_id)
        self.store.create_session("s", agent_type="clerk")

    def runner(self) -> SessionRunner:
        return SessionRunner(self.agent, retry=RetryPolicy(initial=0.0001, max_attempts=3))

    @rule(prompt=st.sampled_from(PROMPTS), delivery=st.sampled_from(("steer", "queue")), wakes=st.booleans())
    def admit(self, prompt: str, delivery: str, wakes: bool) -> None:
        self.store.admit_input("s", prompt, delivery=delivery, resume=wakes)

    @rule(faults=st.lists(st.sampled_from(("", "transient", "later", "death")), max_size=3))
    def sweep(self, faults: list[str]) -> None:
        self.agent.faults = faults
        try:
            self.runner().sweep()
        except Died:
            self.let_leases_run_out()

    @rule(approved=st.booleans())
    def answer(self, approved: bool) -> None:
        pending = self.store.load_state("s").pending_client_tool_calls or {}
        for call_id, entry in pending.items():
            if not entry.get("submitted_at"):
                self.store.submit_tool_result("s", call_id, approved=approved)

    @rule(status=st.sampled_from(("failed", "paused", "interrupted", "completed", "active")))
    def decide(self, status: str) -> None:
        self.store.update_status("s", status)

    @rule(name=st.sampled_from(("request_run", "retry_run", "wake", "set_interrupt_flag")))
    def call(self, name: str) -> None:
        getattr(self.store, name)("s")

    @rule()
    def move(self) -> None:
        self.store.move_session("s", "elsewhere")

    @rule()
    @precondition(lambda self: len(self.keys()) > 1)
    def stop_a_child(self) -> None:
        child = next(key for key in self.keys() if key != "s")
        with suppress(HelixSessionsError):
            self.store.settle_child(child, "failed", error="stopped")

    @invariant()
    def rows_are_in_order(self) -> None:
        if hasattr(self, "store"):
            for key in self.keys():
                assert_invariants(key)
            assert len(self.agent.done) == len(set(self.agent.done)), "a tool was executed twice"

    def teardown(self) -> None:
        """A worker alone, with people who answer and retry, brings all of it to an end."""
        if not hasattr(self, "store"):
            return
        self.agent.faults = []
        self.let_leases_run_out()
        for _ in range(30):
            swept = self.runner().sweep()
            self.answer(True)
            states = {key: self.store.load_state(key) for key in self.keys()}
            if all(one.status == "completed" and one.runnable_at is None for one in states.values()):
                break
            for key, state in states.items():
                if state.status != "completed" and state.runnable_at is None and not swept:
                    self.store.retry_run(key)
                elif self.store.get_current_run(key) is not None:
                    self.store.request_run(key)
        state = self.store.load_state("s")
        assert state.status == "completed", state.status
        assert self.store.get_current_run("s") is None
        assert_valid_transcript("s")

    def let_leases_run_out(self) -> None:
        for key in self.keys():
            lease = self.store.get_lease(key)
            if lease is not None:
                self.store.renew_lease(lease, 0)

    def keys(self) -> list[str]:
        return [summary.session_id for summary in self.store.list_sessions(limit=500).items]


@pytest.mark.parametrize("count", [6, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
@pytest.mark.django_db(transaction=True)
def test_any_sequence(count: int) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    run_state_machine_as_test(
        Sessions,
        settings=settings(
            max_examples=count, stateful_step_count=12, deadline=None, suppress_health_check=checks
        ),
    )
