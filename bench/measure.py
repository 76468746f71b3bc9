"""Timing contestants in turn, so that what else the machine does hits all of them alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from time import perf_counter


@dataclass
class Task:
    """One contestant at one operation. `before` is called before each round, untimed."""

    name: str
    run: Callable[[], object]
    before: Callable[[], object] = lambda: None
    repeat: int = 10


@dataclass
class Timing:
    """Seconds of every call, round by round."""

    rounds: list[list[float]] = field(default_factory=list)

    @property
    def seconds(self) -> list[float]:
        return [value for values in self.rounds for value in values]

    @property
    def quiet(self) -> float:
        """The first decile: what a call takes when nothing else on the machine gets in its way."""
        seconds = sorted(self.seconds)
        return seconds[len(seconds) // 10]


@dataclass(frozen=True)
class Spread:
    """The median between its quartiles."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        if len(values) < 2:
            return cls(values[0], values[0], values[0])
        low, middle, high = quantiles(values, n=4, method="inclusive")
        return cls(low, middle, high)

    def scaled(self, factor: float) -> "Spread":
        return Spread(self.low * factor, self.middle * factor, self.high * factor)


def p99(values: Sequence[float]) -> float:
    """What one value of a hundred exceeds; of few values nearly the largest, and never more."""
    return values[0] if len(values) < 2 else quantiles(values, n=100, method="inclusive")[98]


def interleave(tasks: Sequence[Task], rounds: int, *, warm_up: int = 1) -> dict[str, Timing]:
    """Run every task in every round: A B C, then B C A, then C A B …; the first rounds are not counted."""
    timings = {task.name: Timing() for task in tasks}
    for number in range(warm_up + rounds):
        shift = number % len(tasks)
        for task in [*tasks[shift:], *tasks[:shift]]:
            task.before()
            measured = [_seconds(task.run) for _ in range(task.repeat)]
            if number >= warm_up:
                timings[task.name].rounds.append(measured)
    return timings


def _seconds(run: Callable[[], object]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def ratio(timing: Timing, base: Timing) -> Spread:
    """How many times as long, round by round against the base's median in the same round."""
    return Spread.of(
        [median(ours) / median(theirs) for ours, theirs in zip(timing.rounds, base.rounds, strict=True)]
    )
