"""The operations that are timed one call at a time."""

from collections.abc import Iterator, Sequence
from itertools import count

from bench import payload
from bench.contestants.base import Contestant
from bench.measure import Task, Timing, interleave

_numbers = count()
_steps = payload.steps()


def new_session(contestant: Contestant, history: Sequence[payload.Document] = ()) -> str:
    """A session with this history, opened."""
    session_id = f"session-{next(_numbers):08d}"
    contestant.create(session_id)
    if history:
        contestant.fill(session_id, list(history))
    contestant.open(session_id)
    return session_id


class Loop:
    """A contestant's run loop at a length of history: `begin` takes a session, `step` commits to it.

    A short history would not stay short over many rounds, so each round takes a new session.
    """

    def __init__(self, contestant: Contestant, length: int, *, new_each_round: bool) -> None:
        self.contestant = contestant
        self.history = payload.history(length)
        self.new_each_round = new_each_round
        self.session_id = ""

    def begin(self) -> None:
        if self.new_each_round or not self.session_id:
            self.session_id = new_session(self.contestant, self.history)

    def step(self) -> None:
        self.contestant.step(self.session_id, next(_steps))


def time_steps(
    contestants: Sequence[Contestant], length: int, *, rounds: int, repeat: int = 10
) -> dict[str, Timing]:
    """The step commit of each contestant at a length of history."""
    tasks = []
    for contestant in contestants:
        loop = Loop(contestant, length, new_each_round=length <= 1000)
        often = max(1, repeat // 5) if contestant.slow else repeat
        tasks.append(Task(contestant.name, loop.step, loop.begin, often))
    return interleave(tasks, rounds)


def names(contestants: Sequence[Contestant]) -> Iterator[str]:
    return (contestant.name for contestant in contestants)
