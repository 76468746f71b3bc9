"""A process killed in the middle of its work leaves whole commits, and every one that was acknowledged."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections

from helix_sessions.store import SessionStore
from helix_sessions.types import CheckpointMeta
from tests.concurrency.outcomes import split
from tests.invariants import assert_invariants
from tests.parallel import run_processes

pytestmark = pytest.mark.django_db(transaction=True)

LARGE = "x" * 20_000


def work_until_killed(session_id: str, journal: Path) -> None:
    """Commit step after step; a line of the journal acknowledges each."""
    store = SessionStore()
    acknowledged = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    step = store.load_state(session_id).custom_state["step"]
    if connection.vendor == "postgresql":
        journal.with_suffix(".backend").write_text(str(connection.connection.info.backend_pid))
    while True:
        step += 1
        run = store.get_current_run(session_id) or store.create_run(session_id)
        if step % 2:
            writes = [{"op": "append", "path": ["done"], "values": [step]}]
            store.stage_changes(session_id, f"step {step}", "call", writes)
        commit(store, session_id, step)
        os.write(acknowledged, b"%d\n" % step)
        if step % 3 == 0:
            store.update_run_status(session_id, run.run_id, "completed")
        if step % 4 == 0:
            store.truncate_messages(session_id, store.get_message_count(session_id) - 1)
            store.append_messages(session_id, [message(step)])


def commit(store: SessionStore, session_id: str, step: int) -> None:
    """The commit of a step: odd ones were staged by a tool, even ones are in the state itself."""
    state = store.load_state(session_id)
    done = state.custom_state["done"] + ([] if step % 2 else [step])
    store.save_state_and_promote_staging(
        session_id,
        replace(state, custom_state={**state.custom_state, "step": step, "done": done}, step_count=step),
        [message(step)],
        CheckpointMeta(checkpoint_id=f"commit {step}", step_id=f"step {step}"),
    )


def message(step: int) -> dict[str, Any]:
    return {"role": "assistant", "content": step}


def wait_until_it_is_over(journal: Path) -> None:
    """PostgreSQL ends what a dead client began when it notices that the client is gone."""
    backend = journal.with_suffix(".backend")
    while backend.exists():
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", [int(backend.read_text())])
            if cursor.fetchone()[0] == 0:
                backend.unlink()


def lines(journal: Path) -> list[int]:
    """The steps acknowledged; a line may be cut off by the kill."""
    text = journal.read_text() if journal.exists() else ""
    return [int(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def assert_whole(store: SessionStore, session_id: str, acknowledged: list[int]) -> None:
    assert_invariants(session_id)
    state = store.load_state(session_id)
    step = state.custom_state["step"]
    assert step - len(acknowledged) in (0, 1), (
        "an acknowledged commit is gone, or two were never acknowledged"
    )
    everything = list(range(1, step + 1))
    assert acknowledged == everything[: len(acknowledged)]
    assert state.custom_state["done"] == everything
    transcript = [message["content"] for message in store.get_messages(session_id).messages]
    assert transcript in (everything, everything[:-1])
    for number in everything[-3:]:
        checkpoint = store.get_checkpoint(session_id, f"commit {number}")
        assert checkpoint.state.custom_state["done"] == everything[:number]
        assert checkpoint.message_count == number


def kill_again_and_again(number: int, directory: str, kills: int) -> int:
    """Start a process that works on a session of its own, kill it, look, and take over; `kills` times."""
    store = SessionStore()
    name = f"s{number}"
    journal = Path(directory) / name
    custom = {"blob": LARGE if number % 2 else "", "step": 0, "done": []}
    store.create_session(name, agent_type="agent", custom_state=custom)
    for round_ in range(kills):
        before = len(lines(journal))
        connections.close_all()  # a child must not inherit one
        child = os.fork()
        if child == 0:
            try:
                work_until_killed(name, journal)
            finally:
                os._exit(1)
        while len(lines(journal)) < before + 2:
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "the process died by itself"
        time.sleep(round_ % 10 / 2000)  # so that they do not all die at the same place
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL, "the process died by itself"
        wait_until_it_is_over(journal)
        assert_whole(store, name, lines(journal))
        take_over(store, name, journal)
    return len(lines(journal))


def take_over(store: SessionStore, session_id: str, journal: Path) -> None:
    """Complete what the dead process left undone, from what is stored alone."""
    step = store.load_state(session_id).custom_state["step"]
    if step > len(lines(journal)):
        with journal.open("a") as file:
            file.write(f"{step}\n")
    store.discard_staging(session_id)
    if store.get_message_count(session_id) < step:
        store.append_messages(session_id, [message(step)])
    assert_whole(store, session_id, lines(journal))


@pytest.mark.parametrize("kills", [12, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_kills(tmp_path: Path, kills: int):
    outcomes = run_processes(2, kill_again_and_again, str(tmp_path), kills, timeout=1700)

    steps, errors = split(outcomes, int)
    assert not errors
    assert min(steps) >= 2 * kills
