"""Compaction as the settings describe it, for callers who ask for one by hand."""

from typing import cast

from django.utils.module_loading import import_string

from helix_sessions.conf import conf
from helix_sessions.exceptions import InvalidInput, NotConfigured
from helix_sessions.store import SessionStore
from helix_sessions.types import Compaction, CompactionPolicy, Summarize


def configured_policy() -> CompactionPolicy:
    """The policy of `HELIX_SESSIONS["COMPACTION"]`."""
    try:
        return CompactionPolicy(**{"context_window": None, **conf.COMPACTION})
    except (TypeError, InvalidInput) as error:
        raise NotConfigured(f"HELIX_SESSIONS['COMPACTION'] is no compaction policy: {error}") from error


def configured_summarizer() -> Summarize:
    """The function of `HELIX_SESSIONS["SUMMARIZER"]`."""
    if not conf.SUMMARIZER:
        raise NotConfigured("Set HELIX_SESSIONS['SUMMARIZER'] to the function that summarizes messages.")
    try:
        return cast(Summarize, import_string(conf.SUMMARIZER))
    except ImportError as error:
        raise NotConfigured(f"The summarizer cannot be imported: {error}") from error


def compact_by_hand(
    store: SessionStore,
    session_id: str,
    *,
    reason: str = "manual",
    expected_version: int | None = None,
) -> Compaction | None:
    """Compact a session now, whether or not it is due, with the summarizer and policy of the settings."""
    summarize, policy = configured_summarizer(), configured_policy()
    return store.compact(session_id, summarize, policy, reason=reason, expected_version=expected_version)
