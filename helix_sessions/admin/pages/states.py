"""The state of a session, and what changed between two of its checkpoints."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from helix_sessions.admin import decryption
from helix_sessions.admin.base import stored
from helix_sessions.admin.documents import MASK, Preview, masked, shown
from helix_sessions.content.documents import secret_keys
from helix_sessions.exceptions import CheckpointNotFound, ContentUnreadable, InvalidInput
from helix_sessions.models import Checkpoint, Session
from helix_sessions.store import SessionStore
from helix_sessions.writes import apply_writes, diff

CHECKPOINTS_SHOWN = 100
CHANGES_SHOWN = 200
NOW = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between two states."""

    op: str
    path: str
    before: Preview | None
    after: Preview | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What leads from one state to another."""

    start: str
    end: str
    changes: list[Change]
    is_cut: bool


def checkpoints(session: Session) -> list[dict[str, Any]]:
    """The last checkpoints, without their states."""
    rows = stored(Checkpoint).filter(session_id=session.session_id).newest_first()
    found: Iterable[Any] = rows.values(
        "checkpoint_id", "seq", "step_count", "status", "source", "message_count", "run_id", "created_at"
    )[:CHECKPOINTS_SHOWN]
    return list(found)


def state(store: SessionStore, session: Session) -> Preview:
    """The current custom state."""
    try:
        return shown(store.load_state(session.session_id).custom_state)
    except ContentUnreadable as error:
        return shown(decryption.note(error))


def difference(store: SessionStore, session: Session, start: str, end: str) -> Difference | None:
    """What changed between two checkpoints, or from one until now; `None` if there is no such checkpoint."""
    try:
        before, after = (_state_at(store, session, name) for name in (start, end))
    except (CheckpointNotFound, ContentUnreadable, InvalidInput):
        return None
    writes = diff(before, after)
    changes = []
    for write in writes[:CHANGES_SHOWN]:
        changes.append(_change(before, write))
        before = apply_writes(before, [write])
    return Difference(start=start, end=end, changes=changes, is_cut=len(writes) > CHANGES_SHOWN)


def _state_at(store: SessionStore, session: Session, name: str) -> dict[str, Any]:
    if name == NOW:
        return store.load_state(session.session_id).custom_state
    return store.get_checkpoint(session.session_id, name).state.custom_state


def _change(document: dict[str, Any], write: dict[str, Any]) -> Change:
    path = write["path"]
    is_secret = secret_keys()
    secret = any(isinstance(part, str) and is_secret(part) for part in path)
    is_there, old = _look_up(document, path)
    new = write.get("values", write.get("value"))
    return Change(
        op=write["op"],
        path=".".join(map(str, path)) or ".",
        before=_shown(old, secret) if is_there and write["op"] in ("set", "delete") else None,
        after=None if write["op"] == "delete" else _shown(new, secret),
    )


def _shown(value: Any, secret: bool) -> Preview:
    return shown(MASK if secret else masked(value))


def _look_up(document: Any, path: list[Any]) -> tuple[bool, Any]:
    for part in path:
        if (isinstance(document, dict) and part in document) or (
            isinstance(document, list) and isinstance(part, int) and part < len(document)
        ):
            document = document[part]
        else:
            return False, None
    return True, document
