"""What waits in a session: staged writes, and tool calls for a person or a client."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from helix_sessions.admin import decryption
from helix_sessions.admin.documents import Shown, shown, shown_beginning
from helix_sessions.admin.presentation import moment
from helix_sessions.conf import conf
from helix_sessions.models import Session, StagedChange
from helix_sessions.models.fields import beginning_of, size_of

STAGED_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The writes of one tool call."""

    step_id: str
    tool_call_id: str
    staged_at: datetime
    writes: Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A call that waits, or has an answer nobody has resumed with."""

    call_id: str
    tool_name: str
    kind: str
    asked_at: str
    """When it was asked for, as its entry says it: what tells it from a later one with the same id."""
    arguments: Shown
    requested_at: datetime | None
    deadline: datetime | None
    submitted_at: datetime | None
    response: Shown | None


def staged(session: Session) -> list[Staged]:
    """What is staged, in the order it will be applied."""
    rows = StagedChange.objects.filter(session_id=session.session_id).order_by("place")
    most = conf.ADMIN_DOCUMENT_CHARACTERS
    found: list[Any] = list(
        rows.values(
            "step_id",
            "tool_call_id",
            "staged_at",
            text=beginning_of("writes", most),
            size=size_of("writes"),
        )[:STAGED_SHOWN]
    )
    decryption.open_beginnings(StagedChange, session.session_id, found, "writes", most)
    return [
        Staged(
            step_id=row["step_id"],
            tool_call_id=row["tool_call_id"],
            staged_at=row["staged_at"],
            writes=shown_beginning(row["text"], row["size"]),
        )
        for row in found
    ]


def pending(session: Session) -> list[Pending]:
    """The calls of this session that wait."""
    calls = session.pending_client_tool_calls
    return [as_pending(call_id, call) for call_id, call in (calls or {}).items()]


def as_pending(call_id: str, call: Any) -> Pending:
    """A call out of the session's document, whatever it holds."""
    entry = call if isinstance(call, dict) else {}
    answer = entry.get("response")
    return Pending(
        call_id=call_id,
        tool_name=str(entry.get("tool_name") or ""),
        kind=str(entry.get("kind") or ""),
        asked_at=str(entry.get("requested_at")),
        arguments=shown(entry.get("arguments")),
        requested_at=moment(entry.get("requested_at")),
        deadline=moment(entry.get("deadline")),
        submitted_at=moment(entry.get("submitted_at")),
        response=None if answer is None else shown(answer),
    )
