"""The model that histories are checked against, on histories whose verdict is known."""

from typing import Any

from tests.rows import each
from tests.torture.linearizability import Operation
from tests.torture.rows import Input, Row
from tests.torture.sequential import is_possible
from tests.torture.sequential_inbox import LIMIT

NEW = Row(version=1)


def call(process: int, start: int, end: int, name: str, result: Any, **given: Any) -> Operation:
    return Operation(process, start, end, name, given, result)


def commit(process: int, start: int, end: int, number: int, result: Any, **given: Any) -> Operation:
    given = {"n": number, "checkpoint_id": f"c{number}", "version": 1} | given
    return Operation(process, start, end, "save_state_and_promote_staging", given, result)


def acquire(process: int, start: int, end: int, owner: str, result: Any, now: int = 0) -> Operation:
    return call(process, start, end, "acquire_lease", result, owner=owner, ttl=100, now=now)


def admit(
    process: int, start: int, end: int, name: str, result: Any, *, delivery: str = "steer", prompt: str = "go"
) -> Operation:
    given = {"input_id": name, "prompt": prompt, "delivery": delivery}
    return Operation(process, start, end, "admit_input", given, result)


def promote(process: int, start: int, end: int, result: Any, mode: str = "steer", **given: Any) -> Operation:
    return Operation(process, start, end, "promote_inputs", {"mode": mode, **given}, result)


def inbox(*inputs: tuple[str, str]) -> Row:
    """With these ids and deliveries pending, admitted by the first events."""
    admitted = [Input(name, "go", how, how, seq) for seq, (name, how) in enumerate(inputs, 1)]
    return Row(version=1, seq=len(admitted), inputs=tuple(admitted))


LIVE = Row(version=1, fence=1, owner="a", expires_at=100)
FULL = inbox(*[(f"i{number}", "steer") for number in range(LIMIT)])
TAKEN = acquire(1, 0, 5, "b", ("ok", 2, 300), now=200)
STEERS, QUEUED = inbox(("i1", "steer"), ("i2", "steer")), inbox(("i1", "queue"), ("i2", "queue"))
I1, I2 = ("i1", "steer", 1, 3), ("i2", "steer", 2, 4)
Q1 = ("i1", "queue", 1, 3)

POSSIBLE: dict[str, tuple[Row, list[Operation]]] = {
    "one of two owners": (
        NEW,
        [acquire(0, 0, 5, "a", ("ok", 1, 100)), acquire(1, 0, 5, "b", ("LeaseHeld", "a", 100))],
    ),
    "two processes of one owner": (
        NEW,
        [acquire(0, 0, 5, "a", ("ok", 1, 100)), acquire(1, 0, 5, "a", ("ok", 1, 107), now=7)],
    ),
    "a lease that ran out is taken": (LIVE, [TAKEN]),
    "a lease that ran out and nobody took": (LIVE, [commit(0, 0, 5, 1, ("ok", 2, 1), lease=("a", 1))]),
    "a late write beside the one who takes over": (
        LIVE,
        [TAKEN, commit(0, 0, 5, 1, ("ok", 2, 1), lease=("a", 1))],
    ),
    "a late write is refused": (LIVE, [TAKEN, commit(0, 0, 5, 1, "Fenced", lease=("a", 1))]),
    "given back and taken": (
        LIVE,
        [call(0, 0, 5, "release_lease", "ok", lease=("a", 1)), acquire(1, 0, 5, "b", ("ok", 2, 100))],
    ),
    "an admission that is repeated": (NEW, [admit(0, 0, 5, "i", ("i", "steer", 1, None))] * 2),
    "two prompts for one id": (
        NEW,
        [admit(0, 0, 5, "i", ("i", "steer", 1, None)), admit(1, 0, 5, "i", "InputConflict", prompt="no")],
    ),
    "two promotions that share the inputs": (STEERS, [promote(0, 0, 9, (I1,)), promote(1, 0, 9, (I2,))]),
    "an admission between the promotions of one call": (
        STEERS,
        [promote(0, 0, 9, (I1, ("i2", "steer", 2, 5))), admit(1, 0, 9, "i3", ("i3", "steer", 4, None))],
    ),
    "a promotion that passes over what is cancelled": (
        STEERS,
        [call(0, 0, 5, "cancel_input", ("i1", "steer", 1, None), input_id="i1"), promote(1, 0, 5, (I2,))],
    ),
    "one queued input, the oldest": (QUEUED, [promote(0, 0, 1, (Q1,), "queue")]),
    "a promotion under a lease that is lost in time": (
        Row(**{**vars(QUEUED), "owner": "a", "fence": 1, "expires_at": 100}),
        [TAKEN, promote(0, 0, 5, "Fenced", "queue", lease=("a", 1))],
    ),
}

IMPOSSIBLE: dict[str, tuple[Row, list[Operation]]] = {
    "two who read one version and both committed on it": (
        NEW,
        [commit(0, 2, 5, 1, ("ok", 2, 1)), commit(1, 2, 5, 2, ("ok", 2, 1))],
    ),
    "a flag seen twice": (
        NEW,
        [
            call(0, 0, 1, "set_interrupt_flag", 2, reason="r"),
            call(1, 2, 5, "check_interrupt_flag", "r"),
            call(2, 2, 5, "check_interrupt_flag", "r"),
        ],
    ),
    "two accepted answers": (
        Row(version=1, suspended=True),
        [
            call(0, 0, 5, "submit_tool_result", ("accepted", 3), call="t0"),
            call(1, 0, 5, "submit_tool_result", ("accepted", 3), call="t0"),
        ],
    ),
    "an event that is not counted": (
        NEW,
        [
            call(0, 0, 1, "append_messages", (0, 2, 2), count=2),
            call(0, 2, 3, "load_state", (2, 1, "active", 2, (), 0)),
        ],
    ),
    "two owners": (
        NEW,
        [acquire(0, 0, 5, "a", ("ok", 1, 100)), acquire(1, 0, 5, "b", ("ok", 2, 100))],
    ),
    "one fence for two owners": (
        NEW,
        [acquire(0, 0, 5, "a", ("ok", 1, 100)), acquire(1, 0, 5, "b", ("ok", 1, 300), now=200)],
    ),
    "a live lease is taken": (LIVE, [acquire(1, 0, 5, "b", ("ok", 2, 199), now=99)]),
    "a lease that ran out holds others off": (
        LIVE,
        [acquire(1, 0, 5, "b", ("LeaseHeld", "a", 100), now=100)],
    ),
    "a lease longer than asked for": (NEW, [acquire(0, 0, 5, "a", ("ok", 1, 101))]),
    "a write after another took over": (
        LIVE,
        [TAKEN, commit(0, 6, 7, 1, ("ok", 2, 1), lease=("a", 1))],
    ),
    "a write after the lease was given back": (
        LIVE,
        [
            call(0, 0, 1, "release_lease", "ok", lease=("a", 1)),
            call(0, 2, 3, "append_messages", (0, 1, 2), count=1, lease=("a", 1)),
        ],
    ),
    "a refusal while the lease is the newest": (LIVE, [commit(0, 0, 5, 1, "Fenced", lease=("a", 1))]),
    "a lease renewed after another took over": (
        LIVE,
        [TAKEN, call(0, 6, 7, "renew_lease", ("ok", 1, 300), ttl=100, now=200, lease=("a", 1))],
    ),
    "a lease given back twice": (
        LIVE,
        [call(process, 0, 5, "release_lease", "ok", lease=("a", 1)) for process in (0, 1)],
    ),
    "a lease read after it was given back": (
        LIVE,
        [
            call(0, 0, 1, "release_lease", "ok", lease=("a", 1)),
            call(1, 2, 3, "get_lease", ("a", 1, 100)),
        ],
    ),
    "an admission repeated under another number": (
        NEW,
        [admit(0, 0, 5, "i", ("i", "steer", 1, None)), admit(1, 0, 5, "i", ("i", "steer", 2, None))],
    ),
    "one id for two prompts": (
        NEW,
        [
            admit(0, 0, 5, "i", ("i", "steer", 1, None)),
            admit(1, 0, 5, "i", ("i", "steer", 1, None), prompt="no"),
        ],
    ),
    "two inputs under one number": (
        NEW,
        [admit(0, 0, 5, "i1", ("i1", "steer", 1, None)), admit(1, 0, 5, "i2", ("i2", "steer", 1, None))],
    ),
    "one more than there is room for": (FULL, [admit(0, 0, 5, "i", ("i", "steer", LIMIT + 1, None))]),
    "an admission that is not listed": (
        NEW,
        [
            admit(0, 0, 1, "i", ("i", "steer", 1, None)),
            call(1, 2, 3, "list_inputs", (), pending=True),
        ],
    ),
    "one input promoted twice": (
        STEERS,
        [promote(0, 0, 5, (I1, I2)), promote(1, 0, 5, (("i1", "steer", 1, 5),))],
    ),
    "a promotion out of order": (
        STEERS,
        [promote(0, 0, 5, (("i2", "steer", 2, 3), ("i1", "steer", 1, 4)))],
    ),
    "an input that is left behind": (STEERS, [promote(0, 0, 5, (I1,))]),
    "one admitted after the call began, though nothing was before": (
        NEW,
        [promote(0, 0, 1, (("i", "steer", 1, 2),)), admit(1, 2, 3, "i", ("i", "steer", 1, None))],
    ),
    "promoted after it was cancelled": (
        STEERS,
        [
            call(0, 0, 1, "cancel_input", ("i1", "steer", 1, None), input_id="i1"),
            promote(1, 2, 5, (("i1", "steer", 1, 4), ("i2", "steer", 2, 5))),
        ],
    ),
    "cancelled and promoted": (
        STEERS,
        [
            call(0, 0, 5, "cancel_input", ("i1", "steer", 1, None), input_id="i1"),
            promote(1, 0, 5, (I1, I2)),
        ],
    ),
    "two queued inputs at once": (
        QUEUED,
        [promote(0, 0, 5, (Q1, ("i2", "queue", 2, 4)), "queue")],
    ),
    "a queued input that is not the oldest": (QUEUED, [promote(0, 0, 5, (("i2", "queue", 2, 3),), "queue")]),
    "a promotion after another took over": (
        Row(**{**vars(QUEUED), "owner": "a", "fence": 1, "expires_at": 100}),
        [TAKEN, promote(0, 6, 7, (Q1,), "queue", lease=("a", 1))],
    ),
    "a refused promotion of nothing": (
        LIVE,
        [TAKEN, promote(0, 6, 7, "Fenced", "queue", lease=("a", 1))],
    ),
}


@each("name", POSSIBLE)
def test_what_could_have_happened(name: str):
    initial, history = POSSIBLE[name]

    assert is_possible(history, initial)


@each("name", IMPOSSIBLE)
def test_what_could_not(name: str):
    initial, history = IMPOSSIBLE[name]

    assert not is_possible(history, initial)
