"""After any schedule of kills, decisions and answers a worker alone brings every session to rest."""

import random
from pathlib import Path

import pytest

from tests.parallel import Worker
from tests.runner.schedules import run_schedules

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("count", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_schedules(count: int, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**9)
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
