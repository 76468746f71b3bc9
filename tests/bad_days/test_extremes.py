"""Very large, very deep, very many, and a clock that goes back."""

import resource
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.exceptions import InvalidDocument
from helix_sessions.store import SessionStore
from tests.concurrency.calls import each_call
from tests.invariants import assert_healthy, assert_invariants, dump
from tests.parallel import run_processes

pytestmark = pytest.mark.django_db(transaction=True)

MEGABYTE = 1024 * 1024


def _large(number: int) -> dict[str, Any]:
    return {"role": "user", "content": [number, "ä\u0000\n" * (10 * MEGABYTE // 8)]}


def write_large_documents(_: int, count: int) -> tuple[int, int]:
    """In a process of its own: its peak of memory after the first round, and after the others."""
    store = SessionStore()
    store.create_session("s", agent_type="agent")
    peaks = []
    for number in range(count):
        message = _large(number)
        state = store.load_state("s")
        state.custom_state["large"] = message["content"]
        store.save_state_and_promote_staging("s", state, [message])
        store.emit_event("s", "note", message)
        del message, state
        [back] = store.get_messages("s", offset=number, limit=1).messages
        assert back == _large(number)
        assert store.load_state("s").custom_state["large"] == back["content"]
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    return peaks[0], peaks[-1]


def test_documents_of_ten_megabytes():
    """They come back equal, and memory does not grow with their number."""
    [peaks] = run_processes(1, write_large_documents, 3)

    assert isinstance(peaks, tuple), peaks
    first, last = peaks
    assert last < 1_000 * MEGABYTE
    assert last - first < 60 * MEGABYTE
    assert_healthy("s")


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_a_thousand_levels(store: SessionStore):
    state = store.create_session("s", agent_type="agent")
    deep = _nested(1_000)
    before = dump()
    calls = [
        lambda: store.append_messages("s", [{"role": "user", "content": deep}]),
        lambda: store.emit_event("s", "note", deep),
        lambda: store.merge_custom_state("s", [{"op": "set", "path": ["a"], "value": deep}]),
        lambda: store.patch_metadata("s", {"a": deep}),
        lambda: store.stage_changes("s", "step", "call", [{"op": "set", "path": ["a"], "value": deep}]),
        lambda: store.create_session("t", agent_type="agent", custom_state={"a": deep}),
        lambda: store.save_state_and_promote_staging("s", state, [{"role": "user", "content": deep}]),
    ]
    for call in calls:
        with pytest.raises(InvalidDocument):
            call()

    assert dump() == before


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[timedelta]:
    """Moves the clock of this process by what the list holds."""
    moved = [timedelta(0)]
    real = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: real() + moved[0])
    return moved


def _updated(store: SessionStore) -> datetime:
    moment = store.load_state("s").updated_at
    assert moment is not None
    return moment


def test_a_clock_that_jumps_back(store: SessionStore, clock: list[timedelta]):
    """Of every call: time within a session does not go back, and nothing is refused or lost."""
    for name, call in each_call(store):
        clock[0] = timedelta(0)
        before = _updated(store)
        clock[0] = timedelta(days=-30)
        call()
        if store.session_exists("s"):
            assert _updated(store) >= before, name
            assert_invariants("s")


def test_many_tool_calls(store: SessionStore):
    """Hundreds of calls a step, answered in the next: what is open stays small."""
    store.create_session("s", agent_type="agent")
    for step in range(5):
        calls = [{"id": f"{step}-{n}", "name": "look", "arguments": {}} for n in range(200)]
        answers = [{"role": "tool", "tool_call_id": call["id"], "content": "seen"} for call in calls]
        messages: list[dict[str, Any]] = [{"role": "assistant", "content": "", "tool_calls": calls}, *answers]
        store.save_state_and_promote_staging("s", store.load_state("s"), messages)

    assert store.get_message_count("s") == 5 * 201
    assert_invariants("s")
