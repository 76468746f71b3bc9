"""Who runs sessions without being asked: tasks behind admissions, and the embedded worker."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from helix_sessions.exceptions import NotConfigured, TransientError
from helix_sessions.management.commands.run_sessions import Command
from helix_sessions.runtime import SessionRunner, TurnContext
from helix_sessions.runtime.agents import agent_for, configured_agents
from helix_sessions.runtime.companion import WebhookSender
from helix_sessions.runtime.loop.presence import Presence
from helix_sessions.runtime.loop.worker import Worker
from helix_sessions.runtime.scheduling import drive, sweep
from helix_sessions.runtime.scripted import ScriptedAgent
from helix_sessions.store import SessionStore
from tests.invariants import assert_invariants
from tests.parallel import ROOT, joined_database_environment
from tests.runner.agents import Hanging
from tests.runner.test_activities import said, whole

pytestmark = pytest.mark.django_db(transaction=True)

AGENTS = {"polite": "tests.runner.agents.polite", "noting": "tests.runner.agents.Noting"}


def immediate_backend() -> str:
    """Of Django 6, or of django-tasks before."""
    name = "django.tasks" if find_spec("django.tasks") else "django_tasks"
    return f"{name}.backends.immediate.ImmediateBackend"


@pytest.fixture
def agents(settings: Any) -> None:
    settings.HELIX_SESSIONS = {"AGENTS": AGENTS}


@pytest.fixture
def immediate(settings: Any) -> None:
    pytest.importorskip("helix_sessions.tasks")
    settings.TASKS = {"default": {"BACKEND": immediate_backend()}}


class TestAgents:
    def test_by_type(self, settings: Any) -> None:
        settings.HELIX_SESSIONS = {"AGENTS": {**AGENTS, "*": "tests.runner.agents.Noting"}}
        assert agent_for("polite") is agent_for("polite")
        assert type(agent_for("noting")).__name__ == type(agent_for("anything")).__name__ == "Noting"
        assert set(configured_agents()) == {"polite", "noting", "*"}

    def test_unnamed_types_have_none(self, agents: None) -> None:
        assert agent_for("other") is None

    @pytest.mark.parametrize("path", ["tests.runner.agents.missing", "tests.runner.agents.broken"])
    def test_what_is_no_agent(self, settings: Any, path: str) -> None:
        settings.HELIX_SESSIONS = {"AGENTS": {"x": path}}
        with pytest.raises(NotConfigured):
            agent_for("x")


class TestTasks:
    def test_an_admission_is_run_by_the_task_behind_wake(
        self, store: SessionStore, agents: None, immediate: None
    ) -> None:
        store.create_session("s", agent_type="polite")
        store.admit_input("s", "hello")
        assert said(store, "s") == [("user", "hello"), ("assistant", "hello")]
        store.admit_input("s", "not yet", resume=False)
        assert len(store.list_inputs("s")) == 1

    def test_only_where_an_agent_is_named(self, store: SessionStore, agents: None, immediate: None) -> None:
        store.create_session("s", agent_type="other")
        store.admit_input("s", "hello")
        assert len(store.list_inputs("s")) == 1

    def test_only_where_tasks_are_configured(self, store: SessionStore, agents: None) -> None:
        store.create_session("s", agent_type="polite")
        store.admit_input("s", "hello")
        assert len(store.list_inputs("s")) == 1

    def test_the_tasks_themselves(self, store: SessionStore, agents: None, immediate: None) -> None:
        from helix_sessions import tasks
        from tests.maintenance.test_tasks import done

        store.create_session("s", agent_type="polite")
        assert done(tasks.run_session, session_id="s")["kind"] == "completed"
        assert done(tasks.wake_session, session_id="s")["kind"] == "idle"
        assert done(tasks.wake_session, session_id="gone")["kind"] == "idle"
        store.request_run("s", at=timezone.now() + timedelta(milliseconds=50))
        time.sleep(0.06)
        assert done(tasks.sweep_sessions) == {"swept": 1}


class TestHints:
    """A task says no more than that a session may be due: the row decides."""

    def hint(self, session: str = "s") -> str:
        return drive(session, None, forced=False).kind

    def with_agent(self, store: SessionStore, settings: Any, *script: Any, **more: Any) -> ScriptedAgent:
        agent = ScriptedAgent(*script)
        settings.HELIX_SESSIONS = {"AGENTS": {"support": agent}, "WAKER": None, **more}
        store.create_session("s", agent_type="support")
        return agent

    @pytest.mark.parametrize("policy", ["fail", "leave"])
    def test_it_recovers_as_the_settings_say(self, store: SessionStore, settings: Any, policy: str) -> None:
        agent = self.with_agent(store, settings, "never", RECOVERY={"*": policy})
        store.fenced(store.acquire_lease("s", "dead", 0)).begin_turn("s", message="hello")
        status = {"fail": "failed", "leave": "active"}[policy]
        for _ in range(2):
            self.hint()
            assert store.load_state("s").status == status
        assert not agent.turns
        assert_invariants("s")

    def test_a_second_one_leaves_the_inbox_of_a_failed_session(
        self, store: SessionStore, settings: Any
    ) -> None:
        self.with_agent(store, settings, ValueError("no"))
        for prompt in ("one", "two"):
            store.admit_input("s", prompt, delivery="queue")
        assert [self.hint(), self.hint()] == ["failed", "idle"]
        assert said(store, "s") == [("user", "one")]
        assert (store.load_state("s").status, len(store.list_inputs("s"))) == ("failed", 1)
        whole(store, "s")

    def test_a_second_one_leaves_what_is_only_admitted(self, store: SessionStore, settings: Any) -> None:
        self.with_agent(store, settings)
        store.admit_input("s", "one")
        assert self.hint() == "completed"
        store.admit_input("s", "quiet", resume=False)
        assert self.hint() == "idle"
        assert len(store.list_inputs("s")) == 1
        assert SessionRunner(ScriptedAgent()).wake("s").kind == "completed", "somebody wakes it"

    def test_a_retry_that_was_brought_forward_is_made_once(self, store: SessionStore, settings: Any) -> None:
        self.with_agent(store, settings, TransientError("busy", retry_after=60), "ok", "once more")
        store.admit_input("s", "hello")
        assert [self.hint(), self.hint()] == ["idle", "idle"]
        store.request_run("s")
        assert [self.hint(), self.hint()] == ["completed", "idle"]
        assert sweep(None) == 0
        assert said(store, "s") == [("user", "hello"), ("assistant", "ok")]
        whole(store, "s")

    def test_one_that_comes_while_another_drives(self, store: SessionStore, settings: Any) -> None:
        def meanwhile(turn: TurnContext) -> None:
            store.admit_input("s", "two", delivery="queue")
            assert self.hint() == "idle"
            raise ValueError("no")

        self.with_agent(store, settings, meanwhile)
        store.admit_input("s", "one", delivery="queue")
        assert self.hint() == "failed"
        assert (store.load_state("s").status, len(store.list_inputs("s"))) == ("failed", 1)


class TestWorker:
    def test_it_drains_what_there_is(self, store: SessionStore, agents: None) -> None:
        for number in range(5):
            store.create_session(f"s{number}", agent_type="polite")
            store.admit_input(f"s{number}", "one")
            store.admit_input(f"s{number}", "two", delivery="queue")
        store.create_session("foreign", agent_type="other")
        store.admit_input("foreign", "hello")
        out = StringIO()
        call_command("run_sessions", "--once", "--concurrency", "3", "--poll", "0.05", stdout=out)
        for number in range(5):
            assert [content for role, content in said(store, f"s{number}")] == ["one", "one", "two", "two"]
            whole(store, f"s{number}")
        assert len(store.list_inputs("foreign")) == 1
        assert "'s3' completed" in out.getvalue()
        assert "Driven 5, of which 0 failed." in out.getvalue()

    def test_without_agents(self, settings: Any) -> None:
        settings.HELIX_SESSIONS = {}
        with pytest.raises(CommandError, match="names no agents"):
            call_command("run_sessions")
        settings.HELIX_SESSIONS = {"AGENTS": {"x": "nowhere.at.all"}}
        with pytest.raises(CommandError, match="nowhere"):
            call_command("run_sessions")

    def test_an_idle_worker_costs_less_than_a_statement_a_second(self, agents: None) -> None:
        """All of `run_sessions`: the claim, what else is due, and that it is alive. Nothing else asks."""
        command = Command()
        beside = command.companions({"database": None, "once": False})
        worker = Worker(using="default", concurrency=4, beside=beside)
        presence = Presence(worker)
        rounds: list[tuple[float | None, Callable[[], Any]]] = [
            (worker.poll, worker._claim),
            (worker.lookout.poll, lambda: worker.lookout.step(to_the_end=False)),
            (presence.poll, lambda: presence.step(to_the_end=False)),
        ]
        told = [companion for companion in beside if companion.duty is not None]
        assert {companion.duty for companion in told} == {"webhooks", "alerts", "bulk actions"}
        assert [companion.poll for companion in told] == [None] * 3, "they wait until they are told"
        [counter] = [companion for companion in beside if companion.duty is None]
        rounds.append((counter.poll, lambda: counter.step(to_the_end=False)))
        rate = 0.0
        for seconds, step in rounds:
            assert seconds
            step()
            with CaptureQueriesContext(connection) as captured:
                for _ in range(3):
                    assert not step()
            assert len(captured) == 3, captured.captured_queries
            rate += 1 / seconds
        assert rate < 0.9

    def test_the_lookout_has_done_what_is_due(self, store: SessionStore, agents: None) -> None:
        """And tells those beside it, when they have something to do and not otherwise."""
        told = []

        class Told(WebhookSender):
            def look(self) -> None:
                told.append(self.duty)

        worker = Worker(using="default", concurrency=1, beside=[Told(None)])
        worker.lookout.step(to_the_end=False)
        assert told == []
        store.create_webhook("https://example.com/hook", events=["run.finished"])
        store.create_session("s", agent_type="polite")
        run = store.create_run("s")
        store.update_run_status("s", run.run_id, "completed")
        worker.lookout.step(to_the_end=False)
        assert told == ["webhooks"]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_clean_shutdown(store: SessionStore, tmp_path: Path, number: int) -> None:
    """What runs is finished, what waits is left to others: every prompt is noted once, none is lost."""
    notes = tmp_path / "notes"
    for index in range(8):
        store.create_session(f"s{index}", agent_type="noting", user_id=str(notes))
        for prompt in range(4):
            store.admit_input(f"s{index}", str(prompt), delivery="queue")
    environment = {**os.environ, **joined_database_environment(), "PYTHONUNBUFFERED": "1"}
    environment["DJANGO_SETTINGS_MODULE"] = "tests.runner.settings"
    command = [sys.executable, "manage.py", "run_sessions", "--concurrency", "2", "--poll", "0.05"]
    for attempt in range(20):
        worker = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            deadline = time.monotonic() + 40
            before = len(notes.read_text().splitlines()) if notes.exists() else 0
            while not notes.exists() or len(notes.read_text().splitlines()) <= before:
                assert time.monotonic() < deadline
                assert worker.poll() is None
                time.sleep(0.01)
            if attempt == 0:
                worker.send_signal(number)
            else:
                while any(store.list_inputs(f"s{index}") for index in range(8)):
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
                worker.send_signal(number)
            assert worker.wait(30) == 0
        finally:
            worker.kill()
            worker.wait()
            assert worker.stdout
            worker.stdout.close()
        if not any(store.list_inputs(f"s{index}") for index in range(8)):
            break
    assert sorted(notes.read_text().splitlines()) == [f"s{i} {p}" for i in range(8) for p in range(4)]
    for index in range(8):
        whole(store, f"s{index}")


def until(condition: Callable[[], Any]) -> None:
    """Wait for another process, which may have a busy machine to start on."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_call_that_does_not_come_back_holds_its_session_and_no_shutdown(
    store: SessionStore, tmp_path: Path
) -> None:
    """Plain code without a `turn_timeout`: its lease is renewed for as long as its process is there, and that
    is gone after twice the grace. Then the turn is another's."""
    found = tmp_path / "found"
    store.create_session("s", agent_type="hanging", user_id=str(found))
    store.admit_input("s", "hello")
    environment = {
        **os.environ,
        **joined_database_environment(),
        "DJANGO_SETTINGS_MODULE": "tests.runner.settings",
    }
    options = ["--concurrency", "1", "--poll", "0.05", "--lease", "1", "--grace", "0.1", "-v", "0"]
    worker = subprocess.Popen(
        [sys.executable, "manage.py", "run_sessions", *options], cwd=ROOT, env=environment
    )
    try:
        until(found.exists)
        first = store.get_lease("s")
        assert first is not None
        until(lambda: timezone.now() > first.expires_at)
        assert store.get_occupancy("s").owner is not None, "it was renewed meanwhile"
        store.set_interrupt_flag("s", "enough")  # heard when the call comes back
        assert SessionRunner(Hanging()).sweep() == 0
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    finally:
        worker.kill()
        worker.wait()
    until(store.list_abandoned)
    assert SessionRunner(Hanging()).sweep() == 1
    assert store.load_state("s").status == "interrupted"
    store.retry_run("s")
    assert SessionRunner(Hanging()).sweep() == 1
    assert said(store, "s") == [("user", "hello"), ("assistant", "by another")]
    whole(store, "s")
