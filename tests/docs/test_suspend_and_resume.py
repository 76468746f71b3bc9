"""The run loop of the page, killed at every turn of it and taken up by other processes."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from helix_sessions.store import SessionStore
from tests.docs.examples import run
from tests.docs.pages import page
from tests.invariants import assert_invariants, assert_valid_transcript
from tests.parallel import Worker
from tests.rows import each

pytestmark = pytest.mark.django_db(transaction=True)

LAST_WORDS = "Done: A train costs 40. {'paid': 40}"


def run_loop() -> dict[str, Any]:
    """What the page's first block defines."""
    name = "how-to/suspend-and-resume.md"
    namespace: dict[str, Any] = {"__name__": "docs"}
    run(page(name).blocks[0], namespace, file=name)
    return namespace


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def take_part(what: str, death: str | None) -> Any:
    """One process: does its part with the page's functions, or dies before or after the call named."""
    loop = run_loop()
    if death is not None:
        when, call = death.split(" ")
        _die_at(loop, when, call)
    store: SessionStore = loop["store"]
    parts: dict[str, Callable[[], Any]] = {
        "begin": lambda: loop["work"](
            "trip", store.begin_turn("trip", message="Book me a train.", agent_type="assistant")
        ),
        "child": lambda: loop["run_child"]("trip/c3"),
        "answer": lambda: [
            store.submit_tool_result("trip", "c1", result="Berlin").outcome,
            store.submit_tool_result("trip", "c2", approved=True).outcome,
        ],
        "go on": lambda: getattr(loop["go_on"]("trip"), "output", None),
        "recover": lambda: recover(store, loop),
    }
    return parts[what]()


def _die_at(loop: dict[str, Any], when: str, call: str) -> None:
    place: Any = loop if call in loop else loop["store"]
    original = loop[call] if call in loop else getattr(place, call)

    def deadly(*args: Any, **kwargs: Any) -> Any:
        if when == "after":
            original(*args, **kwargs)
        die()

    if call in loop:
        loop[call] = deadly
    else:
        setattr(place, call, deadly)


def recover(store: SessionStore, loop: dict[str, Any]) -> Any:
    """As the page says: end what was left running, and resume."""
    for key in ("trip/c3", "trip"):
        if not store.session_exists(key):
            continue
        if store.get_current_run(key) is not None:
            store.update_status(key, "paused")
    return getattr(loop["go_on"]("trip"), "output", None)


def in_another_process(what: str, death: str | None = None) -> Any:
    worker: Worker[Any] = Worker(take_part, what, death)
    try:
        worker.wait_until_ready()
        worker.go()
        if death is None:
            outcome = worker.result()
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        assert worker.ended() == -signal.SIGKILL
        return None
    finally:
        worker.kill()


def test_each_part_in_its_own_process(store: SessionStore):
    assert in_another_process("begin") is None
    assert in_another_process("go on") is None
    assert in_another_process("answer") == ["accepted", "accepted"]
    assert in_another_process("go on") is None
    in_another_process("child")
    assert in_another_process("answer") == ["already_completed", "already_completed"]
    assert in_another_process("go on") == LAST_WORDS
    assert in_another_process("answer") == ["already_completed", "already_completed"]
    assert_valid_transcript("trip")
    assert_invariants("trip")
    assert_invariants("trip/c3")


@each(
    ("part", "death"),
    [
        ("begin", "before think"),
        ("begin", "before suspend"),
        ("begin", "after suspend"),
        ("child", "before think"),
        ("child", "before settle_child"),
        ("child", "after settle_child"),
        ("go on", "after resume"),
        ("go on", "before pay"),
        ("go on", "after pay"),
        ("go on", "before save_state_and_promote_staging"),
        ("go on", "after save_state_and_promote_staging"),
    ],
)
def test_killed(store: SessionStore, part: str, death: str):
    """Whatever dies when: after the recovery the transcript is valid and the agent gets to its end.

    One part is played by a process that dies, the others by this one.
    """
    for what in ("begin", "answer", "child", "go on"):
        if what != part:
            take_part(what, None)
            continue
        in_another_process(what, death)
        take_part("recover", None)
        waits = store.load_state("trip").pending_client_tool_calls
        assert_valid_transcript("trip", waiting=["c1", "c2", "c3"] if waits else ())
        if part == "child" and store.load_state("trip/c3").status != "completed":
            take_part("child", None)
    for _ in range(3):
        state = store.load_state("trip")
        if state.status == "completed":
            break
        pending = state.pending_client_tool_calls or {}
        if any(not entry["submitted_at"] for entry in pending.values()):
            take_part("answer", None)
        if any("status" not in wait for wait in (state.suspended_awaiting_children or {}).values()):
            take_part("child", None)
        take_part("recover", None)
    assert store.load_state("trip").status == "completed"
    assert_valid_transcript("trip")
    assert_invariants("trip")
