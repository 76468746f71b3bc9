"""What the model is shown at a boundary: where context epochs and compaction meet the loop.

The owner of a session knows what it appended. As long as no other process writes, the context is what it was,
with that behind it, and is not read again.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from helix_sessions.content import documents
from helix_sessions.exceptions import ContextOverflow, ContextUnavailable, Fenced, InvalidInput, NotFound
from helix_sessions.messages.tool_ledger import open_tool_calls
from helix_sessions.store import SessionStore
from helix_sessions.store.context.context_reads import ReadContext, of_rows, read_context
from helix_sessions.store.driving.driver import Driver
from helix_sessions.store.engine import inputs
from helix_sessions.types import CompactionPolicy, ModelContext

_log = logging.getLogger("helix_sessions.runner")


class Unavailable(Exception):
    """The model cannot be asked now. The loop stops, and the inputs stay pending."""


class ContextSettings:
    """The context sources and the compaction of a runner."""

    def __init__(self, sources: Sequence[Any] = (), compaction: Any = None, summarize: Any = None) -> None:
        self.sources = tuple(sources)
        self.compaction: CompactionPolicy | None = None
        if compaction is not None:
            self.compaction = inputs.value_of(CompactionPolicy, compaction, "A compaction policy")
        if summarize is not None and not callable(summarize):
            raise InvalidInput("summarize must be a function of a SummaryRequest.")
        self.summarize = summarize
        if self.compacts and summarize is None:
            _log.warning("A runner has a compaction policy and no summarizer, so it will not compact.")

    @property
    def compacts(self) -> bool:
        """Whether it compacts by itself."""
        return self.compaction is not None and self.compaction.auto


class ContextPolicy:
    """The context of one session that is driven."""

    def __init__(self, settings: ContextSettings) -> None:
        self._settings = settings
        self.compaction = settings.compaction
        self._owed = False
        """The model is told of changes when the calls before have results."""
        self._known: ReadContext | None = None

    @property
    def has_sources(self) -> bool:
        return bool(self._settings.sources)

    def prepare(self, driver: Driver) -> None:
        """At each boundary, before inputs become messages; raises `Unavailable`."""
        if not self.has_sources:
            return
        row = driver.known.row
        waits = (row.pending_client_tool_calls, row.suspended_awaiting_children)
        if any(map(documents.has_entries, waits)):
            self._owed = True  # nothing may come between a call and its result
        else:
            self._reconcile(driver)

    def context(self, driver: Driver) -> ModelContext:
        """What the model sees on this turn, compacted first if it is due."""
        shown = self._seen(driver)
        if self._owed and not open_tool_calls(shown.messages):
            self._owed = False
            self._reconcile(driver)
            shown = self._seen(driver)
        if self.compaction is None or not self._settings.compacts or not self.compaction.due(shown):
            return shown
        return self._seen(driver) if self._compact(driver, "due") else shown

    def after_overflow(self, driver: Driver, error: Exception) -> bool:
        """The agent raised this before it left anything durable: whether the turn is worth another try."""
        if not isinstance(error, ContextOverflow) or not self._settings.compacts:
            return False
        return self._compact(driver, "overflow")

    def _seen(self, driver: Driver) -> ModelContext:
        appended, known, model = driver.take_appended(), self._known, _model(driver)
        rows, driver.context_rows = driver.context_rows, None
        if known is None and rows:
            known = of_rows(driver.session_id, rows, None, model)
        if known is None or appended.others_wrote or known.model != model:
            known = read_context(driver.store, driver.session_id, known, model=model)
        elif appended.messages:
            known = known.followed_by(appended.messages, appended.seq)
        self._known = known
        # An agent may change what it is shown; what is known is another copy.
        return replace(known.context, messages=documents.load(documents.write(known.context.messages)))

    def _compact(self, driver: Driver, reason: str) -> bool:
        """Compact, and render the baseline afresh. A summarizer that fails leaves all as it was."""
        if self.compaction is None or self._settings.summarize is None:
            return False
        self._known = None
        try:
            made = _store(driver).compact(
                driver.session_id, self._settings.summarize, self.compaction, reason=reason
            )
        except (Fenced, NotFound):
            raise
        except Exception as error:
            _log.warning("Session %r could not be compacted.", driver.session_id, exc_info=error)
            return False
        if made is not None and self.has_sources:
            self._reconcile(driver)
        return made is not None

    def _reconcile(self, driver: Driver) -> None:
        self._known = None
        try:
            _store(driver).reconcile_context(driver.session_id, self._settings.sources)
        except ContextUnavailable as error:
            raise Unavailable(str(error)) from error


def _store(driver: Driver) -> SessionStore:
    return driver.store  # type: ignore[return-value]


def _model(driver: Driver) -> str | None:
    model = driver.definition.model
    return model if isinstance(model, str) and model else None
