"""What every contestant can do, and how the benchmark finds out what else it can."""

from importlib.util import find_spec
from typing import ClassVar

from bench.payload import Document, Step
from bench.place import Place, Route


class Contestant:
    """One way to store an agent's steps, on a connection and in a database of its own.

    Every contestant has `create`, `fill` and `step`. The other operations are methods that some have:
    `append`, `emit_event`, `compare_and_set`, `load_state`, `latest`, `load_all`, `list_newest`,
    `clone`, `delete`.
    """

    name: ClassVar[str]
    database: ClassVar[str] = ""
    less: ClassVar[str] = ""
    """What its step does not do although ours does."""

    packages: ClassVar[tuple[str, ...]] = ()
    """Modules it needs. Without them it does not take part."""

    lazy: ClassVar[bool] = False
    """Makes a session only with its first message, so there is no creation to measure."""

    slow: ClassVar[bool] = False
    """Measured with fewer repetitions, because its operations take long."""

    def __init__(self, place: Place, through: Route = "direct") -> None:
        raise NotImplementedError

    @classmethod
    def missing(cls) -> list[str]:
        """The modules it needs that are not installed."""
        return [name for name in cls.packages if not _installed(name)]

    @classmethod
    def prepare(cls, place: Place) -> None:
        """Make its tables."""

    def create(self, session_id: str) -> None:
        """Make an empty session."""
        raise NotImplementedError

    def fill(self, session_id: str, messages: list[Document]) -> None:
        """Give a session a history, not measured."""
        raise NotImplementedError

    def open(self, session_id: str) -> None:
        """Read what `step` has to know of the session: a loop does it once, not for each step."""

    def step(self, session_id: str, step: Step) -> None:
        """Commit one step."""
        raise NotImplementedError

    def close(self) -> None:
        """Give the connection back."""


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
