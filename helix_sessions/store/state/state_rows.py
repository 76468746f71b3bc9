"""`SessionState` and its two stored forms: the session's row, and the frame of a checkpoint."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidDocument, InvalidInput
from helix_sessions.models import Session
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.session_rows import DOCUMENT_COLUMNS, SessionRow
from helix_sessions.store.engine.tables import table
from helix_sessions.store.state import child_waits, pending_calls
from helix_sessions.types import SESSION_STATUSES, SessionState

_SCALARS = (
    "agent_type",
    "stream_id",
    "failure_reason",
    "suspended_step_id",
    "parent_session_id",
    "root_session_id",
    "mode",
    "version",
    "resume_count",
    "head_seq",
    "user_id",
)
_TIMES = ("expires_at", "created_at", "updated_at")
_TEXTS = (*DOCUMENT_COLUMNS, "error", "tags", "metadata")
_IN_CHECKPOINT = ("status", "step_count", "message_count")
"""Fields that the checkpoint has as columns of its own."""


def owned_columns(state: SessionState) -> dict[str, Any]:
    """What the caller of a save decides, checked, as columns of the session's row."""
    if not isinstance(state, SessionState):
        raise InvalidInput(f"A state must be a SessionState, not {type(state).__name__}.")
    return {
        "status": inputs.choice(state.status, SESSION_STATUSES, "The status"),
        "step_count": inputs.integer(state.step_count, "step_count"),
        "output": inputs.document(state.output),
        "error": inputs.string_document(state.error, "error"),
        "failure_reason": None
        if state.failure_reason is None
        else inputs.text(state.failure_reason, "failure_reason"),
        "interrupt_context": inputs.document(state.interrupt_context),
        **pending_calls.columns(state.pending_client_tool_calls),
        **child_waits.columns(state.suspended_awaiting_children),
        "suspended_step_id": inputs.optional_identifier(state.suspended_step_id, "suspended_step_id"),
        "suspension_context": inputs.document(state.suspension_context),
        "completed_client_tool_calls": inputs.optional_mapping(
            state.completed_client_tool_calls, "completed_client_tool_calls"
        ),
        "client_tool_call_ownership": inputs.optional_mapping(
            state.client_tool_call_ownership, "client_tool_call_ownership"
        ),
        "tracing_context": inputs.document(state.tracing_context),
        "location": inputs.document(state.location),
        "expires_at": inputs.optional_moment(state.expires_at, "expires_at"),
        "user_id": inputs.optional_identifier(state.user_id, "user_id"),
        "tags": documents.write(inputs.tags(state.tags)),
        "metadata": inputs.metadata(state.metadata),
        "workspace_ref": inputs.document(state.workspace_ref),
    }


def custom_state(state: SessionState) -> str:
    """The text of the agent's own document."""
    if not isinstance(state.custom_state, dict):
        raise InvalidDocument("custom_state must be an object.")
    return documents.dump(state.custom_state)


def state_of(row: SessionRow, custom: dict[str, Any]) -> SessionState:
    """The state a session's row, read whole, stands for."""
    values: dict[str, Any] = {name: getattr(row, name) for name in (*_SCALARS, *_TIMES, *_IN_CHECKPOINT)}
    for name in _TEXTS:
        text = getattr(row, name)
        values[name] = None if text is None else documents.load(text)
    values["tags"] = tuple(values["tags"])
    return SessionState(
        session_id=row.session_id,
        custom_state=custom,
        forked_from=_forked_from(row.forked_from_session_id, row.forked_from_checkpoint_id),
        owner_id=row.owner_id,
        checkpoint_id=row.checkpoint_id,
        checkpointed_at=row.checkpointed_at,
        checkpoint_source=row.checkpoint_source,
        **values,
    )


def frame_of(row: SessionRow, *, version: int, now: datetime) -> str:
    """The text of a checkpoint's frame: the row as this write will leave it, empty values left out."""
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
    source: str,
    **columns: Any,
) -> SessionState:
    """The state a checkpoint stands for; `columns` are those of `_IN_CHECKPOINT`."""
    values: dict[str, Any] = dict(frame)
    for name in _TIMES:
        if name in values:
            values[name] = datetime.fromisoformat(values[name])
    values["tags"] = tuple(values["tags"])
    if "forked_from" in values:
        values["forked_from"] = _forked_from(*values["forked_from"])
    if "owner_id" in values:
        owner = table(Session).model._meta.get_field("owner")
        values["owner_id"] = owner.target_field.to_python(values["owner_id"])  # type: ignore[union-attr]
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
