"""What describes a session: head, metadata, expiry."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import datetime

from helix_sessions.content import documents
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.session_rows import check_row_version
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.types import JSON, UNSET, SessionHead, Unset


def get_session_head(store: Store, session_id: str) -> SessionHead:
    """What changes about a session with each call, and its owner, without any document."""
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
        _patch(work, patch)
    return int(work.session.version)


def update_session(
    store: Store,
    session_id: str,
    *,
    title: str | Unset | None = UNSET,
    tags: Iterable[str] | Unset = UNSET,
    user_id: str | Unset | None = UNSET,
    metadata: Mapping[str, JSON] | None = None,
    expected_version: int | None = None,
) -> int:
    """Change what describes a session; what is not given stays. The title is the key `title` of the
    metadata, and `metadata` a patch of it, as in `patch_metadata`. Returns the version."""
    patch = dict({} if metadata is None else metadata)
    if not isinstance(title, Unset):
        patch["title"] = None if title is None else inputs.text(title, "title")
    inputs.metadata(patch)
    columns: dict[str, str | None] = {}
    if not isinstance(tags, Unset):
        columns["tags"] = documents.write(inputs.tags(tags))
    if not isinstance(user_id, Unset):
        columns["user_id"] = inputs.optional_identifier(user_id, "user_id")
    with store._write(session_id, expected_version) as work:
        _patch(work, patch)
        changed = {name: value for name, value in columns.items() if getattr(work.session, name) != value}
        if changed:
            work.change(**changed)
            work.event("session_updated", {"fields": list(changed)})
    return int(work.session.version)


def _patch(work: UnitOfWork, patch: Mapping[str, JSON]) -> None:
    if patch:
        merged = {**documents.load(work.session.metadata), **patch}
        kept = {key: value for key, value in merged.items() if key not in patch or value is not None}
        work.change(metadata=documents.dump(kept))
        work.event("metadata_patched", {"keys": list(patch)})


def set_expiry(
    store: Store, session_id: str, expires_at: datetime | None, *, expected_version: int | None = None
) -> int:
    """Set when the session expires, or that it never does; returns the version. Idempotent."""
    moment = inputs.optional_moment(expires_at, "expires_at")
    with store._write(session_id, expected_version) as work:
        before = work.session.expires_at
        if moment != before:
            work.change(expires_at=moment)
            data = {"from": before, "to": moment}
            work.event("expiry_changed", {name: at and at.isoformat() for name, at in data.items()})
    return int(work.session.version)
