"""The loop asks before each call of a model what is left of the limits that hold for the session."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from helix_sessions import models
from helix_sessions.runtime import RetryPolicy, SendMessage, SessionRunner, SessionRuntime, Spawn
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from helix_sessions.types import AgentDefinition, TurnOutcome
from tests.limits.conftest import costs, working
from tests.runner.test_statements import counted, warm_up

pytestmark = pytest.mark.django_db(transaction=True)

MIDNIGHT = datetime(2126, 5, 2, 4, tzinfo=UTC)


def events(store: SessionStore, *types: str) -> list[str]:
    return [event.type for event in store.get_events("s", types=types or None)]


def ask(store: SessionStore, prompt: str = "hello", **fields: Any) -> None:
    if not store.session_exists("s"):
        store.create_session("s", agent_type="writer", **fields)
    store.admit_input("s", prompt)


def test_a_run_ends_when_nothing_is_left(
    store: SessionStore, ada: Any, at: Callable[[str], datetime]
) -> None:
    """In the middle of its work: the tools of the turn are executed, the next call of the model is not made,
    and the session goes on by itself when the next window begins."""
    at("2126-05-01T10:00")
    store.set_spend_limit(scope="owner", key=str(ada.pk), window="day", usd=0.5)
    ask(store, owner=ada)
    agent = working(4, 0.3)
    runner = SessionRunner(agent, store=store)
    outcome = runner.run("s")
    assert outcome.kind == "failed"
    assert outcome.error["code"] == "spend_limit"
    assert len(agent.turns) == 2
    state = store.load_state("s")
    assert (state.status, state.runnable_at) == ("paused", MIDNIGHT)
    assert [event.data for event in store.get_events("s", types=["model_called"])][-1]["turn"] == 2
    assert [message["role"] for message in store.get_messages("s").messages][-1] == "tool"
    assert outcome.run is not None
    assert outcome.run.usage["cost"] == pytest.approx(0.6)

    def come() -> None:
        if connection.vendor == "postgresql":  # there the claim goes by the clock of the server
            models.Session.objects.update(runnable_at=MIDNIGHT - timedelta(days=99999))

    assert runner.sweep() == 0
    at("2126-05-01T23:59:59")
    come()
    runner.sweep()
    assert (len(agent.turns), len(store.list_runs("s").items)) == (2, 1)  # the clock here is not there yet
    assert store.load_state("s").runnable_at == MIDNIGHT
    come()
    at("2126-05-02T00:00")
    assert runner.sweep() == 1
    assert len(agent.turns) == 4
    assert store.load_state("s").status == "completed"
    assert events(store, "user_message") == ["user_message"]  # the prompt is there once


def test_inputs_stay_where_they_are(store: SessionStore, ada: Any, at: Callable[[str], datetime]) -> None:
    """A prompt that nothing is left for is not taken; the run that fails has no turn. A person who asks again
    is told again, and the next window is still asked for."""
    at("2126-05-01T10:00")
    limit = store.set_spend_limit(scope="agent_type", key="writer", window="day", tokens=0)
    ask(store, owner=ada)
    agent = ScriptedAgent("hi")
    runner = SessionRunner(agent, store=store)
    for _ in range(2):
        outcome = runner.run("s")
        assert (outcome.kind, outcome.error["code"]) == ("failed", "spend_limit")
        assert agent.turns == []
        assert store.load_state("s").status == "paused"
        assert sum(store.count_inputs("s").values()) == 1
        assert store.load_state("s").runnable_at == MIDNIGHT
    assert events(store, "turn_started") == []
    store.set_spend_limit(scope="agent_type", key="writer", window="day", tokens=100)
    assert store.load_state("s").status == "paused"
    assert runner.run("s").kind == "completed"
    store.delete_spend_limit(limit.limit_id)


def test_when_it_goes_on(store: SessionStore, ada: Any, at: Callable[[str], datetime]) -> None:
    """With the last of the windows that hold it; with none of them if one is for ever."""
    at("2126-05-01T10:00")
    ask(store, owner=ada)
    runner = SessionRunner(working(2, 1), store=store)
    store.set_spend_limit(scope="all", window="day", usd=0)
    runner.run("s")
    assert store.load_state("s").runnable_at == MIDNIGHT
    store.set_spend_limit(scope="owner", key=str(ada.pk), window="month", usd=0)
    runner.run("s")
    assert store.load_state("s").runnable_at == datetime(2126, 6, 1, 4, tzinfo=UTC)
    store.set_spend_limit(scope="agent_type", key="writer", window="total", usd=0)
    runner.run("s")
    state = store.load_state("s")
    assert (state.status, state.runnable_at) == ("paused", None)
    store.admit_input("s", "more")
    assert store.load_state("s").runnable_at is None


def test_who_is_held(store: SessionStore, ada: Any, bob: Any) -> None:
    """The sessions of the owner or the agent type, and none by a limit that is not enabled."""
    store.set_spend_limit(scope="owner", key=str(ada.pk), window="day", usd=0)
    store.set_spend_limit(scope="agent_type", key="slow", window="day", usd=0)
    store.set_spend_limit(scope="all", window="day", usd=0, enabled=False)
    rows = [
        (ada, "writer", "failed"),
        (bob, "writer", "completed"),
        (None, "writer", "completed"),
        (bob, "slow", "failed"),
        (None, "slow", "failed"),
    ]
    for number, (owner, agent_type, kind) in enumerate(rows):
        key = store.create_session(f"s{number}", agent_type=agent_type, owner=owner).session_id
        store.admit_input(key, "hello")
        assert SessionRunner(ScriptedAgent("hi"), store=store).run(key).kind == kind, (owner, agent_type)


def test_what_others_spend_is_seen(store: SessionStore, ada: Any) -> None:
    """Between two turns of a session, and between two attempts of one turn."""
    store.set_spend_limit(scope="owner", key=str(ada.pk), window="total", usd=1)
    store.create_session("other", agent_type="writer", owner=ada)

    def spend(arguments: Any, turn: Any) -> int:
        run = store.create_run("other").run_id
        store.update_run_status("other", run, "completed", usage={"cost": 1})
        return 1

    ask(store, owner=ada)
    agent = ScriptedAgent(costs(0.1, 0, calls("spend")), "done", tools={"spend": spend})
    assert SessionRunner(agent, store=store).run("s").error["code"] == "spend_limit"
    assert len(agent.turns) == 1

    models.SpendTotal.objects.all().delete()
    models.SpendEntry.objects.all().delete()

    def fail(turn: Any) -> TurnOutcome:
        spend(None, None)
        raise TimeoutError

    store.request_run("s")
    agent = ScriptedAgent(fail, "done")
    retry = RetryPolicy(initial=0.01, jitter=0)
    assert SessionRunner(agent, store=store, retry=retry).run("s").error["code"] == "spend_limit"
    assert len(agent.turns) == 1
    assert events(store, "model_call_failed") == ["model_call_failed"]


def test_a_child_fails_and_its_parent_is_held(store: SessionStore, ada: Any) -> None:
    store.set_spend_limit(scope="owner", key=str(ada.pk), window="month", usd=1)
    ask(store, owner=ada)
    first = costs(1, 0, calls("help"))
    parent = ScriptedAgent([first, "done"], tools={"help": lambda arguments, turn: Spawn("helper", "do it")})
    runner = SessionRunner(parent, store=store)
    assert runner.run("s").kind == "suspended_awaiting_children"
    [child] = [ref.sub_session_id for ref in store.list_sub_session_refs("s")]
    assert SessionRunner(ScriptedAgent("hi"), store=store).run(child).error["code"] == "spend_limit"
    assert store.load_state(child).status == "failed"
    assert store.load_state(child).runnable_at is None
    assert runner.run("s").error["code"] == "spend_limit"
    assert store.load_state("s").status == "paused"


def test_an_action_is_held(store: SessionStore) -> None:
    """`SendMessage` says so in its execution; the status of the session is as it was."""
    store.set_spend_limit(scope="agent_type", key="chat", window="day", usd=1)
    runtime = SessionRuntime(store)
    key = runtime.create(AgentDefinition("chat")).session_id
    agent = working(4, 0.6)
    session = runtime.execute(key, SendMessage("hello", agent))
    assert session.state.execution is not None
    assert (session.state.execution.status, session.info.status) == ("failed", "active")
    assert "spend limit" in str(session.state.execution.error)
    assert len(agent.turns) == 2

    def never(session: Any) -> None:
        pytest.fail("It was asked.")

    session = runtime.execute(key, SendMessage("hello", never))
    assert session.state.execution is not None
    assert session.state.execution.status == "failed"
    assert "spend limit" in str(session.state.execution.error)


def test_a_request_to_stop_goes_before(store: SessionStore) -> None:
    store.set_spend_limit(scope="all", window="day", usd=1)
    ask(store)

    def stop(arguments: Any, turn: Any) -> int:
        store.set_interrupt_flag("s")
        return 1

    agent = ScriptedAgent([costs(2, 0, calls("stop"))], tools={"stop": stop})
    assert SessionRunner(agent, store=store).run("s").kind == "interrupted"


@pytest.mark.one_machine("it counts the statements of one server")
@pytest.mark.parametrize("turns", [1, 2, 4])
@pytest.mark.parametrize("limits", [0, 9])
def test_what_it_costs(
    store: SessionStore, ada: Any, engine: str, monkeypatch: pytest.MonkeyPatch, turns: int, limits: int
) -> None:
    """No more statements than a prompt may take, with limits and without."""
    warm_up(store)
    ask(store, owner=ada)
    scopes = (("owner", str(ada.pk)), ("agent_type", "writer"), ("all", None))
    for number in range(limits):
        scope, key = scopes[number % 3]
        window = ("day", "month", "total")[number // 3]
        store.set_spend_limit(scope=scope, key=key, window=window, usd=100, tokens=10**9, warn_at=1)
    runner = SessionRunner(working(turns, 0.1, 10))
    with counted(monkeypatch) as count:
        driver = runner.claim()
        assert driver is not None
        assert runner.drive_claimed(driver).kind == "completed"
    if engine == "postgresql":
        assert len(count.statements) <= 6 + 4 * (turns - 1), "\n".join(sql[:300] for sql in count.statements)
    assert count.commits <= 3 + 3 * (turns - 1)
