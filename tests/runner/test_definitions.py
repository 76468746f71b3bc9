"""The definition reaches the turn, budgets are held, limits cut, and the log tells the run."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from helix_sessions.agents import ToolOptions, current_turn
from helix_sessions.exceptions import TransientError
from helix_sessions.runtime import (
    AgentDefinition,
    Budget,
    ChangeBudget,
    ChangeModel,
    SessionRunner,
    SessionRuntime,
    TurnContext,
    TurnOutcome,
)
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from tests.rows import each
from tests.runner.test_activities import run_of, said, whole

pytestmark = pytest.mark.django_db(transaction=True)

USED = {"input_tokens": 6, "output_tokens": 4, "cost": 0.5, "cached_tokens": 2}


def created(**fields: Any) -> str:
    definition = AgentDefinition("writer", system_prompt="Be kind.", model="m-1", **fields)
    return SessionRuntime().create(definition, session_id="s").session_id


def test_it_is_as_of_each_turn(store: SessionStore) -> None:
    session = created(metadata={"tier": 1})

    def change(arguments: Any, turn: TurnContext) -> str:
        SessionRuntime().execute(session, ChangeModel("m-2"))
        return "changed"

    agent = ScriptedAgent([calls("change"), "ok"], tools={"change": change})
    assert SessionRunner(agent).run(session).kind == "completed"
    first, second = agent.turns
    assert (first.definition.model, first.definition.system_prompt) == ("m-1", "Be kind.")
    assert first.definition.metadata == {"tier": 1}
    assert second.definition.model == "m-2"
    messages = [m for m in store.get_messages(session).messages if m["role"] == "assistant"]
    assert [message["model"] for message in messages] == ["m-1", "m-2"]
    whole(store, session)


@each(
    ("budget", "turns", "limit"),
    [
        (Budget(max_steps=2), 2, "max_steps"),
        (Budget(max_steps=0), 0, "max_steps"),
        (Budget(max_tokens=25), 3, "max_tokens"),
        (Budget(max_cost=0.9), 2, "max_cost"),
        (Budget(max_seconds=0), 0, "max_seconds"),
    ],
    ids=str,
)
def test_budgets_are_held_between_turns(store: SessionStore, budget: Budget, turns: int, limit: str) -> None:
    session = created(budget=budget)
    agent = ScriptedAgent([TurnOutcome(calls("t"), usage=USED)] * 9, tools={"t": lambda a, t: 1})
    store.admit_input(session, "go")
    store.admit_input(session, "then", delivery="queue")
    outcome = SessionRunner(agent).wake(session)
    assert (outcome.kind, outcome.error["code"]) == ("failed", "budget_exceeded")
    assert limit in outcome.error["message"]
    assert len(agent.turns) == turns
    assert store.load_state(session).status == "paused"
    assert len(store.list_inputs(session)) == (1 if turns else 2)
    assert SessionRunner(agent).sweep() == 0
    whole(store, session)
    store.delete_session(session)


def test_it_goes_on_with_another_budget_and_not_without(store: SessionStore) -> None:
    session = created(budget=Budget(max_tokens=20))
    script = [TurnOutcome(calls("t"), usage=USED)] * 3 + ["done"]
    agent = ScriptedAgent(script, tools={"t": lambda a, t: 1})
    runner = SessionRunner(agent)
    store.admit_input(session, "go")
    store.admit_input(session, "then", delivery="queue")
    assert runner.wake(session).kind == "failed"
    store.request_run(session)
    runner.sweep()
    assert len(agent.turns) == 2
    SessionRuntime().execute(session, ChangeBudget(Budget(max_tokens=1000)))
    store.request_run(session)
    assert runner.sweep() == 1
    assert store.load_state(session).status == "completed"
    assert said(store, session)[-3:] == [("assistant", "done"), ("user", "then"), ("assistant", "then")]


def test_the_activity_after_one_that_went_on_has_its_budget_anew(store: SessionStore) -> None:
    session = created(budget=Budget(max_tokens=20))
    script = [TurnOutcome(calls("t"), usage=USED)] * 2 + ["done"] * 3
    agent = ScriptedAgent(script, tools={"t": lambda a, t: 1})
    runner = SessionRunner(agent)
    store.admit_input(session, "go")
    assert runner.wake(session).error["code"] == "budget_exceeded"
    for prompt in ("then", "and then"):
        store.admit_input(session, prompt, delivery="queue")
    SessionRuntime().execute(session, ChangeBudget(Budget(max_tokens=1000)))
    store.request_run(session)
    assert runner.sweep() == 1
    assert [turn.budget.max_tokens for turn in agent.turns if turn.budget] == [20, 10, 980, 1000, 1000]
    whole(store, session)


def fail(store: SessionStore, session: str) -> None:
    raise ValueError("no")


def be_stopped(store: SessionStore, session: str) -> None:
    store.set_interrupt_flag(session, "enough")
    raise ValueError("stopped")


def be_failed(store: SessionStore, session: str) -> None:
    store.update_status(session, "failed")


def be_interrupted(store: SessionStore, session: str) -> None:
    store.update_status(session, "interrupted")


def be_paused(store: SessionStore, session: str) -> None:
    store.update_status(session, "paused")


ENDS = (fail, be_stopped, be_failed, be_interrupted, be_paused)


@each(("end", "of_agent"), [(end, of_agent) for end in ENDS for of_agent in (False, True)], ids=str)
def test_a_turn_that_is_run_again_goes_on_with_the_budget(
    store: SessionStore, end: Callable[[SessionStore, str], None], of_agent: bool
) -> None:
    """However it ended, and however often; the queue, and what a person says next, have it anew."""
    limits = Budget(max_tokens=100)
    session = created(budget=None if of_agent else limits)

    def ends(turn: TurnContext) -> str:
        end(store, session)
        return "too late"

    thinks = TurnOutcome(calls("t"), usage=USED)
    script = [thinks, ends, thinks, ends, thinks, "done", "queued", thinks, ends, "typed on"]
    agent: Any = ScriptedAgent(script, tools={"t": lambda a, t: 1})
    agent.budget = limits if of_agent else None
    runner = SessionRunner(agent)
    store.admit_input(session, "go")
    runner.wake(session)
    store.admit_input(session, "then", delivery="queue", resume=False)
    for _ in range(2):
        store.retry_run(session)
        runner.wake(session)
    store.admit_input(session, "go")
    runner.wake(session)
    store.admit_input(session, "what I meant is", resume=False)
    store.retry_run(session)
    runner.wake(session)
    left = [turn.budget.max_tokens for turn in agent.turns]
    assert left == [100, 90, 90, 80, 80, 70, 100, 100, 90, 100]
    whole(store, session)


def test_a_turn_that_is_run_again_is_held_by_what_was_used(store: SessionStore) -> None:
    """Also by what was used before it waited, and by sub-agents."""
    session = created(budget=Budget(max_tokens=24))
    thinks = TurnOutcome(calls("t"), usage=USED)
    asks = TurnOutcome(calls("research", prompt="go"), usage=USED)
    agent = ScriptedAgent([asks, ValueError("no"), ValueError("no"), thinks], tools={"t": lambda a, t: 1})
    agent.subagents = {"research": "researcher"}
    child = SessionRunner(ScriptedAgent(TurnOutcome("found", usage=USED)), agent_types=["researcher"])
    runner = SessionRunner(agent, agent_types=["writer"])
    store.admit_input(session, "go")
    assert runner.wake(session).kind == "suspended_awaiting_children"
    assert child.sweep() == 1
    for _ in range(3):
        runner.wake(session)
        store.retry_run(session)
    assert [turn.budget and turn.budget.max_tokens for turn in agent.turns] == [24, 4, 4, 4]
    error = store.load_state(session).error
    assert error["code"] == "budget_exceeded"
    store.request_run(session)
    assert runner.wake(session).error["code"] == "budget_exceeded"
    assert len(agent.turns) == 4
    whole(store, session)


def test_seconds_count_while_the_call_of_the_model_is_tried_again(store: SessionStore) -> None:
    """Not the waits between, in which no process has it; and what was used before counts once."""
    session = created(budget=Budget(max_seconds=1000, max_tokens=100))

    def busy(turn: TurnContext) -> str:
        began = time.monotonic()
        while time.monotonic() < began + 0.05:
            time.sleep(0.01)
        raise TransientError("busy", retry_after=60)

    thinks = TurnOutcome(calls("t"), usage=USED)
    agent = ScriptedAgent([thinks, busy, busy, thinks, "done"], tools={"t": lambda a, t: 1})
    runner = SessionRunner(agent)
    store.admit_input(session, "go")
    for _ in range(3):
        runner.wake(session)
        store.request_run(session)
    left = [turn.budget for turn in agent.turns if turn.budget is not None]
    assert [budget.max_tokens for budget in left] == [100, 90, 90, 90, 80]
    seconds: list[Any] = [budget.max_seconds for budget in left]
    assert seconds[2] <= seconds[1] - 0.05, seconds
    assert seconds[3] <= seconds[2] - 0.05, seconds
    assert seconds[4] > 950, seconds
    whole(store, session)


def test_what_is_left(store: SessionStore) -> None:
    session = created(budget=Budget(max_tokens=100, max_steps=5))
    agent = ScriptedAgent([TurnOutcome(calls("t"), usage=USED), "ok"], tools={"t": lambda a, t: 1})
    SessionRunner(agent).run(session)
    assert [turn.budget.max_tokens for turn in agent.turns if turn.budget] == [100, 90]
    assert [turn.budget.max_steps for turn in agent.turns if turn.budget] == [5, 4]
    SessionRunner(agent).run(session)
    last = agent.turns[-1].budget
    assert last is not None
    assert last.max_tokens == 100, "each activity has it anew"


def test_without_a_budget_nothing_is_limited(store: SessionStore, session: str) -> None:
    agent = ScriptedAgent("ok")
    SessionRunner(agent).run(session)
    assert agent.turns[0].budget == Budget()


def test_usage_of_the_session(store: SessionStore, session: str) -> None:
    agent = ScriptedAgent([TurnOutcome(calls("t"), usage=USED), TurnOutcome("ok", usage=USED)])
    agent.tools = {"t": lambda a, t: 1}
    outcome = SessionRunner(agent).run(session)
    used = store.get_usage(session)
    assert (used.input_tokens, used.output_tokens, used.cache_read_tokens, used.cost) == (12, 8, 4, 1.0)
    assert run_of(outcome).usage["input_tokens"] == 12


def test_the_log_of_a_run(store: SessionStore, session: str) -> None:
    agent = ScriptedAgent([TurnOutcome(calls("t"), usage=USED), "ok"], tools={"t": lambda a, t: 1})
    store.admit_input(session, "go")
    outcome = SessionRunner(agent).wake(session)
    run = run_of(outcome)
    wanted = ("turn_started", "model_called", "turn_finished", "tool_called", "tool_responded")
    told = store.get_events(session, types=list(wanted), run_id=run.run_id)
    assert [event.type for event in told] == [
        *("turn_started", "model_called", "tool_called", "tool_responded", "turn_finished"),
        *("turn_started", "model_called", "turn_finished"),
    ]
    assert [event.turn_id for event in told] == [f"{run.run_id}:1"] * 5 + [f"{run.run_id}:2"] * 3
    finished = [event.data for event in told if event.type == "turn_finished"]
    assert [(data["turn"], data["finish_reason"], data["usage"]) for data in finished] == [
        (1, "tool_calls", USED),
        (2, "stop", None),
    ]
    assert all(data["duration_ms"] >= 0 for data in finished)
    first = store.get_events(session, turn_id=f"{run.run_id}:1")
    assert "assistant_message" in [event.type for event in first]
    ends = store.get_events(session, types=["run_started", "run_finished"])
    assert [event.turn_id for event in ends] == [f"{run.run_id}:1", f"{run.run_id}:2"]


def test_a_run_ends_in_the_turn_that_ended_it(store: SessionStore) -> None:
    """Whether it failed, was stopped while the model was asked, or waits; and without a turn in none."""

    def stop(turn: TurnContext) -> str:
        store.set_interrupt_flag(turn.session_id, "enough")
        return "late"

    def fail(turn: TurnContext) -> str:
        raise ValueError("no")

    again = calls("t")
    for name, script in {
        "failed": [again, fail],
        "interrupted": [again, stop],
        "asks": [again, calls("ask")],
    }.items():
        store.create_session(name, agent_type="a")
        agent = ScriptedAgent(script, tools={"t": lambda a, t: 1})
        agent.client_tools = ("ask",)
        run = run_of(SessionRunner(agent).run(name))
        ends = store.get_events(name, types=["run_started", "run_finished"])
        assert [event.turn_id for event in ends] == [f"{run.run_id}:1", f"{run.run_id}:2"], name


class TestLimits:
    def test_tool_calls(self, store: SessionStore, session: str, settings: Any) -> None:
        settings.HELIX_SESSIONS = {"MAX_TOOL_CALLS_PER_TURN": 2}
        ran: list[Any] = []
        agent = ScriptedAgent([calls("t", "t", "t"), "ok"], tools={"t": lambda *a: ran.append(a)})
        assert SessionRunner(agent).run(session).kind == "completed"
        results = [m for m in store.get_messages(session).messages if m["role"] == "tool"]
        assert (len(ran), [m.get("is_error", False) for m in results]) == (2, [False, False, True])
        whole(store, session)

    @each("keep", [False, True])
    def test_tool_output(self, store: SessionStore, settings: Any, keep: bool) -> None:
        settings.HELIX_SESSIONS = {"MAX_TOOL_OUTPUT": 100}
        session = f"s{keep}"
        store.create_session(session, agent_type="writer")
        long = "a" * 500 + "z" * 500
        options = {"t": ToolOptions(keep_output=keep)}
        agent = ScriptedAgent(calls("t"), "ok", tools={"t": lambda a, t: long}, tool_options=options)
        SessionRunner(agent).run(session)
        [stored] = [m["content"] for m in store.get_messages(session).messages if m["role"] == "tool"]
        shown = agent.turns[1].context.messages[-1]["content"]
        assert (stored == long) is keep
        assert len(shown) < 300
        assert shown.startswith("a" * 10)
        assert shown.endswith("z" * 10)
        assert "1,000 bytes" in shown

    def test_steers(self, store: SessionStore, session: str, settings: Any) -> None:
        settings.HELIX_SESSIONS = {"MAX_STEERS_PER_TURN": 2}
        for number in range(5):
            store.admit_input(session, str(number))
        agent = ScriptedAgent()
        assert SessionRunner(agent).wake(session).kind == "completed"
        seen = [[m["content"] for m in turn.context.messages if m["role"] == "user"] for turn in agent.turns]
        assert [len(messages) for messages in seen] == [2, 4, 5]
        whole(store, session)


def test_the_current_turn(store: SessionStore, session: str) -> None:
    found: list[Any] = []

    async def tool(arguments: Any, turn: TurnContext) -> None:
        found.append(current_turn().session_id)

    def look(turn: TurnContext) -> Any:
        found.append(current_turn() is turn)
        return calls("t", "t")

    SessionRunner(ScriptedAgent([look, "ok"], tools={"t": tool})).run(session)
    assert found == [True, session, session]
    with pytest.raises(LookupError):
        current_turn()


def test_an_agent_that_changes_what_it_is_shown(store: SessionStore, session: str) -> None:
    """It changes its own copy."""

    def spoil(turn: TurnContext) -> Any:
        for message in turn.context.messages:
            message["content"] = "spoilt"
        return calls("t")

    store.admit_input(session, "hello")
    agent = ScriptedAgent([spoil, "ok"], tools={"t": lambda a, t: 1})
    SessionRunner(agent).wake(session)
    assert agent.turns[1].context.messages[0]["content"] == "hello"
    assert agent.turns[1].context.messages == store.get_context(session).messages[:-1]
