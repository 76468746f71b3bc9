"""Context sources that come with the app, and those a project names in its settings."""

from helix_sessions.runtime.sources.configured import configured_sources
from helix_sessions.runtime.sources.dates import Today
from helix_sessions.runtime.sources.files import FileInstructions
from helix_sessions.runtime.sources.instructions import StoredInstructions
from helix_sessions.runtime.sources.texts import CalledText, FixedText, SettingText, TextSource

__all__ = [
    "CalledText",
    "FileInstructions",
    "FixedText",
    "SettingText",
    "StoredInstructions",
    "TextSource",
    "Today",
    "configured_sources",
]
