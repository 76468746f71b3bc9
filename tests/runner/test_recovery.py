"""What a dead process left behind: put right by the next owner, nothing executed twice."""

import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.exceptions import NotConfigured
from helix_sessions.models import Session
from helix_sessions.runtime import SessionRunner, ToolResult, TurnContext
from helix_sessions.runtime.loop.lease_keeper import LeaseKeeper, OwnedSession
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from helix_sessions.store.driving import claims
from tests.contract.sources import Said
from tests.contract.suspended import asked, suspended
from tests.parallel import Worker
from tests.runner.test_activities import said, whole

pytestmark = pytest.mark.django_db(transaction=True)

CALL = {"id": "c1", "name": "pay", "arguments": {"amount": 5}}


def die(store: SessionStore, session: str, *, logged: Any = None) -> None:
    """As if a process had died with a tool running, or just after it ended."""
    lease = store.acquire_lease(session, "dead", 0)
    fenced = store.fenced(lease)
    run = fenced.begin_turn(session, message="pay").run
    fenced.append_messages(session, [{"role": "assistant", "content": "", "tool_calls": [CALL]}])
    fenced.emit_event(session, "tool_called", {"tool_call_id": "c1", "tool_name": "pay"})
    writes = [{"op": "set", "path": ["paid"], "value": 5}]
    fenced.stage_changes(session, f"{run.run_id}:1", "c1", writes)
    if logged is not None:
        data = {"tool_call_id": "c1", "tool_name": "pay", "result": logged}
        fenced.emit_event(session, "tool_responded", data)


class TestSweep:
    def test_inputs_without_a_live_lease_are_woken(self, store: SessionStore) -> None:
        for name in ("a", "b", "held", "empty"):
            store.create_session(name, agent_type="writer")
            if name != "empty":
                store.admit_input(name, name)
        store.acquire_lease("b", "dead", 0)
        store.acquire_lease("held", "alive", 60)
        agent = ScriptedAgent()
        assert SessionRunner(agent).sweep() == 2
        assert sorted(turn.session_id for turn in agent.turns) == ["a", "b"]
        assert SessionRunner(agent).sweep() == 0

    def test_of_its_agent_types(self, store: SessionStore) -> None:
        for name in ("a", "b"):
            store.create_session(name, agent_type=name)
            store.admit_input(name, name)
        agent = ScriptedAgent()
        SessionRunner(agent, agent_types=["b"]).sweep()
        assert [turn.session_id for turn in agent.turns] == ["b"]

    def test_a_session_that_waits_for_a_client_is_left(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent([calls("ask")], client_tools=["ask"])
        SessionRunner(agent).run(session)
        store.admit_input(session, "hello")
        assert SessionRunner(agent).sweep() == 0
        store.submit_tool_result(session, "call-1", result=1)
        assert SessionRunner(agent).sweep() == 1
        assert store.list_inputs(session) == []

    def test_a_deadline_that_passed_is_an_answer(self, store: SessionStore, session: str) -> None:
        store.delete_session(session)
        suspended(store, session, asked("a", deadline=timezone.now() + timedelta(seconds=0.05)))
        runner = SessionRunner(ScriptedAgent("too late"))
        time.sleep(0.06)
        assert runner.sweep() == 1
        assert said(store, session)[-1] == ("assistant", "too late")
        whole(store, session)

    def test_an_interrupted_one_is_left_until_something_new_is_admitted(
        self, store: SessionStore, session: str
    ) -> None:
        store.admit_input(session, "old", delivery="queue")
        store.update_status(session, "interrupted")
        runner = SessionRunner(ScriptedAgent())
        assert runner.sweep() == 0
        store.admit_input(session, "new", delivery="queue")
        assert runner.sweep() == 1
        assert store.list_inputs(session) == []

    @pytest.mark.parametrize("policies", [{}, {"*": "wake"}, {"writer": "wake", "*": "fail"}])
    def test_wake_finishes_what_was_begun(
        self, store: SessionStore, session: str, settings: Any, policies: dict[str, str]
    ) -> None:
        settings.HELIX_SESSIONS = {"RECOVERY": policies}
        die(store, session)
        ran: list[Any] = []
        agent = ScriptedAgent(["sorry"], tools={"pay": lambda *a: ran.append(a)})
        assert SessionRunner(agent).sweep() == 1
        assert ran == []
        assert [role for role, _ in said(store, session)] == ["user", "assistant", "tool", "assistant"]
        assert store.get_messages(session).messages[2]["is_error"] is True
        assert [run.status for run in store.list_runs(session).items] == ["completed", "interrupted"]
        assert store.load_state(session).custom_state == {}
        whole(store, session)

    def test_a_result_that_was_logged_is_kept_with_its_writes(
        self, store: SessionStore, session: str
    ) -> None:
        die(store, session, logged="paid")
        SessionRunner(ScriptedAgent(["done"])).sweep()
        assert said(store, session)[2] == ("tool", "paid")
        assert store.load_state(session).custom_state == {"paid": 5}
        assert not store.has_staged_changes(session)
        whole(store, session)

    def test_fail(self, store: SessionStore, session: str, settings: Any) -> None:
        settings.HELIX_SESSIONS = {"RECOVERY": {"writer": "fail"}}
        die(store, session)
        agent = ScriptedAgent()
        assert SessionRunner(agent).sweep() == 1
        state = store.load_state(session)
        assert (state.status, state.failure_reason) == ("failed", "owner_lost")
        assert [run.status for run in store.list_runs(session).items] == ["failed"]
        assert agent.turns == []
        whole(store, session)

    def test_a_run_that_nothing_was_said_in_yet(self, store: SessionStore, session: str) -> None:
        """Somebody asked for it, and that is not forgotten, whatever the transcript ends with."""
        SessionRunner(ScriptedAgent(["first"])).run(session)
        store.fenced(store.acquire_lease(session, "dead", 0)).begin_turn(session)
        agent = ScriptedAgent(["second"])
        assert SessionRunner(agent).sweep() == 1
        assert said(store, session) == [("assistant", "first"), ("assistant", "second")]
        whole(store, session)

    def test_a_run_whose_input_was_not_promoted_yet(self, store: SessionStore, session: str) -> None:
        """A queued input opens its own activity, once, and nothing is asked before it."""
        store.admit_input(session, "hello", delivery="queue")
        store.fenced(store.acquire_lease(session, "dead", 0)).begin_turn(session)
        agent = ScriptedAgent()
        SessionRunner(agent).sweep()
        assert said(store, session) == [("user", "hello"), ("assistant", "hello")]
        assert [run.status for run in store.list_runs(session).items] == ["completed", "interrupted"]

    def test_a_request_to_stop_that_the_owner_did_not_live_to_see(
        self, store: SessionStore, session: str
    ) -> None:
        die(store, session)
        store.admit_input(session, "more", delivery="queue")
        store.set_interrupt_flag(session, "enough")
        agent = ScriptedAgent()
        assert SessionRunner(agent).sweep() == 1
        assert SessionRunner(agent).sweep() == 0
        assert agent.turns == []
        state = store.load_state(session)
        assert (state.status, state.interrupt_context) == ("interrupted", {"reason": "enough"})
        whole(store, session)
        assert SessionRunner(agent).run(session).kind == "completed"
        assert store.list_inputs(session) == []

    def test_whoever_asks_for_a_run_gets_one_all_the_same(self, store: SessionStore, session: str) -> None:
        die(store, session)
        store.set_interrupt_flag(session, "enough")
        assert SessionRunner(ScriptedAgent(["on"])).run(session).kind == "completed"
        assert said(store, session)[-1] == ("assistant", "on")
        whole(store, session)

    def test_a_request_for_the_dead_owner_does_not_stop_the_next(
        self, store: SessionStore, session: str
    ) -> None:
        """However early the keeper of the next owner looks."""
        die(store, session)
        store.set_interrupt_flag(session, "enough")
        driver = claims.claim_session(store, session, "next", 30, forced=True)
        assert driver is not None
        owned = OwnedSession(store=store, session_id=session, lease_ttl=30, lease=driver.lease)
        owned.stale_request = driver.stale_request
        LeaseKeeper()._look([owned])
        assert not owned.stop.is_set()
        store.set_interrupt_flag(session, "and you")
        LeaseKeeper()._look([owned])
        assert owned.stop.is_set()

    def test_the_context_is_told_before_it_goes_on(self, store: SessionStore, session: str) -> None:
        die(store, session)
        source, agent = Said("day"), ScriptedAgent()
        assert SessionRunner(agent, sources=[source]).sweep() == 1
        assert agent.turns == []
        state = store.load_state(session)
        assert (state.status, state.failure_reason) == ("failed", "context_unavailable")
        whole(store, session)
        die(store, session)
        source.value = 1
        SessionRunner(agent, sources=[source]).sweep()
        assert agent.turns[0].context.baseline == "day is 1."
        whole(store, session)

    def test_leave(self, store: SessionStore, session: str, settings: Any) -> None:
        settings.HELIX_SESSIONS = {"RECOVERY": {"*": "leave"}}
        die(store, session)
        store.admit_input(session, "hello")
        before = store.load_state(session)
        assert SessionRunner(ScriptedAgent()).sweep() == 0
        assert store.load_state(session) == replace(before, runnable_at=None)
        assert store.get_current_run(session) is not None

    def test_a_run_without_a_lease_is_left_to_whoever_began_it_for_so_long(
        self, store: SessionStore, session: str, settings: Any
    ) -> None:
        """A run that somebody began over HTTP, and never renewed: it is abandoned, and recovery treats it."""
        for policy, ended in (("wake", "completed"), ("fail", "failed")):
            settings.HELIX_SESSIONS = {"RECOVERY": {"*": policy}}
            store.delete_session(session)
            run = store.begin_turn(session, message="hello").run
            runner = SessionRunner(ScriptedAgent("hi"))
            assert (runner.sweep(), runner.wake(session).kind) == (0, "idle"), "it has the time to begin"
            assert store.get_run(session, run.run_id).status == "running"
            settings.HELIX_SESSIONS = {"RECOVERY": {"*": policy}, "RUN_OWNER_TIMEOUT": 0.001}
            store.append_messages(session, [{"role": "user", "content": "still there?"}])
            before = store.load_state(session)
            assert before.runnable_at is not None
            assert before.runnable_at > timezone.now(), "what was written before says how long"
            Session.objects.update(runnable_at=timezone.now())
            assert runner.sweep() == 1, policy
            assert store.load_state(session).status == ended, policy
            assert store.get_current_run(session) is None
            whole(store, session)

    def test_an_unknown_policy(self, store: SessionStore, session: str, settings: Any) -> None:
        settings.HELIX_SESSIONS = {"RECOVERY": {"*": "pray"}}
        die(store, session)
        with pytest.raises(NotConfigured):
            SessionRunner(ScriptedAgent()).sweep()

    def test_what_had_ended_is_not_begun_again(self, store: SessionStore, session: str) -> None:
        """Dead between the last word and the end of the run."""
        lease = store.acquire_lease(session, "dead", 0)
        store.fenced(lease).begin_turn(session, message="hello")
        store.fenced(lease).append_messages(session, [{"role": "assistant", "content": "bye"}])
        agent = ScriptedAgent()
        assert SessionRunner(agent).sweep() == 1
        assert agent.turns == []
        assert store.get_current_run(session) is None
        assert store.get_lease(session) is None


class TestRunAfterADeath:
    @pytest.mark.parametrize("leased", [True, False])
    def test_an_open_call_is_failed_never_repeated(
        self, store: SessionStore, session: str, leased: bool
    ) -> None:
        if leased:
            die(store, session)
        else:
            store.begin_turn(session, message="pay")
            store.append_messages(session, [{"role": "assistant", "content": "", "tool_calls": [CALL]}])
        ran: list[Any] = []
        agent = ScriptedAgent(["ok"], tools={"pay": lambda *a: ran.append(a)})
        assert SessionRunner(agent).run(session).kind == "completed"
        assert ran == []
        assert store.get_messages(session).messages[2]["is_error"] is True
        whole(store, session)


def note(notes: str, name: str) -> None:
    with Path(notes, name).open("a") as file:
        file.write("ran\n")


def work_and_never_end(session: str, notes: str) -> None:
    """In another process: a fast tool ends, a slow one never does."""

    def fast(arguments: Any, turn: TurnContext) -> ToolResult:
        note(notes, "fast")
        return ToolResult("fast", [{"op": "append", "path": ["done"], "values": ["fast"]}])

    def slow(arguments: Any, turn: TurnContext) -> None:
        note(notes, "slow")
        time.sleep(1000)

    agent = ScriptedAgent([calls("fast", "slow")], tools={"fast": fast, "slow": slow})
    SessionRunner(agent, lease_ttl=1).wake(session)


def test_a_killed_worker_in_mid_turn(store: SessionStore, session: str, tmp_path: Path) -> None:
    """Within the lease time another finishes the session; side effects ran once."""
    store.admit_input(session, "go")
    store.admit_input(session, "then", delivery="queue")
    worker = Worker(work_and_never_end, session, str(tmp_path))
    try:
        worker.wait_until_ready()
        worker.go()
        deadline = time.monotonic() + 40
        while not (store.get_events(session, types=["tool_responded"]) and (tmp_path / "slow").exists()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        worker.kill()
    ran: list[Any] = []
    tools = {"fast": lambda *a: ran.append(a), "slow": lambda *a: ran.append(a)}
    agent = ScriptedAgent(["after the crash"], tools=tools)
    runner = SessionRunner(agent)
    deadline = time.monotonic() + 20
    while not runner.sweep():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert ran == []
    assert (tmp_path / "fast").read_text() == (tmp_path / "slow").read_text() == "ran\n"
    messages = store.get_messages(session).messages
    assert [(m["role"], m.get("is_error")) for m in messages] == [
        ("user", None),
        ("assistant", None),
        ("tool", None),
        ("tool", True),
        ("assistant", None),
        ("user", None),
        ("assistant", None),
    ]
    assert store.load_state(session).custom_state == {"done": ["fast"]}
    assert store.list_inputs(session) == []
    whole(store, session)
