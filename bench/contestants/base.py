"""What every contestant can do, and how the benchmark finds out what else it can."""

from typing import ClassVar

from bench.payload import Document, Step


class Contestant:
    """One way to store an agent's steps, on a connection of its own.

    Every contestant has `create`, `fill` and `step`. The other operations are methods that some have:
    `append`, `emit_event`, `compare_and_set`, `load_state`, `latest`, `load_all`, `list_newest`,
    `clone`, `delete`.
    """

    name: ClassVar[str]
    less: ClassVar[str] = ""
    """What its step does not write although ours does."""

    slow: ClassVar[bool] = False
    """Measured with fewer repetitions, because its operations take long."""

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

    def can(self, operation: str) -> bool:
        """Whether there is such an operation here."""
        return hasattr(self, operation)
