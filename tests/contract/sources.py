"""Context sources for tests: they say what they are told to say."""

from typing import Any

from helix_sessions.types import UNAVAILABLE, SessionState


class Said:
    """A source with a value that the test sets."""

    def __init__(self, key: str, value: Any = UNAVAILABLE) -> None:
        self.key = key
        self.value = value
        self.asked: list[SessionState] = []

    def observe(self, session: SessionState) -> Any:
        self.asked.append(session)
        return self.value

    def baseline(self, value: Any) -> str:
        return f"{self.key} is {value}."

    def update(self, old: Any, new: Any) -> str:
        return f"{self.key} was {old} and is {new}."

    def removed(self, old: Any) -> str:
        return f"{self.key} is no longer {old}."
