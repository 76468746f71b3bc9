"""Django's file storages as this package uses them: by alias, with one folder for each session."""

from hashlib import sha256
from urllib.parse import quote

from django.core.files.storage import InvalidStorageError, Storage, storages

from helix_sessions.exceptions import NotConfigured

_LONGEST_NAME = 80


def storage_named(alias: str) -> Storage:
    """The storage with this alias in `STORAGES`."""
    try:
        return storages[alias]
    except InvalidStorageError as error:
        raise NotConfigured(f"STORAGES has no usable storage {alias!r}: {error}") from error


def folder_of(session_id: str) -> str:
    """The name of a session's folder: readable, the same every time, and no other session's.

    Session ids may contain anything, `../` and different cases of one letter included; names may not.
    """
    readable = quote(session_id, safe="").replace(".", "%2E").replace("%", "_")[:_LONGEST_NAME]
    return f"{readable}-{sha256(session_id.encode()).hexdigest()[:16]}"
