"""Wherever a process dies, or a statement fails, a sweep alone brings the session to its end: nothing is
lost, nothing is doubled, and no tool is executed twice."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from django.db import connections

from helix_sessions.runtime import SessionRunner, ToolResult, TurnContext, TurnOutcome
from helix_sessions.store import SessionStore
from helix_sessions.transcripts import calls_in
from tests.invariants import assert_invariants, assert_valid_transcript
from tests.parallel import Worker
from tests.runner.boundaries import Place, Scenario, die_everywhere, fail_everywhere

pytestmark = pytest.mark.django_db(transaction=True)

STOPPED = ("completed", "failed", "interrupted")


class Clerk:
    """Does for each prompt the tools it names, and says so. It knows nothing but the transcript, so that any
    process may go on with it. The ids of its calls come again in every turn."""

    client_tools = ("ask",)
    approval_tools = ("refund",)

    def __init__(self, place: Place) -> None:
        self.place = place
        self.tools = {name: partial(self.work, name) for name in ("pay", "book", "refund")}

    def work(self, tool: str, arguments: Any, turn: TurnContext) -> ToolResult:
        what = f"{arguments['prompt']}: {tool}"
        self.place.note(what)
        return ToolResult(what, [{"op": "append", "path": ["done"], "values": [what]}])

    def run_turn(self, turn: TurnContext) -> TurnOutcome:
        last = turn.context.messages[-1]
        if last["role"] != "user" or last["content"] == "thanks":
            return TurnOutcome("done", output="done", writes=writes("ends"), usage={"turns": 1})
        prompt = last["content"]
        if prompt == "raise":
            raise ValueError(prompt)
        if prompt == "refuse":
            return TurnOutcome("no", error="refused", writes=writes("ends"))
        if prompt == "stop":
            elsewhere(lambda: SessionStore().set_interrupt_flag(turn.session_id, "enough"))
        names = prompt.split(" and ")
        listed = [{"id": name, "name": name, "arguments": {"prompt": prompt}} for name in names]
        said = {"role": "assistant", "content": "", "tool_calls": listed}
        return TurnOutcome(said, writes=writes("begins"), usage={"turns": 1})


def elsewhere(call: Callable[[], Any]) -> None:
    """On a connection of its own, which nothing happens to."""

    def called() -> None:
        call()
        connections.close_all()

    thread = Thread(target=called)
    thread.start()
    thread.join()


def writes(what: str) -> list[Any]:
    return [{"op": "append", "path": [what], "values": [what]}]


def runner(place: Place, **options: Any) -> SessionRunner:
    return SessionRunner(Clerk(place), **options)


def admit(place: Place, *prompts: str, delivery: str = "queue") -> None:
    store = SessionStore()
    store.ensure_session(place.session, agent_type="clerk")
    for prompt in prompts:
        store.admit_input(place.session, prompt, delivery=delivery)


def wake(place: Place) -> None:
    runner(place).wake(place.session)


def sweep(place: Place) -> int:
    return runner(place).sweep()


def check(place: Place, *prompts: str, statuses: tuple[str, ...] = ("completed",)) -> None:
    """The session has ended, or waits for somebody. What its transcript says was done is in its state and in
    the world, once."""
    store = SessionStore()
    assert_invariants(place.session)
    state = store.load_state(place.session)
    pending = state.pending_client_tool_calls or {}
    assert_valid_transcript(place.session, waiting=pending)
    assert store.get_current_run(place.session) is None
    assert state.status in statuses, state.status
    assert state.status in STOPPED or pending or state.suspended_awaiting_children
    assert not store.has_staged_changes(place.session)
    assert store.list_inputs(place.session) == []
    messages = store.get_messages(place.session).messages
    said = Counter(message["content"] for message in messages if message["role"] == "user")
    assert said == Counter(prompts), "a prompt was lost or doubled"
    done = [m["content"] for m in messages if m["role"] == "tool" and not m.get("is_error")]
    assert sorted(state.custom_state.get("done", [])) == sorted(done), (
        "the state is not what the transcript says"
    )
    spoken = [bool(calls_in(message)) for message in messages if message["role"] == "assistant"]
    assert len(state.custom_state.get("begins", [])) == spoken.count(True)
    assert len(state.custom_state.get("ends", [])) == spoken.count(False)
    noted = place.noted()
    assert len(noted) == len(set(noted)), "a tool was executed twice"
    assert set(done) <= set(noted)


def drained(*prompts: str, delivery: str = "queue", **expected: Any) -> Scenario:
    """A session with these prompts is woken."""
    return Scenario(
        prepare=lambda place: admit(place, *prompts, delivery=delivery),
        act=wake,
        sweep=sweep,
        check=lambda place: check(place, *prompts, **expected),
    )


def leave_behind(place: Place) -> None:
    """As a process does that dies with a tool logged and another running, and a third not begun."""
    store = SessionStore()
    admit(place)
    lease = store.acquire_lease(place.session, "dead", 0)
    fenced = store.fenced(lease)
    for number in (1, 2):  # the ids of calls come again
        run = fenced.begin_turn(place.session, message="pay and book" if number == 2 else "pay").run
        step = f"{run.run_id}:1"
        names = ["pay", "book", "later"] if number == 2 else ["pay", "book"]
        listed = [{"id": name, "name": name, "arguments": {}} for name in names]
        fenced.append_messages(
            place.session, [{"role": "assistant", "content": "", "tool_calls": listed}], run_id=run.run_id
        )
        fenced.merge_custom_state(place.session, writes("begins"))
        for name in names[:2]:
            fenced.emit_event(place.session, "tool_called", {"tool_call_id": name, "tool_name": name})
        for name in names[:2]:
            what = f"{number}: {name}"
            place.note(what)
            change = [{"op": "append", "path": ["done"], "values": [what]}]
            fenced.stage_changes(place.session, step, name, change)
            if number == 1 or name == "pay":
                told = {"tool_call_id": name, "tool_name": name, "result": what}
                fenced.emit_event(place.session, "tool_responded", told)
        if number == 1:
            results = [
                {"role": "tool", "tool_call_id": name, "tool_name": name, "content": f"1: {name}"}
                for name in names
            ]
            state = fenced.load_state(place.session)
            fenced.save_state_and_promote_staging(place.session, state, results, {"step_id": step})
            fenced.update_run_status(place.session, run.run_id, "interrupted")


def check_recovered(place: Place, status: str, done: list[str]) -> None:
    check(place, "pay", "pay and book", statuses=(status,))
    state = SessionStore().load_state(place.session)
    assert state.custom_state["done"] == done
    if status == "failed":
        assert state.failure_reason == "owner_lost"
        assert "ends" not in state.custom_state, "a model was asked"


def recovered(policy: str, status: str) -> Scenario:
    return Scenario(
        prepare=leave_behind,
        act=sweep,
        sweep=sweep,
        check=lambda place: check_recovered(place, status, ["1: pay", "1: book", "2: pay"]),
        settings={"RECOVERY": {"clerk": policy}},
    )


def suspend_for_approval(place: Place) -> None:
    """Somebody has approved a call, and there is a prompt that waits: a sweep finds it."""
    admit(place, "refund and pay")
    wake(place)
    SessionStore().submit_tool_result(place.session, "refund", approved=True)
    admit(place, "thanks")


def with_child(place: Place) -> None:
    """A parent that waits for a child, which has something to do."""
    store = SessionStore()
    child = Place(f"{place.session} child", place.notes)
    parent = store.begin_turn(place.session, message="delegate", agent_type="clerk")
    call = {"id": "call", "name": "delegate", "arguments": {}}
    said = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    ref = {"sub_session_id": child.session, "agent_type": "clerk", "parent_tool_call_id": "call"}
    store.create_session(child.session, agent_type="clerk", parent_session_id=place.session)
    store.add_sub_session_refs(place.session, [ref])
    wait = {"parent_tool_call_id": "call", "sub_session_id": child.session, "agent_type": "clerk"}
    state = replace(store.load_state(place.session), custom_state={"begins": ["begins"]})
    store.suspend(
        place.session,
        "awaiting_children",
        state=state,
        run_id=parent.run.run_id,
        append_messages=said,
        awaiting_children=[wait],
    )
    admit(child, "pay")
    store.admit_input(place.session, "thanks", delivery="queue")


def child_of(place: Place) -> Place:
    return Place(f"{place.session} child", place.notes)


def check_settled(place: Place) -> None:
    """The child has ended, its parent knows, and went on with what waited."""
    store = SessionStore()
    check(child_of(place), "pay")
    [ref] = store.get_sub_session_refs(place.session)
    assert ref.status == "completed"
    assert len(store.get_events(place.session, types=["subagent_result"])) == 1
    state = store.load_state(place.session)
    assert not state.suspended_awaiting_children
    assert state.status in STOPPED
    assert store.list_inputs(place.session) == []
    assert_invariants(place.session)


SCENARIOS: dict[str, Scenario] = {
    "recovery, wake": recovered("wake", "completed"),
    "recovery, fail": recovered("fail", "failed"),
    "promotion": drained("pay", "thanks", delivery="steer"),
    "two activities": drained("pay and book", "thanks"),
    "suspension": drained("pay and ask", statuses=("active", "completed")),
    "an agent that raises": drained("raise", statuses=("failed",)),
    "an agent that gives up": drained("refuse", statuses=("failed",)),
    "interruption": drained("stop", statuses=("interrupted",)),
    "the turn limit": replace(
        drained("pay", statuses=("failed", "completed")),
        act=lambda place: runner(place, turn_limit=1).wake(place.session),
    ),
    "approved calls": Scenario(
        prepare=suspend_for_approval,
        act=lambda place: runner(place).run(place.session),
        sweep=sweep,
        check=lambda place: check(place, "refund and pay", "thanks"),
    ),
    "settlement": Scenario(
        prepare=with_child,
        act=lambda place: wake(child_of(place)),
        sweep=sweep,
        check=check_settled,
    ),
}


some_and_all = pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
"""One of three boundaries; `make test-all` has every one."""


def die_in(name: str, directory: str, step: int) -> int:
    return die_everywhere(SCENARIOS[name], directory, step)


@some_and_all
@pytest.mark.parametrize("name", SCENARIOS)
def test_death(name: str, step: int, tmp_path: Path) -> None:
    worker = Worker(die_in, name, str(tmp_path), step)
    try:
        worker.wait_until_ready()
        worker.go()
        outcome = worker.result(200)
    finally:
        worker.kill()
    if isinstance(outcome, Exception):
        raise outcome
    assert outcome >= 2 / step


@some_and_all
@pytest.mark.parametrize("name", SCENARIOS)
def test_failure(name: str, step: int, tmp_path: Path) -> None:
    assert fail_everywhere(SCENARIOS[name], tmp_path, step) >= 3 / step
