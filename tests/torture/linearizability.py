"""Whether a history of concurrent calls could have happened one call after the other.

Each call must seem to take effect at one moment between its start and its end (Herlihy and Wing). The search
is that of Wing and Gong: take a call that nothing pending ended before, let the sequential model say whether
its result is possible, go on with the rest, step back when stuck. What was tried, a set of calls and the
state after them, is remembered (Lowe), so that nothing is tried twice.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

State = TypeVar("State", bound=Hashable)
Step = Callable[[State, "Operation"], "State | None"]
"""The sequential model: the state after the call, or None if the call cannot have had this result then."""


@dataclass(frozen=True)
class Operation:
    """One call as its caller saw it. Times are of one clock."""

    process: int
    start: int
    end: int
    call: str
    arguments: dict[str, Any]
    result: Any


def longest_order(
    history: Sequence[Operation], initial: State, step: Callable[[State, Operation], State | None]
) -> list[Operation]:
    """The longest order found in which the calls could have happened; of all of them if they could."""
    calls = sorted(history, key=lambda operation: operation.start)
    order: list[int] = []
    best: list[int] = []
    tried: set[tuple[int, State]] = set()
    states, taken = [initial], 0
    choices = [iter(_next(calls, taken))]
    while choices:
        for number in choices[-1]:
            state = step(states[-1], calls[number])
            after = taken | 1 << number
            if state is None or (after, state) in tried:
                continue
            tried.add((after, state))
            order.append(number)
            states.append(state)
            taken = after
            choices.append(iter(_next(calls, taken)))
            break
        else:
            if len(order) > len(best):
                best = order.copy()
            if len(best) == len(calls):
                break
            choices.pop()
            states.pop()
            if order:
                taken ^= 1 << order.pop()
    return [calls[number] for number in best]


def is_linearizable(
    history: Sequence[Operation], initial: State, step: Callable[[State, Operation], State | None]
) -> bool:
    """Whether there is an order for all of them."""
    return len(longest_order(history, initial, step)) == len(history)


def _next(calls: Sequence[Operation], taken: int) -> list[int]:
    """The calls that may come next: no other pending one had ended when they began."""
    pending = [number for number in range(len(calls)) if not taken >> number & 1]
    first_end = min((calls[number].end for number in pending), default=0)
    return [number for number in pending if calls[number].start <= first_end]
