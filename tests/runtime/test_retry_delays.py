"""How long a failed call is left alone."""

import math
from typing import Any

from helix_sessions.exceptions import TransientError
from helix_sessions.runtime import RetryPolicy, retries
from helix_sessions.runtime.loop.stops import Stopped
from helix_sessions.runtime.tools import ToolCalls
from helix_sessions.values.tools import ToolOptions

PLAIN = RetryPolicy(jitter=0.0)


def test_the_waits_of_a_model_call() -> None:
    busy = TransientError("busy")
    waits: dict[str, tuple[Any, RetryPolicy, list[float | None]]] = {
        "doubled from the first on, and then it was the last": (busy, PLAIN, [1.0, 2.0, 4.0, None, None]),
        "never above the maximum": (
            busy,
            RetryPolicy(jitter=0.0, maximum=3.0, max_attempts=9),
            [1.0, 2.0, 3.0, 3.0],
        ),
        "a timeout is transient": (TimeoutError(), PLAIN, [1.0]),
        "a lost connection too": (ConnectionResetError(), PLAIN, [1.0]),
        "unless others are named": (ConnectionError(), RetryPolicy(retry_on=(ValueError,)), [None]),
        "anything else is not": (ValueError("no"), PLAIN, [None]),
        "unless it is named": (ValueError("no"), RetryPolicy(jitter=0.0, retry_on=(ValueError,)), [1.0]),
        "what the provider asks for": (TransientError("busy", retry_after=90), PLAIN, [90.0, 90.0]),
        "if that is longer": (TransientError("busy", retry_after=0.5), PLAIN, [1.0, 2.0]),
        "for a month at most": (TransientError("busy", retry_after=1e12), PLAIN, [retries.LONGEST_SECONDS]),
        "even if it is no float": (
            TransientError("busy", retry_after=10**400),
            PLAIN,
            [retries.LONGEST_SECONDS],
        ),
        "not for ever": (TransientError("busy", retry_after=math.inf), PLAIN, [1.0, 2.0]),
        "nor for no number": (TransientError("busy", retry_after=math.nan), PLAIN, [1.0, 2.0]),
    }
    for what, (error, policy, expected) in waits.items():
        found = [retries.delay(error, policy, attempt) for attempt in range(1, len(expected) + 1)]
        assert found == expected, what


def test_the_wait_after_thousands_of_attempts() -> None:
    for initial, wait in ((1.0, 60.0), (0.0, 0.0)):
        policy = RetryPolicy(initial=initial, jitter=0.0, max_attempts=10**6)
        assert retries.delay(TransientError("busy"), policy, 99_999) == wait


def test_jitter_spreads_them() -> None:
    found = [retries.delay(TransientError("busy"), RetryPolicy(jitter=0.2), 2) for _ in range(200)]
    assert all(wait is not None and 1.6 <= wait <= 2.4 for wait in found)
    assert len(set(found)) > 1


def test_the_waits_of_a_tool_are_in_place() -> None:
    class Box:
        @staticmethod
        def options(name: str) -> ToolOptions:
            return ToolOptions(retries=9)

    told: list[int] = []
    unused: Any = None
    work = ToolCalls(
        *(Box(), unused),  # type: ignore[arg-type]
        key_of=unused,
        settle=unused,
        log_again=lambda call, attempt, error: told.append(attempt),
        policy=RetryPolicy(initial=1.0, factor=2.0),
    )
    call: Any = {"id": "c", "name": "pay", "arguments": {}}
    waits = []
    for tries in (1, 2, 3, 4, 9, 10):
        work.tried({"c": tries})
        waits.append(work._again(call, ValueError("no")))
    assert waits == [1.0, 2.0, 4.0, 5.0, 5.0, None], "no longer than a driver waits in place"
    assert told == [2, 3, 4, 5, 10]
    work.tried({"c": 1})
    assert work._again(call, TransientError("busy", retry_after=3)) == 3.0
    for odd in ("5", math.nan, math.inf):
        work.tried({"c": 1})
        assert work._again(call, TransientError("busy", retry_after=odd)) == 1.0  # type: ignore[arg-type]
    assert work._again(call, Stopped()) is None, "who is asked to stop begins nothing again"
