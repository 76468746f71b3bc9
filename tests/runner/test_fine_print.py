"""What the loop promises in passing: each of these was once broken on purpose, and nobody noticed."""

import threading
import time
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.exceptions import Fenced, TransientError
from helix_sessions.models import Session
from helix_sessions.runtime import RetryPolicy, SessionRunner, Spawn, TurnContext, TurnOutcome, scheduling
from helix_sessions.runtime.loop.worker import Worker
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from helix_sessions.store.driving import claims
from tests.contract.suspended import asked, suspended
from tests.runner.test_activities import said, whole
from tests.runner.test_subagents import Child, Parent, refs, start, work

pytestmark = pytest.mark.django_db(transaction=True)

LATER = timedelta(hours=1)
QUICK = RetryPolicy(initial=0.001, jitter=0.0)


class TestTools:
    def test_the_same_id_twice_is_one_call(self, store: SessionStore, session: str) -> None:
        ran: list[Any] = []
        twice = {"id": "same", "name": "pay", "arguments": {}}
        message = {"role": "assistant", "content": "", "tool_calls": [twice, twice]}
        agent = ScriptedAgent(message, "ok", tools={"pay": lambda arguments, turn: ran.append(1)})
        assert SessionRunner(agent).run(session).kind == "completed"
        assert len(ran) == 1
        assert len([role for role, _ in said(store, session) if role == "tool"]) == 1

    def test_an_id_that_cannot_be_kept_is_an_error_result(self, store: SessionStore, session: str) -> None:
        """Whoever would answer it."""
        ran: list[Any] = []
        tools = {"pay": lambda arguments, turn: ran.append(1), "refund": lambda arguments, turn: 1}
        for call_id in ("c" * 400, "a\0b"):
            for name in ("pay", "ask", "refund", "research"):
                call = {"id": call_id, "name": name, "arguments": {"prompt": "go"}}
                message = {"role": "assistant", "content": "", "tool_calls": [call]}
                agent = ScriptedAgent(message, "ok", tools=tools, subagents={"research": "child"})
                agent.client_tools, agent.approval_tools = {"ask"}, {"refund"}
                assert SessionRunner(agent).run(session).kind == "completed", (call_id, name)
        results = [m for m in store.get_messages(session).messages if m["role"] == "tool"]
        assert (len(results), ran) == (8, [])
        assert all(result["is_error"] for result in results)
        whole(store, session)

    def test_one_that_was_left_behind_writes_nothing(self, store: SessionStore, session: str) -> None:
        over, refusals, done = threading.Event(), list[Exception](), threading.Event()

        def slow(arguments: Any, turn: TurnContext) -> None:
            over.wait(30)
            try:
                turn.emit("late", {})
            except Exception as error:
                refusals.append(error)
            done.set()

        def answer(turn: TurnContext) -> str:
            over.set()
            assert done.wait(30)
            return "ok"

        agent = ScriptedAgent(calls("slow"), answer, tools={"slow": slow})
        agent.tool_options = {"slow": {"timeout": 0.05}}
        assert SessionRunner(agent).run(session).kind == "completed"
        assert [type(error) for error in refusals] == [Fenced]
        assert store.get_events(session, types=["late"]) == []

    def test_a_client_tool_and_an_approval_are_a_mixed_batch(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent(calls("ask", "refund"), client_tools={"ask"}, approval_tools={"refund"})
        assert SessionRunner(agent).run(session).kind == "suspended_step_partial"


class TestRequests:
    def test_the_earlier_of_two_follows_the_run_under_way(self, store: SessionStore, session: str) -> None:
        run, at = store.begin_turn(session).run, timezone.now() + LATER
        store.request_run(session, at=at + LATER)
        store.request_run(session, at=at)
        store.request_run(session, at=at + LATER)
        store.end_run(session, run.run_id, "completed")
        assert store.load_state(session).runnable_at == at

    def test_one_for_later_is_not_taken_by_a_run_that_begins_before(
        self, store: SessionStore, session: str
    ) -> None:
        at = timezone.now() + LATER
        store.request_run(session, at=at)
        run = store.begin_turn(session).run
        store.end_run(session, run.run_id, "completed")
        assert store.load_state(session).runnable_at == at

    def test_a_session_that_is_due_keeps_its_place(self, store: SessionStore, session: str) -> None:
        receipt = store.admit_input(session, "hello")
        place = store.load_state(session).runnable_at
        store.request_run(session)
        store.cancel_input(session, receipt.input_id)
        assert store.load_state(session).runnable_at == place

    def test_a_claim_that_is_renewed_before_its_run(self, store: SessionStore, session: str) -> None:
        driver = claims.claim_session(store, session, "w", 5, forced=True)
        assert driver is not None
        assert driver.lease is not None
        lease = store.renew_lease(driver.lease, 500)
        assert store.load_state(session).runnable_at == lease.expires_at

    def test_a_request_to_stop_that_nobody_met_does_not_stop_the_next_run(
        self, store: SessionStore, session: str
    ) -> None:
        store.set_interrupt_flag(session, "too late")
        store.admit_input(session, "hello")
        assert SessionRunner(ScriptedAgent("ok")).run(session).kind == "completed"
        assert store.peek_interrupt_flag(session) is None

    def test_who_is_asked_to_stop_does_not_begin_to_wait(self, store: SessionStore, session: str) -> None:
        def stopped(turn: TurnContext) -> dict[str, Any]:
            store.set_interrupt_flag(session, "enough")
            return calls("ask")

        agent = ScriptedAgent(stopped, client_tools={"ask"})
        assert SessionRunner(agent).run(session).kind == "interrupted"
        state = store.load_state(session)
        assert (state.status, state.pending_client_tool_calls) == ("interrupted", None)
        whole(store, session)

    def test_what_a_failed_run_of_a_closing_runner_leaves_in_the_queue(
        self, store: SessionStore, session: str
    ) -> None:
        def close(turn: TurnContext) -> TurnOutcome:
            runner.close()
            return TurnOutcome("no", error="it cannot be done")

        runner = SessionRunner(ScriptedAgent(close))
        for name in ("one", "two"):
            store.admit_input(session, name, delivery="queue")
        assert runner.wake(session).kind == "failed"
        assert [one.session_id for one in store.list_runnable()] == [session]
        assert SessionRunner(ScriptedAgent()).sweep() == 1
        assert said(store, session)[-1] == ("assistant", "two")

    def test_a_deadline_that_passed_is_an_answer_to_whoever_runs_it(
        self, store: SessionStore, session: str
    ) -> None:
        store.delete_session(session)
        suspended(store, session, asked("a", deadline=timezone.now() + timedelta(seconds=0.05)))
        time.sleep(0.06)
        assert SessionRunner(ScriptedAgent("ok")).run(session).kind == "completed"
        whole(store, session)

    def test_sweeps_settle_deadlines(self, store: SessionStore, session: str, settings: Any) -> None:
        """The runner's, and that of tasks and Celery."""
        agent = ScriptedAgent("ok", "ok")
        settings.HELIX_SESSIONS = {"AGENTS": {"a": agent}, "WAKER": None}
        for sweep in (SessionRunner(agent).sweep, partial(scheduling.sweep, None)):
            store.delete_session(session)
            store.create_session(session, agent_type="a")
            suspended(store, session, asked("a", deadline=timezone.now() + timedelta(seconds=0.05)))
            time.sleep(0.06)
            assert sweep() == 1
            assert said(store, session)[-1] == ("assistant", "ok")
            whole(store, session)

    def test_workers_settle_deadlines(self, store: SessionStore, session: str, settings: Any) -> None:
        settings.HELIX_SESSIONS = {"AGENTS": {"a": ScriptedAgent()}}
        worker = Worker(using="default", concurrency=1)
        assert worker._claim() is None
        store.delete_session(session)
        store.create_session(session, agent_type="a")
        suspended(store, session, asked("a", deadline=timezone.now() + timedelta(seconds=0.05)))
        time.sleep(0.06)
        assert worker._claim() is None
        worker.lookout.step(to_the_end=False)
        driver = worker._claim()
        assert driver is not None
        assert driver.session_id == session


class TestCounts:
    def test_a_committed_turn_begins_the_attempts_anew(self, store: SessionStore, session: str) -> None:
        counts: list[int] = []

        def count(turn: TurnContext) -> dict[str, Any]:
            counts.append(Session.objects.get().attempts)
            return calls("work") if len(counts) < 3 else {"role": "assistant", "content": "ok"}

        Session.objects.update(attempts=3)
        agent = ScriptedAgent(count, count, count, tools={"work": lambda arguments, turn: 1})
        assert SessionRunner(agent).run(session).kind == "completed"
        assert counts == [4, 1, 1]
        assert Session.objects.get().attempts == 0

    def test_runs_that_fail_are_no_crash_loop(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent([ValueError("no")] * 8)
        codes = [SessionRunner(agent).run(session).error["code"] for _ in range(8)]
        assert set(codes) == {"agent_raised"}

    def test_each_turn_has_its_own_attempts(self, store: SessionStore, session: str) -> None:
        busy = TransientError("busy")
        agent = ScriptedAgent(busy, calls("work"), busy, busy, "ok", tools={"work": lambda a, t: 1})
        assert SessionRunner(agent, retry=QUICK).run(session).kind == "completed"
        failed = store.get_events(session, types=["model_call_failed"])
        assert [event.data["attempt"] for event in failed] == [1, 1, 2]

    def test_a_child_in_a_crash_loop_fails_so_that_its_parent_goes_on(self, store: SessionStore) -> None:
        agent = Parent("research")
        start(store, agent)
        Session.objects.exclude(session_id="p").update(attempts=5)
        assert work(Child()) == 1
        [ref] = refs(store)
        state = store.load_state(ref.sub_session_id)
        assert (state.status, state.error["code"]) == ("failed", "crash_loop")
        assert SessionRunner(agent, agent_types=["parent"]).sweep() == 1
        assert store.load_state("p").status == "completed"


def test_a_companion_that_is_given_more_is_active(store: SessionStore) -> None:
    spawn = Spawn("researcher", "output", mode="persistent", name="ann")
    agent = Parent("delegate", delegate=lambda arguments, turn: spawn)
    start(store, agent)
    assert work(Child()) == 1
    assert SessionRunner(agent, agent_types=["parent"]).sweep() == 1
    store.admit_input("p", "again")
    assert SessionRunner(agent, agent_types=["parent"]).sweep() == 1
    [ref] = refs(store)
    state = store.load_state(ref.sub_session_id)
    assert (state.status, state.output) == ("active", None), "not as it was after the first time"
