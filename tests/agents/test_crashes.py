"""Agents of frameworks in real processes that die: others go on, and no tool runs twice."""

# mypy: disable-error-code="arg-type,misc,union-attr"

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from helix_sessions.runtime import SessionRunner
from helix_sessions.runtime.agents import agent_for
from helix_sessions.store import SessionStore
from tests.parallel import ROOT, Worker, joined_database_environment

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _agents(settings: Any) -> None:
    from tests.agents import settings as configured

    settings.HELIX_SESSIONS = configured.HELIX_SESSIONS


def drive(agent_type: str, session: str) -> None:
    """In another process."""
    from django.test import override_settings

    from tests.agents import settings as configured

    with override_settings(HELIX_SESSIONS=configured.HELIX_SESSIONS):
        SessionRunner(agent_for(agent_type), lease_ttl=1).wake(session)


def until(met: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def killed_while(session: str, agent_type: str, met: Callable[[], Any]) -> None:
    """Drive a session in a process, and kill -9 it at that moment."""
    worker = Worker(drive, agent_type, session)
    try:
        worker.wait_until_ready()
        worker.go()
        until(met)
    finally:
        worker.kill()


def swept(agent_type: str) -> None:
    runner = SessionRunner(agent_for(agent_type))
    until(lambda: runner.sweep(), 20)


def lines(notes: Path) -> list[str]:
    return [line.split()[0] for line in notes.read_text().splitlines()] if notes.exists() else []


def approve(store: SessionStore, session: str) -> None:
    for call_id in store.load_state(session).pending_client_tool_calls or ():
        store.submit_tool_result(session, call_id, approved=True)


def test_killed_in_a_tool(store: SessionStore, tmp_path: Path) -> None:
    """The call is not repeated: the model is told that its outcome is unknown."""
    notes = tmp_path / "notes"
    store.create_session("s", agent_type="clerk", user_id=str(notes))
    store.admit_input("s", "hang")
    killed_while("s", "clerk", lambda: "looked" in lines(notes))
    Path(f"{notes}.go").touch()
    swept("clerk")
    assert lines(notes) == ["asked", "looked"]
    messages = store.get_messages("s").messages
    tool = [message for message in messages if message["role"] == "tool"]
    assert {message["tool_call_id"] for message in tool} == {"c-look", "c-refund"}
    assert all(message["is_error"] for message in tool)
    assert messages[-1]["role"] == "assistant"
    assert store.get_current_run("s") is None


def test_killed_while_the_model_is_asked(store: SessionStore, tmp_path: Path) -> None:
    """The turn is repeated, from what was stored; an approval is answered and executed in a third process."""
    notes = tmp_path / "notes"
    store.create_session("s", agent_type="clerk", user_id=str(notes))
    store.admit_input("s", "slow")
    killed_while("s", "clerk", lambda: "asked" in lines(notes))
    Path(f"{notes}.go").touch()
    swept("clerk")
    assert lines(notes) == ["asked", "asked", "looked"]
    assert list(store.load_state("s").pending_client_tool_calls) == ["c-refund"]
    approve(store, "s")
    worker = Worker(drive, "clerk", "s")
    try:
        worker.wait_until_ready()
        worker.go()
        worker.result(60)
    finally:
        worker.kill()
    assert lines(notes) == ["asked", "asked", "looked", "refunded"]
    assert store.get_messages("s").messages[-1]["content"] == "seen and refunded 7"
    assert store.load_state("s").status == "completed"


@contextmanager
def worker_process() -> Iterator[Any]:
    environment = {
        **os.environ,
        **joined_database_environment(),
        "DJANGO_SETTINGS_MODULE": "tests.agents.settings",
    }
    command = [sys.executable, "manage.py", "run_sessions", "--concurrency", "2", "--poll", "0.05"]
    worker = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE)
    try:
        yield worker
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    finally:
        worker.kill()
        worker.wait()
        assert worker.stdout
        worker.stdout.close()


def test_a_worker_of_the_command_drives_it_to_its_end(store: SessionStore, tmp_path: Path) -> None:
    with worker_process():
        for number in range(3):
            notes = str(tmp_path / f"notes-{number}")
            store.create_session(f"s{number}", agent_type="clerk", user_id=notes)
            store.admit_input(f"s{number}", "go")
        for number in range(3):
            session = f"s{number}"
            until(lambda key=session: store.load_state(key).pending_client_tool_calls)
            approve(store, session)
        for number in range(3):
            until(lambda key=f"s{number}": store.load_state(key).status == "completed")
    for number in range(3):
        assert store.get_messages(f"s{number}").messages[-1]["content"] == "seen and refunded 7"
        assert lines(tmp_path / f"notes-{number}") == ["asked", "looked", "refunded"]
