"""The sources a project names: `HELIX_SESSIONS["CONTEXT_SOURCES"]`."""

from django.utils.module_loading import import_string

from helix_sessions.conf import conf
from helix_sessions.exceptions import NotConfigured
from helix_sessions.types import ContextSource


def configured_sources() -> list[ContextSource]:
    """Each entry is the dotted path of a class or function that makes a source, or such a path and a dict
    of arguments for it."""
    sources: list[ContextSource] = []
    for entry in conf.CONTEXT_SOURCES:
        path, options = (entry, {}) if isinstance(entry, str) else entry
        try:
            sources.append(import_string(path)(**options))
        except (ImportError, TypeError) as error:
            raise NotConfigured(f"The context source {path!r} cannot be made: {error}") from error
    return sources
