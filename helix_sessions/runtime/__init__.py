"""What drives a session."""

from helix_sessions.runtime.sources import (
    CalledText,
    FileInstructions,
    FixedText,
    SettingText,
    StoredInstructions,
    TextSource,
    Today,
    configured_sources,
)
from helix_sessions.types import (
    UNAVAILABLE,
    CompactionPolicy,
    ContextSource,
    SummaryRequest,
    chars_over_four,
)

__all__ = [
    "UNAVAILABLE",
    "CalledText",
    "CompactionPolicy",
    "ContextSource",
    "FileInstructions",
    "FixedText",
    "SettingText",
    "StoredInstructions",
    "SummaryRequest",
    "TextSource",
    "Today",
    "chars_over_four",
    "configured_sources",
]
