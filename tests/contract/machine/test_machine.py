"""The store against the model, in each of the ways it writes."""

from collections.abc import Iterator

import hypothesis
import pytest
from django.conf import settings as django_settings
from hypothesis import HealthCheck
from hypothesis.stateful import run_state_machine_as_test

from helix_sessions.store.engine.dialect import table_by_table
from helix_sessions.store.state import snapshots
from tests.contract.machine.machine import StoreMachine
from tests.lengths import at_length

pytestmark = pytest.mark.django_db(transaction=True)

ON_POSTGRESQL = "postgresql" in django_settings.DATABASES["default"]["ENGINE"]


def run(examples: int, steps: int, *, seed: int | None = None) -> None:
    machine = type("Machine", (StoreMachine,), {})
    run_state_machine_as_test(
        machine if seed is None else hypothesis.seed(seed)(machine),
        settings=hypothesis.settings(
            max_examples=examples,
            stateful_step_count=steps,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


WAYS = {
    "one statement, whole states": (False, False),
    "one statement, chains of states": (False, True),
    "table by table, whole states": (True, False),
    "table by table, chains of states": (True, True),
}
RUNS = 3
SHORT = [name for name in WAYS if name.startswith("one") == ON_POSTGRESQL]
if ON_POSTGRESQL:
    SHORT.append("table by table, chains of states")


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """How writes are flushed, and whether even small states are kept as chains of writes."""
    portable, chains = WAYS[request.param]
    if chains:
        monkeypatch.setattr(snapshots, "SMALL", 50)
        monkeypatch.setattr(snapshots, "LONGEST_CHAIN", 3)
    with table_by_table(portable):
        yield


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("way", SHORT, indirect=True)
def test_a_short_campaign():
    """The same every time. The first run of a seed is the simplest there is; the second is random, while
    those after it would be variations of it."""
    for seed in range(RUNS):
        run(2, 80, seed=seed)


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("way", WAYS if ON_POSTGRESQL else SHORT, indirect=True)
def test_a_long_campaign():
    run(at_length(40), 80)
