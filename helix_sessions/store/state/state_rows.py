"""`SessionState` and its two stored forms: the session's row, and the frame of a checkpoint."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any, TypeAlias

from django.db import models

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidDocument, InvalidInput
from helix_sessions.models import Session
from helix_sessions.models.fields import DocumentField, IdField
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.session_columns import (
    MAPS,
    SAVED_COLUMNS,
    STATE_COLUMNS,
    is_document,
    is_time,
)
from helix_sessions.store.engine.session_rows import SessionRow
from helix_sessions.store.engine.tables import table
from helix_sessions.store.state import child_waits, pending_calls
from helix_sessions.types import SESSION_STATUSES, SessionState

_IN_CHECKPOINT = ("status", "step_count", "message_count")
"""Fields that the checkpoint has as columns of its own."""
_NOT_IN_FRAME = (
    *("session_id", "owner_id", "checkpoint_id", "checkpointed_at", "checkpoint_source"),
    *_IN_CHECKPOINT,
)
_IN_FRAME = tuple(name for name in STATE_COLUMNS if name not in _NOT_IN_FRAME)
_TEXTS = tuple(name for name in _IN_FRAME if is_document(name))
_TIMES = tuple(name for name in _IN_FRAME if is_time(name))
_SCALARS = tuple(name for name in _IN_FRAME if name not in (*_TEXTS, *_TIMES))

Check: TypeAlias = Callable[[Any, str], Any]

_OWN_CHECKS: dict[str, Check] = {
    "status": lambda value, _: inputs.choice(value, SESSION_STATUSES, "The status"),
    "tags": lambda value, _: documents.write(inputs.tags(value)),
    "metadata": lambda value, _: inputs.metadata(value),
}
"""Columns that take only some values of their type."""

_FOLLOWED: dict[str, Callable[[Any], dict[str, Any]]] = {
    "error": inputs.error_columns,
    "pending_client_tool_calls": pending_calls.columns,
    "suspended_awaiting_children": child_waits.columns,
}
"""Columns that other columns are derived from."""


def _check_of(name: str) -> Check:
    """The check of a value that a caller saves in a column. It follows from the type of the column."""
    field = table(Session).fields[name]
    if name in _OWN_CHECKS:
        return _OWN_CHECKS[name]
    if name in MAPS:
        return inputs.mapping
    return next(check for kind, check in _CHECKS.items() if isinstance(field, kind))


_CHECKS: dict[type["models.Field[Any, Any]"], Check] = {
    DocumentField: lambda value, _: documents.dump(value),
    models.DateTimeField: inputs.moment,
    models.BooleanField: inputs.flag,
    models.IntegerField: inputs.integer,
    IdField: inputs.identifier,
    models.TextField: inputs.text,
}


_SAVED = [
    (name, table(Session).fields[name].null, _check_of(name))
    for name in SAVED_COLUMNS
    if name not in _FOLLOWED
]
"""The columns that a save writes, whether they may be null, and how their values are checked."""
_saved_values = attrgetter(*(name for name, _, _ in _SAVED))


def owned_columns(state: SessionState) -> dict[str, Any]:
    """The columns of the session's row that a save writes, checked."""
    if not isinstance(state, SessionState):
        raise InvalidInput(f"A state must be a SessionState, not {type(state).__name__}.")
    columns: dict[str, Any] = {}
    for (name, may_be_null, check), value in zip(_SAVED, _saved_values(state), strict=True):
        columns[name] = None if value is None and may_be_null else check(value, name)
    for name, follow in _FOLLOWED.items():
        columns.update(follow(getattr(state, name)))
    return columns


def custom_state(state: SessionState) -> str:
    """The text of the agent's own document."""
    if not isinstance(state.custom_state, dict):
        raise InvalidDocument("custom_state must be an object.")
    return documents.dump(state.custom_state)


def state_of(row: SessionRow, custom: dict[str, Any]) -> SessionState:
    """The state of a session's row, which was read with all columns."""
    values: dict[str, Any] = {name: getattr(row, name) for name in STATE_COLUMNS}
    for name in _TEXTS:
        text = values[name]
        values[name] = None if text is None else documents.load(text)
    values["tags"] = tuple(values["tags"])
    return SessionState(
        custom_state=custom,
        forked_from=_forked_from(row.forked_from_session_id, row.forked_from_checkpoint_id),
        **values,
    )


def frame_of(row: SessionRow, *, version: int, now: datetime) -> str:
    """The text of a checkpoint's frame: the row as this write leaves it, without nulls."""
    columns = vars(row)
    values = {name: value for name in _SCALARS if (value := columns[name]) is not None}
    values.update({name: at.isoformat() for name in _TIMES if (at := columns[name]) is not None})
    values.update(version=version, updated_at=now.isoformat())
    if row.forked_from_session_id is not None:
        values["forked_from"] = [row.forked_from_session_id, row.forked_from_checkpoint_id]
    if row.owner_id is not None:
        values["owner_id"] = row.owner_id if isinstance(row.owner_id, int) else str(row.owner_id)
    # The documents are text already: they are joined in, not parsed and written again.
    texts = [f'"{name}":{text}' for name in _TEXTS if (text := getattr(row, name)) is not None]
    return f"{documents.write(values)[:-1]},{','.join(texts)}}}"


def state_of_frame(
    frame: Mapping[str, Any],
    *,
    session_id: str,
    custom: dict[str, Any],
    checkpoint_id: str,
    created_at: datetime,
    source: Any,
    **columns: Any,
) -> SessionState:
    """The state of a checkpoint; `columns` are those of `_IN_CHECKPOINT`."""
    # Only what is known: a process of the next version may have written the frame.
    values = {name: frame[name] for name in _IN_FRAME if name in frame}
    for name in _TIMES:
        if name in values:
            values[name] = datetime.fromisoformat(values[name])
    values["tags"] = tuple(values["tags"])
    if "forked_from" in frame:
        values["forked_from"] = _forked_from(*frame["forked_from"])
    if "owner_id" in frame:
        owner = table(Session).model._meta.get_field("owner")
        values["owner_id"] = owner.target_field.to_python(frame["owner_id"])  # type: ignore[union-attr]
    return SessionState(
        session_id=session_id,
        custom_state=custom,
        checkpoint_id=checkpoint_id,
        checkpointed_at=created_at,
        checkpoint_source=source,
        **values,
        **columns,
    )


def _forked_from(session_id: str | None, checkpoint_id: str | None) -> tuple[str, str | None] | None:
    return None if session_id is None else (session_id, checkpoint_id)


def columns_of_frame(frame: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Some columns of the session's row as they were at a checkpoint; what was null is not in its frame."""
    values = {name: frame.get(name) for name in names}
    for name, value in values.items():
        if value is not None and is_document(name):
            values[name] = documents.write(value)
        elif value is not None and is_time(name):
            values[name] = datetime.fromisoformat(value)
    return values
