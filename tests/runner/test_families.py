"""Parents and children on workers that are killed, and workers that are told of new work."""

import statistics
import time
from functools import partial
from pathlib import Path

import pytest
from django.test import override_settings

from helix_sessions.runtime.loop import worker as workers
from helix_sessions.store import SessionStore
from tests.parallel import Worker, wait_until
from tests.runner.families import run_families

pytestmark = pytest.mark.django_db(transaction=True)


def test_every_parent_ends_once(tmp_path: Path) -> None:
    process = Worker(run_families, 7, 6, 3, 2, 3, str(tmp_path))
    try:
        process.wait_until_ready()
        process.go()
        outcome = process.result(200)
    finally:
        process.kill()
    if isinstance(outcome, Exception):
        raise outcome
    assert outcome["noted"] >= 1


def work_off(count: int) -> int:
    """In another process: a worker that looks by itself too seldom for this test, until it drove so many."""
    with override_settings(HELIX_SESSIONS={"AGENTS": {"polite": "tests.runner.agents.polite"}}):
        worker = workers.Worker(using="default", concurrency=2, poll=300, on_outcome=lambda *_: ended())

        def ended() -> None:
            if worker.tally.driven == count:
                worker.stop()

        return worker.work().driven


def is_completed(store: SessionStore, session_id: str) -> bool:
    return store.load_state(session_id).status == "completed"


def test_a_worker_is_told_of_new_work(store: SessionStore, engine: str) -> None:
    if engine != "postgresql":
        pytest.skip("Processes tell each other on PostgreSQL.")
    process = Worker(work_off, 8)
    took = []
    try:
        process.wait_until_ready()
        process.go()
        for number in range(8):
            key = f"s{number}"
            store.create_session(key, agent_type="polite")
            began = time.monotonic()
            store.admit_input(key, "hello")
            wait_until(partial(is_completed, store, key))
            took.append(time.monotonic() - began)
        assert process.result(30) == 8
    finally:
        process.kill()
    assert statistics.median(took) < 1.0, took
