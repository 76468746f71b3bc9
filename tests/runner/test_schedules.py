"""After any schedule of kills, decisions and answers a worker alone brings every session to rest."""

import random
from pathlib import Path

import pytest

from helix_sessions.store import SessionStore
from tests.parallel import Worker
from tests.runner.rest import assert_answers_something, assert_at_rest, assert_executed_once
from tests.runner.schedules import run_schedules
from tests.torture.short_forms import patient, run_campaign

pytestmark = pytest.mark.django_db(transaction=True)


def test_schedules(tmp_path: Path) -> None:
    seed, count = random.SystemRandom().randrange(10**9), 4
    worker = Worker(run_schedules, seed, count, str(tmp_path))
    try:
        worker.wait_until_ready()
        worker.go()
        outcome = worker.result(280)
    finally:
        worker.kill()
    if isinstance(outcome, Exception):
        raise AssertionError(f"of the {count} seeds from {seed} on: {outcome}") from outcome
    assert outcome["kills"] >= 0


@pytest.mark.slow
@patient
def test_many_side_by_side(engine: str) -> None:
    figures = run_campaign("schedules", engine, 60, "--lanes", "3")
    assert figures["schedules"] == 60
    assert figures["kills"] > 0


def test_what_they_must_not_come_to_is_seen(store: SessionStore) -> None:
    store.create_session("s", agent_type="clerk")
    assert_at_rest("s", ends=False, whole=True)
    assert_executed_once(["s 1 pay", "s 2 pay"], asks=["refund"])
    for noted in (["s 1 pay"] * 2, ["s 1 refund"]):
        with pytest.raises(AssertionError, match="was executed"):
            assert_executed_once(noted, asks=["refund"])
    with pytest.raises(AssertionError, match="'s' is active"):
        assert_at_rest("s", ends=True, whole=True)
    store.admit_input("s", "hi")
    with pytest.raises(AssertionError, match="'s' is active"):
        assert_at_rest("s", ends=False, whole=True)
    answer = {"role": "assistant", "content": "done"}
    store.append_messages("s", [{"role": "user", "content": "hi"}, answer])
    assert_answers_something("s")
    store.append_messages("s", [answer])
    with pytest.raises(AssertionError, match="the agent answered nothing"):
        assert_answers_something("s")
