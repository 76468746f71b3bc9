"""Failure is planned: calls of models and tools are made again, in place or later, and crash loops end."""

import asyncio
import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.agents import ToolOptions, current_turn, durable
from helix_sessions.exceptions import TransientError
from helix_sessions.runtime import RetryPolicy, SessionRunner, TurnContext, TurnOutcome
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from tests.parallel import Worker
from tests.runner.test_activities import run_of, said, whole

pytestmark = pytest.mark.django_db(transaction=True)

QUICK = RetryPolicy(initial=0.001, jitter=0)


def failures(store: SessionStore, session: str) -> list[Any]:
    return [event.data for event in store.get_events(session, types=["model_call_failed"])]


def due(store: SessionStore, session: str) -> None:
    """Time passes: what is to run later is to run now."""
    store.request_run(session)


class TestTheModel:
    def test_short_waits_are_made_in_place(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent([TransientError("busy"), TimeoutError(), "ok"])
        store.admit_input(session, "hello")
        assert SessionRunner(agent, retry=QUICK).wake(session).kind == "completed"
        told = failures(store, session)
        assert [failure["attempt"] for failure in told] == [1, 2]
        assert all(failure["retry_at"] for failure in told)
        assert told[0]["error"]["type"] == "TransientError"
        assert said(store, session) == [("user", "hello"), ("assistant", "ok")]
        assert [event.data["attempt"] for event in store.get_events(session, types=["model_called"])] == [
            1,
            2,
            3,
        ]
        assert store.load_state(session).runnable_at is None
        whole(store, session)

    def test_then_the_run_fails_with_the_last_error(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent([TransientError(f"busy {number}") for number in range(9)])
        store.admit_input(session, "hello")
        outcome = SessionRunner(agent, retry=RetryPolicy(max_attempts=3, initial=0.001)).wake(session)
        assert (outcome.kind, outcome.error["message"], outcome.error["attempt"]) == ("failed", "busy 2", 3)
        assert len(agent.turns) == 3
        assert said(store, session) == [("user", "hello")]
        assert failures(store, session)[-1]["retry_at"] is None
        assert store.load_state(session).status == "failed"
        whole(store, session)

    def test_retry_run_asks_again_without_a_new_message(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent([ValueError("no"), "yes"])
        store.admit_input(session, "hello")
        runner = SessionRunner(agent)
        assert runner.wake(session).kind == "failed"
        assert runner.sweep() == 0
        store.retry_run(session)
        assert runner.sweep() == 1
        assert said(store, session) == [("user", "hello"), ("assistant", "yes")]
        whole(store, session)

    @pytest.mark.parametrize("ask", ["retry_run", "request_run"])
    def test_the_queue_waits_until_the_turn_that_failed_is_answered(
        self, store: SessionStore, session: str, ask: str
    ) -> None:
        for prompt in ("one", "two"):
            store.admit_input(session, prompt, delivery="queue")
        runner = SessionRunner(ScriptedAgent([ValueError("no")]))
        assert runner.wake(session).kind == "failed"
        getattr(store, ask)(session)
        assert runner.sweep() == 1
        assert said(store, session) == [
            *(("user", "one"), ("assistant", "one")),
            *(("user", "two"), ("assistant", "two")),
        ]
        whole(store, session)

    def test_the_turn_that_was_stopped_is_run_again(self, store: SessionStore, session: str) -> None:
        def streaming(turn: TurnContext) -> str:
            turn.publish_fragment({"text": "Hel"})
            store.set_interrupt_flag(session, "enough")
            while not turn.interrupted():
                time.sleep(0.01)
            raise RuntimeError("stopped")

        for prompt in ("one", "two"):
            store.admit_input(session, prompt, delivery="queue")
        runner = SessionRunner(ScriptedAgent([streaming]))
        assert runner.wake(session).kind == "interrupted"
        store.retry_run(session)
        assert runner.sweep() == 1
        assert said(store, session) == [
            *(("user", "one"), ("assistant", "Hel"), ("assistant", "one")),
            *(("user", "two"), ("assistant", "two")),
        ]
        whole(store, session)

    def test_what_fails_again_and_again_keeps_nobody_from_typing_on(
        self, store: SessionStore, session: str
    ) -> None:
        store.admit_input(session, "one", delivery="queue")
        runner = SessionRunner(ScriptedAgent([ValueError("no")]))
        assert runner.wake(session).kind == "failed"
        store.admit_input(session, "two", delivery="queue")
        assert runner.sweep() == 1
        assert said(store, session) == [("user", "one"), ("user", "two"), ("assistant", "two")]

    def test_longer_waits_hold_no_worker(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent([TransientError("busy", retry_after=120), "ok"])
        store.admit_input(session, "hello")
        outcome = SessionRunner(agent).wake(session)
        assert (outcome.kind, run_of(outcome).status) == ("idle", "running")
        state = store.load_state(session)
        assert state.runnable_at is not None
        assert state.runnable_at > timezone.now() + timedelta(seconds=110)
        assert store.get_lease(session) is None
        assert SessionRunner(agent).sweep() == 0
        assert SessionRunner(agent).wake(session).kind == "idle"
        due(store, session)
        SessionRunner(agent).sweep()
        assert said(store, session) == [("user", "hello"), ("assistant", "ok")]
        assert [run.status for run in store.list_runs(session).items] == ["completed"]
        whole(store, session)

    def test_who_drives_a_waiting_retry_asks_for_no_other_run(
        self, store: SessionStore, session: str
    ) -> None:
        agent = ScriptedAgent([TransientError("busy", retry_after=120), "ok", "once more"])
        store.admit_input(session, "hello")
        runner = SessionRunner(agent)
        assert runner.wake(session).kind == "idle"
        assert runner.run(session).kind == "completed"
        assert store.load_state(session).runnable_at is None
        assert runner.sweep() == 0
        assert said(store, session) == [("user", "hello"), ("assistant", "ok")]
        whole(store, session)

    def test_a_run_that_was_asked_for_follows_the_retry(self, store: SessionStore, session: str) -> None:
        def busy(turn: TurnContext) -> None:
            store.request_run(session)
            raise TransientError("busy", retry_after=120)

        agent = ScriptedAgent([busy, "ok", "once more"])
        store.admit_input(session, "hello")
        runner = SessionRunner(agent)
        assert runner.wake(session).kind == "idle"
        assert runner.run(session).kind == "completed"
        assert runner.sweep() == 1
        assert [text for _, text in said(store, session)] == ["hello", "ok", "once more"]
        whole(store, session)

    def test_a_restart_forgets_no_attempt(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent([TransientError("busy", retry_after=60)] * 9)
        store.admit_input(session, "hello")
        policy = RetryPolicy(max_attempts=3)
        assert SessionRunner(agent, retry=policy).wake(session).kind == "idle"
        for _ in range(2):
            due(store, session)
            SessionRunner(agent, retry=policy).sweep()
        assert [failure["attempt"] for failure in failures(store, session)] == [1, 2, 3]
        assert len(agent.turns) == 3
        assert store.load_state(session).status == "failed"
        whole(store, session)

    def test_retry_run_while_it_waits_asks_again_at_once_and_counts_from_one(
        self, store: SessionStore, session: str
    ) -> None:
        agent = ScriptedAgent([TransientError("busy", retry_after=60), TransientError("busy"), "ok"])
        store.admit_input(session, "hello")
        runner = SessionRunner(agent, retry=RetryPolicy(max_attempts=2, initial=0.001))
        assert runner.wake(session).kind == "idle"
        store.retry_run(session)
        assert runner.sweep() == 1
        assert [failure["attempt"] for failure in failures(store, session)] == [1, 1]
        assert said(store, session) == [("user", "hello"), ("assistant", "ok")]
        assert len(store.list_runs(session).items) == 1
        whole(store, session)

    @pytest.mark.parametrize("stop", ["interrupt", "interrupted", "failed", "paused", "move"])
    def test_a_new_prompt_has_all_its_attempts(self, store: SessionStore, session: str, stop: str) -> None:
        busy = TransientError("busy", retry_after=60)
        agent = ScriptedAgent([busy, TransientError("busy"), "ok"])
        runner = SessionRunner(agent, retry=RetryPolicy(max_attempts=2, initial=0.001))
        store.admit_input(session, "one")
        assert runner.wake(session).kind == "idle"
        if stop == "interrupt":
            assert runner.interrupt(session).kind == "interrupted"
        elif stop == "move":
            store.move_session(session, "elsewhere")
        else:
            store.update_status(session, stop)
        store.admit_input(session, "two")
        store.request_run(session)
        assert runner.sweep() == 1
        assert [failure["attempt"] for failure in failures(store, session)] == [1, 1]
        assert said(store, session)[-2:] == [("user", "two"), ("assistant", "ok")]
        whole(store, session)

    def test_a_sub_agent_that_is_settled_while_it_waits_is_not_tried_again(
        self, store: SessionStore, session: str
    ) -> None:
        store.create_session("child", agent_type="helper", parent_session_id=session)
        store.admit_input("child", "hello")
        agent = ScriptedAgent([TransientError("busy", retry_after=60)])
        assert SessionRunner(agent).wake("child").kind == "idle"
        store.settle_child("child", "failed", error="stopped")
        state = store.load_state("child")
        assert (state.status, state.runnable_at) == ("failed", None)
        assert [run.status for run in store.list_runs("child").items] == ["failed"]
        assert SessionRunner(agent).wake("child").kind == "idle"
        assert len(agent.turns) == 1
        whole(store, "child")

    def test_a_waiting_retry_is_interrupted(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent([TransientError("busy", retry_after=60)])
        SessionRunner(agent).run(session)
        assert SessionRunner(agent).interrupt(session, "enough").kind == "interrupted"
        assert len(agent.turns) == 1
        assert store.load_state(session).status == "interrupted"
        whole(store, session)

    def test_what_retry_on_names(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent([KeyError("odd"), "ok"])
        policy = RetryPolicy(initial=0.001, retry_on=(KeyError,))
        assert SessionRunner(agent, retry=policy).run(session).kind == "completed"

    def test_an_agents_own_policy(self, store: SessionStore, session: str) -> None:
        for number, policy in enumerate((RetryPolicy(max_attempts=1), {"max_attempts": 1})):
            agent = ScriptedAgent([TransientError("busy")] * 2)
            agent.retry = policy  # type: ignore[attr-defined]
            assert SessionRunner(agent).run(session).kind == "failed"
            assert SessionRunner(durable(agent)).run(session).kind == "failed"
            assert len(agent.turns) == 2, number

    def test_a_provider_that_asks_for_ages(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent([TransientError("busy", retry_after=1e12), "ok"])
        assert SessionRunner(agent).run(session).kind == "idle"
        at = store.load_state(session).runnable_at
        assert at is not None
        assert timedelta(days=30) < at - timezone.now() < timedelta(days=32)
        due(store, session)
        assert SessionRunner(agent).run(session).kind == "completed"

    @pytest.mark.parametrize("kind", ["plain", "async"])
    def test_turn_timeout(self, store: SessionStore, session: str, kind: str) -> None:
        go = threading.Event()

        class Slow:
            turns = 0

            def run_turn(self, turn: TurnContext) -> Any:
                self.turns += 1
                if self.turns > 1:
                    return TurnOutcome("in time")
                if kind == "async":
                    return asyncio.sleep(20)
                go.wait(20)
                turn.emit("late")
                return TurnOutcome("late")

        agent = Slow()
        outcome = SessionRunner(agent, turn_timeout=0.2, retry=QUICK).run(session)
        go.set()
        assert outcome.kind == "completed"
        assert failures(store, session)[0]["error"]["code"] == "timeout"
        time.sleep(0.05)
        assert said(store, session) == [("assistant", "in time")]
        assert store.get_events(session, types=["late"]) == []


class TestTools:
    def test_they_are_not_repeated(self, store: SessionStore, session: str) -> None:
        ran: list[Any] = []

        def broken(arguments: Any, turn: TurnContext) -> None:
            ran.append(1)
            raise TransientError("busy")

        assert SessionRunner(ScriptedAgent([calls("t"), "ok"], tools={"t": broken})).run(session).kind
        assert len(ran) == 1

    def test_unless_they_say_so_under_one_key(self, store: SessionStore, session: str) -> None:
        keys: list[Any] = []

        def flaky(arguments: Any, turn: TurnContext) -> str:
            assert current_turn() is turn
            keys.append(turn.idempotency_key)
            if len(keys) < 3:
                raise ValueError("not yet")
            return "done"

        agent = ScriptedAgent([calls("t"), calls("t"), "ok"], tools={"t": flaky})
        agent.tool_options = {"t": ToolOptions(retries=2)}
        assert SessionRunner(agent, retry=QUICK).run(session).kind == "completed"
        assert [content for role, content in said(store, session) if role == "tool"] == ["done"] * 2
        assert len(set(keys[:3])) == 1
        assert keys[3] != keys[0]
        assert len(store.get_events(session, types=["tool_retried"])) == 2
        whole(store, session)

    @pytest.mark.parametrize("kind", ["plain", "async"])
    def test_a_timeout(self, store: SessionStore, session: str, kind: str) -> None:
        go = threading.Event()

        async def slow_async(arguments: Any, turn: TurnContext) -> None:
            await asyncio.sleep(20)

        tools = {"t": slow_async if kind == "async" else lambda arguments, turn: go.wait(20)}
        agent = ScriptedAgent([calls("t"), "ok"], tools=tools)
        agent.tool_options = {"t": ToolOptions(timeout=0.1)}
        assert SessionRunner(agent).run(session).kind == "completed"
        go.set()
        [result] = [m for m in store.get_messages(session).messages if m["role"] == "tool"]
        assert result["is_error"] is True
        whole(store, session)

    def test_durations_are_logged(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent([calls("t"), "ok"], tools={"t": lambda arguments, turn: time.sleep(0.05)})
        SessionRunner(agent).run(session)
        [event] = store.get_events(session, types=["tool_responded"])
        assert event.data["duration_ms"] >= 50
        assert event.turn_id is not None


def die(store: SessionStore, session: str, *names: str) -> None:
    """As a process that is killed in these tools."""
    fenced = store.fenced(store.acquire_lease(session, "dead", 0))
    run = fenced.begin_turn(session, message="go").run
    listed = [{"id": name, "name": name, "arguments": {"n": 1}} for name in names]
    fenced.append_messages(session, [{"role": "assistant", "content": "", "tool_calls": listed}])
    for name in names:
        data = {"tool_call_id": name, "tool_name": name}
        fenced.emit_event(session, "tool_called", data, turn_id=f"{run.run_id}:1")


def die_in_the_model(session: str, notes: str) -> None:
    """In another process: take the session as soon as the lease of the one before has run out."""

    class Deadly:
        def run_turn(self, turn: TurnContext) -> Any:
            with Path(notes).open("a") as file:
                file.write("asked\n")
            os.kill(os.getpid(), signal.SIGKILL)

    runner = SessionRunner(Deadly(), lease_ttl=0.2)
    while runner.wake(session).kind == "idle":
        time.sleep(0.01)


class TestAfterACrash:
    def test_a_tool_that_says_so_is_tried_again(self, store: SessionStore, session: str) -> None:
        die(store, session, "safe", "unsafe")
        ran: list[Any] = []

        def note(arguments: Any, turn: TurnContext) -> str:
            ran.append((arguments, turn.idempotency_key))
            return "done"

        agent = ScriptedAgent(["ok"], tools={"safe": note, "unsafe": note})
        agent.tool_options = {"safe": {"retries": 1}}
        assert SessionRunner(agent).sweep() == 1
        assert [arguments for arguments, _ in ran] == [{"n": 1}]
        results = {m["tool_call_id"]: m for m in store.get_messages(session).messages if m["role"] == "tool"}
        assert results["safe"]["content"] == "done"
        assert results["unsafe"]["is_error"] is True
        [event] = store.get_events(session, types=["tool_error"])
        assert event.data["code"] == "outcome_unknown"
        assert len(store.get_events(session, types=["tool_called"])) == 2, "each call was made once"
        [again] = store.get_events(session, types=["tool_retried"])
        assert again.data == {"tool_call_id": "safe", "tool_name": "safe", "attempt": 2}
        whole(store, session)

    def test_while_attempts_are_left(self, store: SessionStore, session: str) -> None:
        die(store, session, "safe")
        data = {"tool_call_id": "safe", "tool_name": "safe", "attempt": 2}
        store.emit_event(session, "tool_retried", data)
        ran: list[Any] = []
        agent = ScriptedAgent(["ok"], tools={"safe": lambda *a: ran.append(a)})
        agent.tool_options = {"safe": {"retries": 1}}
        assert SessionRunner(agent).sweep() == 1
        assert ran == []
        whole(store, session)

    def test_processes_that_die_in_the_call_of_the_model(
        self, store: SessionStore, session: str, tmp_path: Path
    ) -> None:
        """Each is killed; the one after the last that is allowed fails the run, and lives."""
        notes = tmp_path / "notes"
        store.admit_input(session, "hello")
        for attempt in range(1, 7):
            worker = Worker(die_in_the_model, session, str(notes))
            worker.wait_until_ready()
            worker.go()
            assert worker.ended() == (-signal.SIGKILL if attempt < 6 else 0)
        assert notes.read_text() == "asked\n" * 5
        state = store.load_state(session)
        assert (state.status, state.error["code"]) == ("paused", "crash_loop")
        whole(store, session)

    def test_a_crash_loop_ends(self, store: SessionStore, session: str) -> None:
        """As many calls of the model as are allowed; the next claim fails the run."""
        asked: list[Any] = []

        class Died(BaseException):
            """The process is gone, and nothing of it is cleaned up."""

        class Deadly:
            def run_turn(self, turn: TurnContext) -> Any:
                asked.append(turn)
                raise Died

        store.admit_input(session, "hello")
        runner = SessionRunner(Deadly())
        outcome = None
        for _ in range(5):
            with pytest.raises(Died):
                runner.wake(session)
            lease = store.get_lease(session)
            assert lease is not None
            store.renew_lease(lease, 0)
        outcome = runner.wake(session)
        assert (outcome.kind, outcome.error["code"], len(asked)) == ("failed", "crash_loop", 5)
        state = store.load_state(session)
        assert (state.status, state.error["code"]) == ("paused", "crash_loop")
        assert runner.wake(session).kind == "idle"
        whole(store, session)
        store.retry_run(session)
        assert SessionRunner(ScriptedAgent(["fine"])).sweep() == 1
        assert said(store, session) == [("user", "hello"), ("assistant", "fine")]
        whole(store, session)
