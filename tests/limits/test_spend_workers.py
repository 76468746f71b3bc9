"""With any number of workers a limit is overshot by at most one turn of each session that was running."""

import os
from typing import Any

import pytest

from helix_sessions.runtime import SessionRunner
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from helix_sessions.store.limits import spend_totals
from tests.limits.conftest import costs

pytestmark = pytest.mark.django_db(transaction=True)

WORKERS = 4
LIMIT = 15


def busy() -> ScriptedAgent:
    """An agent that never comes to an end: a dollar a turn."""
    script = [costs(1, 10, calls("tool")) for _ in range(LIMIT * 4)]
    return ScriptedAgent(script, tools={"tool": lambda arguments, turn: 1})


def drive(index: int) -> int:
    """Drive whatever wants to run, and fold in between; how many turns that were."""
    agent = busy()
    runner = SessionRunner(agent)
    while runner.sweep():
        spend_totals.fold("default")
    return len(agent.turns)


def test_the_overshoot(store: SessionStore, ada: Any, run_processes: Any) -> None:
    """The money counted is what the turns cost, too: nothing is lost or counted twice while it is folded."""
    limits = [("owner", str(ada.pk)), ("agent_type", "writer"), ("all", None)]
    for scope, key in limits:
        store.set_spend_limit(scope=scope, key=key, window="total", usd=LIMIT, warn_at=0.5)
    for number in range(WORKERS * 3):
        store.create_session(f"s{number}", agent_type="writer", owner=ada)
        store.admit_input(f"s{number}", "hello")
    turns = run_processes(WORKERS, drive)
    assert all(isinstance(each, int) for each in turns), turns
    assert LIMIT <= sum(turns) <= LIMIT - 1 + WORKERS
    for status in store.spend_status():
        assert (status.used_usd, status.used_tokens) == (sum(turns), 10 * sum(turns))
    states = [store.load_state(f"s{number}") for number in range(WORKERS * 3)]
    assert {(state.status, state.runnable_at) for state in states} == {("paused", None)}
    warnings = [
        event
        for number in range(WORKERS * 3)
        for event in store.get_events(f"s{number}", types=["spend_warning"])
    ]
    assert len(warnings) == len(limits)


def die(index: int) -> None:
    def answered(turn: Any) -> Any:
        os._exit(9)

    SessionRunner(ScriptedAgent(costs(1, 0, calls("tool")), answered), lease_ttl=0.2).run("s")


def test_a_worker_that_dies(store: SessionStore, run_processes: Any) -> None:
    """What was committed is counted once. What a model answered to a process that died before the commit is
    not: nobody knows of it."""
    store.set_spend_limit(scope="all", window="total", usd=2)
    store.create_session("s", agent_type="writer")
    store.admit_input("s", "hello")
    with pytest.raises(RuntimeError, match="ended with code 9"):
        run_processes(1, die)
    assert [each.used_usd for each in store.spend_status()] == [1]
    agent = busy()
    runner = SessionRunner(agent)
    while store.get_lease("s") is not None or store.load_state("s").status == "active":
        runner.sweep()
    assert len(agent.turns) == 1
    assert [each.used_usd for each in store.spend_status()] == [2]
