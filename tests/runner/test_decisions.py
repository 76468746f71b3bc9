"""Decisions from outside hold, answers wake, and what a stopped session does with its inbox."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from helix_sessions.exceptions import RunEnded
from helix_sessions.runtime import SessionRunner, TurnContext, TurnOutcome
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from tests.invariants import assert_invariants
from tests.rows import each
from tests.runner.test_activities import said, whole

pytestmark = pytest.mark.django_db(transaction=True)


def fail(store: SessionStore) -> None:
    store.update_status("s", "failed", error="no credit")


def pause(store: SessionStore) -> None:
    store.update_status("s", "paused")


def complete(store: SessionStore) -> None:
    store.update_status("s", "completed", output="by hand")


def move(store: SessionStore) -> None:
    store.move_session("s", "elsewhere")


def wake(store: SessionStore) -> None:
    store.wake("s")


def rewind(store: SessionStore) -> None:
    store.rewind("s")


def interrupt(store: SessionStore) -> None:
    store.update_status("s", "interrupted")


def end_run(store: SessionStore) -> None:
    run = store.get_current_run("s")
    assert run is not None
    store.update_run_status("s", run.run_id, "interrupted")


DECISIONS: dict[str, tuple[Callable[[SessionStore], None], str, str]] = {
    "fail": (fail, "failed", "failed"),
    "pause": (pause, "paused", "interrupted"),
    "complete": (complete, "completed", "completed"),
}
"""Each with the status of the session and the outcome of the drive that it ends."""


class TestOutside:
    @each("name", list(DECISIONS))
    def test_nothing_of_a_stopped_driver_is_written_afterwards(
        self, store: SessionStore, session: str, name: str
    ) -> None:
        decide, status, kind = DECISIONS[name]

        def decided(turn: TurnContext) -> str:
            decide(store)
            return "too late"

        store.admit_input(session, "hello")
        assert SessionRunner(ScriptedAgent([decided])).wake(session).kind == kind
        state = store.load_state(session)
        assert state.status == status
        assert said(store, session) == [("user", "hello")]
        assert store.get_current_run(session) is None
        assert [run.status for run in store.list_runs(session).items] != ["running"]
        whole(store, session)

    def test_a_tool_that_is_running_writes_nothing_either(self, store: SessionStore, session: str) -> None:
        def tool(arguments: Any, turn: TurnContext) -> str:
            fail(store)
            return "too late"

        agent = ScriptedAgent([calls("t"), "never"], tools={"t": tool})
        SessionRunner(agent).run(session)
        assert store.load_state(session).status == "failed"
        assert len(agent.turns) == 1
        assert store.get_events(session, types=["tool_responded"]) == []

    @each("decide", [move, wake])
    def test_somebody_else_goes_on(self, store: SessionStore, session: str, decide: Any) -> None:
        def decided(turn: TurnContext) -> str:
            decide(store)
            return "too late"

        store.admit_input(session, "hello")
        SessionRunner(ScriptedAgent([decided])).wake(session)
        for _ in range(3):
            SessionRunner(ScriptedAgent(["by another"])).sweep()
        assert said(store, session)[-1] == ("assistant", "by another")
        whole(store, session)

    @each("decide", [interrupt, fail, pause, move, rewind, wake, end_run])
    def test_stopped_drivers_are_no_crash_loop(
        self, store: SessionStore, session: str, settings: Any, decide: Any
    ) -> None:
        settings.HELIX_SESSIONS = {"MAX_INTERRUPTED_ATTEMPTS": 2}

        def decided(turn: TurnContext) -> str:
            decide(store)
            return "too late"

        store.create_checkpoint(session)
        agent = ScriptedAgent([decided] * 5 + ["fine"])
        for _ in range(6):
            store.admit_input(session, "hello")
            store.request_run(session)
            SessionRunner(agent).sweep()
        reasons = [
            event.data.get("failure_reason") for event in store.get_events(session, types=["status_changed"])
        ]
        assert "crash_loop" not in reasons
        assert ("assistant", "fine") in said(store, session)
        assert store.load_state(session).status == "completed"
        whole(store, session)

    def test_an_ended_run_is_not_changed(self, store: SessionStore, session: str) -> None:
        run = store.begin_turn(session, message="hello").run
        store.update_run_status(session, run.run_id, "completed")
        with pytest.raises(RunEnded):
            store.update_run_status(session, run.run_id, "failed")

    def test_the_model_call_is_cancelled(self, store: SessionStore, session: str) -> None:
        entered, cancelled = threading.Event(), threading.Event()

        class Slow:
            async def run_turn(self, turn: TurnContext) -> Any:
                entered.set()
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    cancelled.set()
                    raise

        thread = threading.Thread(target=lambda: SessionRunner(Slow()).run(session))
        thread.start()
        assert entered.wait(20)
        began = time.monotonic()
        fail(store)
        assert cancelled.wait(10)
        assert time.monotonic() - began < 2
        thread.join(20)
        assert store.load_state(session).status == "failed"
        whole(store, session)


class TestAnswers:
    @each("approved", [True, False])
    def test_an_approval_alone_brings_the_session_to_its_end(
        self, store: SessionStore, session: str, approved: bool
    ) -> None:
        paid: list[Any] = []

        def pay(arguments: Any, turn: TurnContext) -> str:
            paid.append(arguments)
            return "paid"

        agent = ScriptedAgent([calls("pay", cents=5), "ok"], tools={"pay": pay}, approval_tools=["pay"])
        runner = SessionRunner(agent)
        store.admit_input(session, "refund")
        assert runner.sweep() == 1
        assert runner.sweep() == 0
        store.submit_tool_result(session, "call-1", approved=approved)
        assert runner.sweep() == 1
        assert len(paid) == approved
        assert store.load_state(session).status == "completed"
        whole(store, session)

    def test_wake_resumes_an_answered_session(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent([calls("ask"), "thanks"], client_tools=["ask"])
        runner = SessionRunner(agent)
        runner.run(session)
        assert runner.wake(session).kind == "idle"
        store.submit_tool_result(session, "call-1", result=42)
        assert runner.wake(session).kind == "completed"
        state = store.load_state(session)
        assert (state.suspended_step_id, state.suspension_context) == (None, None)


class TestInboxOfAStoppedSession:
    @each("status", ["failed", "interrupted", "paused"])
    def test_what_was_pending_stays_so(self, store: SessionStore, session: str, status: str) -> None:
        store.admit_input(session, "old", delivery="queue")
        store.update_status(session, status)
        agent = ScriptedAgent()
        runner = SessionRunner(agent)
        assert runner.sweep() == 0
        store.admit_input(session, "new", delivery="queue")
        swept = runner.sweep()
        assert swept == (0 if status == "paused" else 1)
        assert bool(store.list_inputs(session)) == (status == "paused")
        if status == "paused":
            assert runner.wake(session).kind == "idle"
            assert len(store.list_inputs(session)) == 2
            store.request_run(session)
            assert runner.sweep() == 1
        assert_invariants(session)

    def test_admitted_only(self, store: SessionStore, session: str) -> None:
        store.admit_input(session, "hello", resume=False)
        runner = SessionRunner(ScriptedAgent())
        assert runner.sweep() == 0
        assert runner.wake(session).kind == "completed"


def test_a_request_in_the_future(store: SessionStore, session: str) -> None:
    from datetime import timedelta

    from django.utils import timezone

    runner = SessionRunner(ScriptedAgent())
    store.request_run(session, at=timezone.now() + timedelta(seconds=60))
    store.request_run(session, at=timezone.now() + timedelta(seconds=60))
    assert runner.sweep() == 0
    store.request_run(session)
    assert runner.sweep() == 1
    assert runner.sweep() == 0
    assert len(store.list_runs(session).items) == 1


def test_what_was_said_before_a_stop_is_kept(store: SessionStore, session: str) -> None:
    def streaming(turn: TurnContext) -> str:
        for text in ("Hel", "lo"):
            turn.publish_fragment({"text": text})
        store.set_interrupt_flag(session, "enough")
        while not turn.interrupted():
            time.sleep(0.01)
        raise RuntimeError("stopped")

    outcome = SessionRunner(ScriptedAgent([streaming])).run(session)
    assert outcome.kind == "interrupted"
    [message] = store.get_messages(session).messages
    assert (message["content"], message["interrupted"]) == ("Hello", True)
    [finished] = store.get_events(session, types=["turn_finished"])
    told = {name: finished.data[name] for name in ("turn", "model", "usage", "finish_reason")}
    assert told == {"turn": 1, "model": None, "usage": None, "finish_reason": "interrupted"}
    assert finished.data["duration_ms"] >= 0
    whole(store, session)


def heed(turn: TurnContext, answer: Any) -> Any:
    turn.store.set_interrupt_flag(turn.session_id, "enough")
    while not turn.interrupted():
        time.sleep(0.01)
    return answer


def heed_while_streaming(turn: TurnContext, answer: Any) -> Any:
    turn.publish_fragment({"text": "Hel"})
    turn.publish_fragment({"text": "lo"})
    return heed(turn, answer)


NATIVE = [{"type": "text", "text": "Hello"}, {"type": "tool_use", "id": "call-1", "name": "t", "input": {}}]


@each(
    ("heeds", "answer", "content"),
    [
        (heed, "Hello", "Hello"),
        (heed, calls("t"), None),
        (heed, {**calls("t"), "content": "Hello"}, "Hello"),
        (heed, {"role": "assistant", "content": NATIVE}, NATIVE[:1]),
        (heed, {"role": "assistant", "content": NATIVE[1:]}, None),
        (heed, TurnOutcome("Hello", error="stopped"), "Hello"),
        (heed_while_streaming, "", "Hello"),
        (heed_while_streaming, calls("t"), "Hello"),
        (heed_while_streaming, "Hello, and so on", "Hello, and so on"),
    ],
    ids=str,
)
def test_an_agent_that_returns_because_it_was_stopped_has_not_answered(
    store: SessionStore, session: str, heeds: Callable[[TurnContext, Any], Any], answer: Any, content: Any
) -> None:
    """What it says is kept, its calls are not, and the turn is run again when a person asks for that. Its
    usage counts."""
    outcome = answer if isinstance(answer, TurnOutcome) else TurnOutcome(answer)
    outcome = replace(outcome, usage={"input_tokens": 5}, writes=[{"op": "set", "path": ["at"], "value": 14}])
    ran: list[Any] = []
    agent = ScriptedAgent([lambda turn: heeds(turn, outcome)], tools={"t": lambda *call: ran.append(call)})
    runner = SessionRunner(agent)
    for prompt in ("one", "two"):
        store.admit_input(session, prompt, delivery="queue")
    assert runner.wake(session).kind == "interrupted"
    kept = store.get_messages(session).messages[1:]
    plain = {"role": "assistant", "content": content, "interrupted": True}
    assert kept == ([] if content is None else [plain])
    [finished] = store.get_events(session, types=["turn_finished"])
    assert (finished.data["finish_reason"], finished.data["usage"]) == ("interrupted", {"input_tokens": 5})
    assert store.load_state(session).custom_state == {"at": 14}
    assert store.get_usage(session).input_tokens == 5
    store.retry_run(session)
    assert runner.sweep() == 1
    rest = [("assistant", "one"), ("user", "two"), ("assistant", "two")]
    assert said(store, session)[1 + len(kept) :] == rest
    assert ran == []
    whole(store, session)


def test_an_answer_that_was_ready_when_the_stop_came_is_an_answer(store: SessionStore, session: str) -> None:
    """Its agent did not see the request. The queue waits, and is what a person who asks for a run gets."""

    def answer(turn: TurnContext) -> str:
        assert not turn.interrupted()
        store.set_interrupt_flag(session, "enough")
        return "Hello"

    runner = SessionRunner(ScriptedAgent([answer]))
    for prompt in ("one", "two"):
        store.admit_input(session, prompt, delivery="queue")
    assert runner.wake(session).kind == "interrupted"
    assert store.get_messages(session).messages[1:] == [{"role": "assistant", "content": "Hello"}]
    assert runner.sweep() == 0
    store.retry_run(session)
    assert runner.sweep() == 1
    assert said(store, session)[1:] == [("assistant", "Hello"), ("user", "two"), ("assistant", "two")]
    whole(store, session)
