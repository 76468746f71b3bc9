"""What the model is shown at a boundary: where context epochs and compaction meet the runner."""

import logging
from collections.abc import Sequence
from typing import Any

from helix_sessions.exceptions import ContextOverflow, ContextUnavailable, Fenced, InvalidInput, NotFound
from helix_sessions.store import SessionStore
from helix_sessions.store.engine import inputs
from helix_sessions.transcripts import open_tool_calls
from helix_sessions.types import CompactionPolicy, ModelContext

_log = logging.getLogger("helix_sessions.runner")


class Unavailable(Exception):
    """The model cannot be asked now. The drain stops, and the inputs stay pending."""


class Shown:
    """The context sources and the compaction of a runner."""

    def __init__(self, sources: Sequence[Any] = (), compaction: Any = None, summarize: Any = None) -> None:
        self.sources = tuple(sources)
        self.compaction: CompactionPolicy | None = None
        if compaction is not None:
            self.compaction = inputs.value_of(CompactionPolicy, compaction, "A compaction policy")
        if summarize is not None and not callable(summarize):
            raise InvalidInput("summarize must be a function of a SummaryRequest.")
        self.summarize = summarize
        if self._compacts and summarize is None:
            _log.warning("A runner has a compaction policy and no summarizer, so it will not compact.")
        self._owed: set[str] = set()
        """Sessions whose model is told of changes when their calls have results."""

    def before_promotion(self, store: SessionStore, session_id: str) -> None:
        """At each boundary, before inputs become messages; raises `Unavailable`."""
        if not self.sources:
            return
        state = store.load_state(session_id)
        if state.pending_client_tool_calls or state.suspended_awaiting_children:
            self._owed.add(session_id)  # nothing may come between a call and its result
        else:
            self._reconcile(store, session_id)

    def context(self, store: SessionStore, session_id: str) -> ModelContext:
        """What the model sees on this turn, compacted first if it is due."""
        shown = store.get_context(session_id)
        if session_id in self._owed and not open_tool_calls(shown.messages):
            self._owed.discard(session_id)
            self._reconcile(store, session_id)
            shown = store.get_context(session_id)
        if self.compaction is None or not self._compacts or not self.compaction.due(shown):
            return shown
        return store.get_context(session_id) if self._compact(store, session_id, "due") else shown

    def after_overflow(self, store: SessionStore, session_id: str, error: Exception) -> bool:
        """The agent raised this before it left anything durable: whether the turn is worth another try."""
        if not isinstance(error, ContextOverflow) or not self._compacts:
            return False
        return self._compact(store, session_id, "overflow")

    @property
    def _compacts(self) -> bool:
        """Whether it compacts by itself."""
        return self.compaction is not None and self.compaction.auto

    def _compact(self, store: SessionStore, session_id: str, reason: str) -> bool:
        """Compact, and render the baseline afresh. A summarizer that fails leaves all as it was."""
        if self.compaction is None or self.summarize is None:
            return False
        try:
            made = store.compact(session_id, self.summarize, self.compaction, reason=reason)
        except (Fenced, NotFound):
            raise
        except Exception as error:
            _log.warning("Session %r could not be compacted.", session_id, exc_info=error)
            return False
        if made is not None and self.sources:
            self._reconcile(store, session_id)
        return made is not None

    def _reconcile(self, store: SessionStore, session_id: str) -> None:
        try:
            store.reconcile_context(session_id, self.sources)
        except ContextUnavailable as error:
            raise Unavailable(str(error)) from error
