"""One session with very many tool calls: the last step must cost what the first did."""

import resource
import time
from collections import Counter
from statistics import median
from typing import Any

from helix_sessions.store import SessionStore
from tests.torture.expected import assert_healthy
from tests.torture.lanes import Figures
from tests.torture.stops import Stop

CALLS = 100
"""In a step."""


def campaign(seed: int, stop: Stop) -> Figures:
    """`stop.rounds` tool calls, each answered."""
    store = SessionStore()
    store.create_session("long", agent_type="agent", custom_state={"steps": 0})
    times: list[float] = []
    memory = 0
    while stop.goes_on(len(times) * CALLS):
        if len(times) == 20:
            memory = _memory()
        begun = time.perf_counter()
        _step(store, len(times))
        times.append(time.perf_counter() - begun)
    grown, made = _memory() - memory, len(times) * CALLS
    assert store.get_message_count("long") == len(times) * (CALLS + 1)
    tail = store.get_messages("long", offset=max(0, made - 50), limit=50)
    assert len(tail.messages) == 50
    assert_healthy(store)
    part = max(1, len(times) // 10)
    first, last = median(times[:part]), median(times[-part:])
    return Counter(
        {
            "tool calls in one session": made,
            "microseconds a step, first tenth": round(first * 1e6),
            "microseconds a step, last tenth": round(last * 1e6),
            "percent of that, last tenth": round(100 * last / first),
            "kilobytes of memory grown": grown,
        }
    )


def _step(store: SessionStore, step: int) -> None:
    calls = [{"id": f"{step}-{n}", "name": "look", "arguments": {"n": n}} for n in range(CALLS)]
    answers = [
        {"role": "tool", "tool_call_id": call["id"], "tool_name": "look", "content": "seen"} for call in calls
    ]
    state = store.load_state("long")
    state.custom_state["steps"] = step + 1
    messages: list[dict[str, Any]] = [{"role": "assistant", "content": "", "tool_calls": calls}, *answers]
    store.save_state_and_promote_staging("long", state, messages, {"checkpoint_id": f"c{step}"})


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
