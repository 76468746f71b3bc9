"""What the model is shown at a boundary: where context epochs and compaction meet the runner."""

from collections.abc import Sequence
from typing import Any

from helix_sessions.store import SessionStore
from helix_sessions.types import ModelContext


class Unavailable(Exception):
    """The model cannot be asked now. The drain stops, and the inputs stay pending."""


class Shown:
    """The context sources and the compaction of a runner."""

    def __init__(self, sources: Sequence[Any] = (), compaction: Any = None, summarize: Any = None) -> None:
        self.sources = tuple(sources)
        self.compaction = compaction
        self.summarize = summarize

    def before_promotion(self, store: SessionStore, session_id: str) -> None:
        """At each boundary, before inputs become messages; raises `Unavailable`."""

    def context(self, store: SessionStore, session_id: str) -> ModelContext:
        """What the model sees on this turn."""
        return ModelContext(baseline="", messages=store.get_messages(session_id).messages)

    def after_overflow(self, store: SessionStore, session_id: str, error: Exception) -> bool:
        """The agent raised this before it left anything durable: whether the turn is worth another try."""
        return False
