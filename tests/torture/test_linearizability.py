"""The checker of histories, on histories whose verdict is known."""

import random

from tests.rows import each
from tests.torture.linearizability import Operation, is_linearizable, longest_order


def register(state: int, operation: Operation) -> int | None:
    """A register that is read, written, and compared and set."""
    given = operation.arguments
    if operation.call == "write":
        return int(given["value"])
    if operation.call == "read":
        return state if operation.result == state else None
    swaps = state == given["old"]
    if operation.result is not swaps:
        return None
    return int(given["new"]) if swaps else state


def write(process: int, start: int, end: int, value: int) -> Operation:
    return Operation(process, start, end, "write", {"value": value}, None)


def read(process: int, start: int, end: int, result: int) -> Operation:
    return Operation(process, start, end, "read", {}, result)


def swap(process: int, start: int, end: int, old: int, new: int, result: bool) -> Operation:
    return Operation(process, start, end, "cas", {"old": old, "new": new}, result)


POSSIBLE = {
    "nothing": [],
    "a read beside a write sees the old value": [write(0, 0, 10, 1), read(1, 1, 2, 0)],
    "or the new one": [write(0, 0, 10, 1), read(1, 1, 2, 1)],
    "two readers of one write, the later sees it": [
        write(0, 0, 10, 1),
        read(1, 1, 2, 0),
        read(2, 3, 4, 1),
    ],
    "one winner": [swap(0, 0, 5, 0, 1, True), swap(1, 0, 5, 0, 2, False), read(2, 6, 7, 1)],
    "only an order other than that of the starts": [
        write(0, 0, 10, 1),
        write(1, 1, 10, 2),
        read(2, 11, 12, 1),
    ],
}

IMPOSSIBLE = {
    "a stale read": [write(0, 0, 1, 1), read(1, 2, 3, 0)],
    "a value that goes back": [write(0, 0, 10, 1), read(1, 1, 2, 1), read(2, 3, 4, 0)],
    "a value nobody wrote": [write(0, 0, 10, 1), read(1, 1, 2, 7)],
    "two winners": [swap(0, 0, 5, 0, 1, True), swap(1, 0, 5, 0, 2, True)],
    "a lost update": [
        swap(0, 0, 1, 0, 1, True),
        swap(1, 2, 3, 1, 2, True),
        read(0, 4, 5, 1),
    ],
    "readers who disagree about the order of two writes": [
        write(0, 0, 10, 1),
        write(1, 0, 10, 2),
        read(2, 1, 2, 1),
        read(2, 3, 4, 2),
        read(3, 1, 2, 2),
        read(3, 3, 4, 1),
    ],
}


@each("name", POSSIBLE)
def test_what_could_have_happened(name: str):
    assert is_linearizable(POSSIBLE[name], 0, register)


@each("name", IMPOSSIBLE)
def test_what_could_not(name: str):
    assert not is_linearizable(IMPOSSIBLE[name], 0, register)


def test_it_agrees_with_trying_every_order():
    """Small random histories: most of them impossible, some not."""
    choice = random.Random(1)
    verdicts = []
    for _ in range(400):
        history = [_random_operation(choice, process) for process in range(choice.randint(2, 5))]
        verdicts.append(is_linearizable(history, 0, register))
        assert verdicts[-1] == _by_brute_force(history, 0)
    assert True in verdicts
    assert False in verdicts


def test_it_says_how_far_it_came():
    history = [write(0, 0, 1, 1), read(1, 2, 3, 0), read(1, 4, 5, 1)]

    assert longest_order(history, 0, register) == history[:1]


def _random_operation(choice: random.Random, process: int) -> Operation:
    start = choice.randrange(8)
    end = start + choice.randrange(1, 6)
    kind = choice.randrange(3)
    if kind == 0:
        return write(process, start, end, choice.randrange(3))
    if kind == 1:
        return read(process, start, end, choice.randrange(3))
    return swap(process, start, end, choice.randrange(3), choice.randrange(3), choice.random() < 0.5)


def _by_brute_force(pending: list[Operation], state: int) -> bool:
    if not pending:
        return True
    for first in pending:
        if all(first.start <= other.end for other in pending):
            after = register(state, first)
            if after is not None and _by_brute_force([it for it in pending if it is not first], after):
                return True
    return False
