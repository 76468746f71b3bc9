"""What a put is about to store."""

from typing import Any

from helix_sessions.integrations.langgraph.memory import Listed, Seen
from helix_sessions.integrations.langgraph.trees import Said
from helix_sessions.types import JSON


class Draft:
    """New messages and notes, and the lists that have the messages."""

    def __init__(self, seen: Seen) -> None:
        self.messages: list[dict[str, JSON]] = []
        self.notes: dict[str, Any] = {}
        self.lists: dict[str, Listed] = {}
        self._first = seen.message_count

    def say(self, message: dict[str, JSON]) -> int:
        """The position that a new message will have."""
        self.messages.append(message)
        return self._first + len(self.messages) - 1

    @property
    def said(self) -> Said:
        return Said(enumerate(self.messages, self._first))
