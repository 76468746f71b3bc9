"""A session that waits, for a person, a client or sub-agents, is stopped at once: nobody drives it."""

from collections.abc import Callable
from typing import Any

import pytest

from helix_sessions.runtime import AgentDefinition, Budget, SessionRunner, SessionRuntime, TurnOutcome
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from tests.invariants import assert_invariants
from tests.rows import each
from tests.runner.test_activities import said, whole
from tests.runner.test_subagents import Parent, refs, start, work

pytestmark = pytest.mark.django_db(transaction=True)


class Payments:
    """An agent that asks before it pays, and what it paid."""

    def __init__(self, *script: Any) -> None:
        self.paid: list[Any] = []
        tools = {"pay": lambda *call: self.paid.append(call)}
        self.agent = ScriptedAgent(
            *(script or (calls("pay"), "done")),
            tools=tools,
            approval_tools={"pay"},
            client_tools={"ask"},
        )
        self.runner = SessionRunner(self.agent)


def test_sub_agents_are_stopped_with_the_session_that_waits_for_them(store: SessionStore) -> None:
    parent, middle = Parent("research"), Parent("deeper")
    middle.subagents = {"deeper": "leaf"}
    assert start(store, parent) == "suspended_awaiting_children"
    assert work(middle) == 1
    [kid] = refs(store)
    [leaf] = refs(store, kid.sub_session_id)
    outcome = SessionRunner(None).interrupt("p", "enough")
    assert outcome.kind == "interrupted"
    assert outcome.run is not None
    assert outcome.run.status == "suspended_awaiting_children"
    state = store.load_state("p")
    assert (state.status, state.interrupt_context) == ("interrupted", {"reason": "enough"})
    assert (state.suspended_awaiting_children, store.peek_interrupt_flag("p")) == (None, None)
    for key in (kid.sub_session_id, leaf.sub_session_id):
        assert store.load_state(key).status == "interrupted", key
    assert SessionRunner(ScriptedAgent("too late")).sweep() == 0
    whole(store, "p")
    for key in (kid.sub_session_id, leaf.sub_session_id):
        assert_invariants(key)


def test_nothing_that_a_sub_agent_asked_for_runs_after_a_stop(store: SessionStore) -> None:
    assert start(store, Parent("research")) == "suspended_awaiting_children"
    till = Payments()
    assert work(till.agent) == 1
    [kid] = refs(store)
    assert SessionRunner(None).interrupt("p").kind == "interrupted"
    store.submit_tool_result(kid.sub_session_id, "call-1", approved=True)
    assert till.runner.sweep() == 0
    assert till.paid == []


@each("answered", [False, True])
def test_nothing_that_is_approved_runs_after_a_stop(store: SessionStore, answered: bool) -> None:
    """Neither what was approved before it, and waits for a worker, nor what is approved afterwards."""
    session = f"s{answered}"
    till = Payments(calls("pay", "ask"), "done", "typed on")
    store.ensure_session(session, agent_type="till")
    store.admit_input(session, "buy")
    assert till.runner.wake(session).kind == "suspended_step_partial"
    if answered:
        store.submit_tool_result(session, "call-1", approved=True)
        store.submit_tool_result(session, "call-2", result="yes")
        assert store.load_state(session).runnable_at is not None
    assert till.runner.interrupt(session, "enough").kind == "interrupted"
    assert till.runner.interrupt(session, "again").kind == "idle"
    assert store.load_state(session).runnable_at is None
    for call_id, answer in (("call-1", {"approved": True}), ("call-2", {"result": "yes"})):
        assert store.submit_tool_result(session, call_id, **answer).outcome == "already_completed"
    assert till.runner.sweep() == 0
    results = [m for m in store.get_messages(session).messages if m["role"] == "tool"]
    assert [(m["tool_call_id"], m["is_error"]) for m in results] == [("call-1", True), ("call-2", True)]
    store.admit_input(session, "I changed my mind")
    assert till.runner.sweep() == 1
    assert said(store, session)[-2:] == [("user", "I changed my mind"), ("assistant", "done")]
    assert till.paid == []
    whole(store, session)


def test_the_turn_is_run_again_before_the_queue(store: SessionStore) -> None:
    """As after any stop, with what is left of its budget; the model is told that its call came to nothing."""
    budget = Budget(max_tokens=100)
    session = SessionRuntime().create(AgentDefinition("till", budget=budget), session_id="s").session_id
    till = Payments(TurnOutcome(calls("pay"), usage={"input_tokens": 30}), "then not", "queued")
    for prompt in ("buy", "sell"):
        store.admit_input(session, prompt, delivery="queue")
    till.runner.wake(session)
    assert till.runner.interrupt(session).kind == "interrupted"
    assert till.runner.sweep() == 0
    store.retry_run(session)
    assert till.runner.sweep() == 1
    spoken = [words for words in said(store, session) if words[0] != "tool"]
    assert spoken[-3:] == [("assistant", "then not"), ("user", "sell"), ("assistant", "queued")]
    assert [turn.budget and turn.budget.max_tokens for turn in till.agent.turns] == [100, 70, 100]
    assert till.paid == []
    whole(store, session)


def test_a_stop_between_the_claim_and_the_resume_is_heard(store: SessionStore, session: str) -> None:
    till = Payments()
    store.admit_input(session, "buy")
    till.runner.wake(session)
    store.submit_tool_result(session, "call-1", approved=True)
    driver = till.runner.claim()
    assert driver is not None
    store.set_interrupt_flag(session, "enough")
    assert till.runner.drive_claimed(driver).kind == "idle"
    state = store.load_state(session)
    assert (state.status, state.interrupt_context) == ("interrupted", {"reason": "enough"})
    assert (store.get_lease(session), store.peek_interrupt_flag(session)) == (None, None)
    assert till.runner.sweep() == 0
    assert till.paid == []
    whole(store, session)


def pause(store: SessionStore, session: str) -> None:
    store.update_status(session, "paused")


def interrupt(store: SessionStore, session: str) -> None:
    store.update_status(session, "interrupted")


def fail(store: SessionStore, session: str) -> None:
    store.update_status(session, "failed")


@each("stop", [pause, interrupt, fail], ids=lambda stop: stop.__name__)
def test_one_that_was_stopped_otherwise_is_left_as_it_is(
    store: SessionStore, stop: Callable[[SessionStore, str], None]
) -> None:
    session, till = f"s-{stop.__name__}", Payments()
    store.create_session(session, agent_type="till")
    store.admit_input(session, "buy")
    till.runner.wake(session)
    stop(store, session)
    before = store.load_state(session)
    assert till.runner.interrupt(session).kind == "idle"
    assert store.load_state(session) == before
