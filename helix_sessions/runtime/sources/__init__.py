"""Context sources that come with the app, and those a project names in its settings."""

from helix_sessions.runtime.sources.configured import configured_sources
from helix_sessions.runtime.sources.dates import Today
from helix_sessions.runtime.sources.environment import Environment
from helix_sessions.runtime.sources.files import FileInstructions, GlobFiles
from helix_sessions.runtime.sources.instructions import StoredInstructions
from helix_sessions.runtime.sources.skills import Skills
from helix_sessions.runtime.sources.texts import CalledText, FixedText, SettingText, TextSource
from helix_sessions.runtime.sources.urls import UrlText

__all__ = [
    "CalledText",
    "Environment",
    "FileInstructions",
    "FixedText",
    "GlobFiles",
    "SettingText",
    "Skills",
    "StoredInstructions",
    "TextSource",
    "Today",
    "UrlText",
    "configured_sources",
]
