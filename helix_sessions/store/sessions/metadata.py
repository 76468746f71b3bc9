"""What describes a session: head, metadata, expiry."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime

from helix_sessions.content import documents
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.session_rows import check_row_version
from helix_sessions.store.engine.store import Store
from helix_sessions.types import (
    JSON,
    SessionHead,
)


def get_session_head(store: Store, session_id: str) -> SessionHead:
    """What may change about a session with each call, and whose it is, without any document."""
    names = tuple(known.name for known in fields(SessionHead))
    row = store._read(session_id, names)
    return SessionHead(**{name: getattr(row, name) for name in names})


def check_session_version(store: Store, session_id: str, expected_version: int) -> None:
    """Raise `StaleState` unless the session has this version."""
    row = store._read(session_id, ("version", "status"))
    check_row_version(row, inputs.expected_version(expected_version))


def get_metadata(store: Store, session_id: str) -> tuple[dict[str, JSON], int]:
    """The metadata, and the version they are of."""
    row = store._read(session_id, ("metadata", "version"))
    return documents.load(row.metadata), row.version


def patch_metadata(
    store: Store, session_id: str, patch: Mapping[str, JSON], *, expected_version: int | None = None
) -> int:
    """Set top-level keys of the metadata; a `None` value removes the key. Returns the version."""
    inputs.metadata(patch)
    with store._write(session_id, expected_version) as work:
        if patch:
            merged = {**documents.load(work.session.metadata), **patch}
            kept = {key: value for key, value in merged.items() if key not in patch or value is not None}
            work.change(metadata=documents.dump(kept))
            work.event("metadata_patched", {"keys": list(patch)})
    return int(work.session.version)


def set_expiry(
    store: Store, session_id: str, expires_at: datetime | None, *, expected_version: int | None = None
) -> int:
    """Say when the session expires, or that it never does; returns the version. Setting the moment it
    has already changes nothing."""
    moment = inputs.optional_moment(expires_at, "expires_at")
    with store._write(session_id, expected_version) as work:
        before = work.session.expires_at
        if moment != before:
            work.change(expires_at=moment)
            told = {"from": before, "to": moment}
            work.event("expiry_changed", {name: at and at.isoformat() for name, at in told.items()})
    return int(work.session.version)
