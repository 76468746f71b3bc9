"""What waits in a session: staged writes, and tool calls for a person or a client."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from helix_sessions.admin import decryption
from helix_sessions.admin.base import stored
from helix_sessions.admin.documents import CHARACTERS_SHOWN, Preview, shown, shown_beginning
from helix_sessions.admin.pages.sentences import who
from helix_sessions.admin.presentation import moment
from helix_sessions.models import Session, StagedChange
from helix_sessions.models.fields import beginning_of, size_of
from helix_sessions.store.state.pending_calls import arguments_digest

STAGED_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The writes of one tool call."""

    step_id: str
    tool_call_id: str
    staged_at: datetime
    writes: Preview


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A call that waits, or has an answer that no resume has consumed."""

    call_id: str
    tool_name: str
    kind: str
    asked_at: str
    """When it was requested, as in its entry: tells it from a later call with the same id."""
    arguments: Preview
    requested_at: datetime | None
    deadline: datetime | None
    submitted_at: datetime | None
    response: Preview | None
    by: str
    """Who answered, and by which way."""
    schema: Preview | None
    """What the result of a client must fit."""
    entry: dict[str, Any]

    @property
    def digest(self) -> str:
        """What an answer names to be about these arguments and no others."""
        return arguments_digest(self.entry)

    @property
    def editable(self) -> str:
        """The arguments to begin an edit with; empty if a part of them is not shown."""
        given = self.entry.get("arguments")
        is_whole = isinstance(given, dict) and not self.arguments.is_cut and self.arguments.value == given
        return self.arguments.text if is_whole else ""


def staged(session: Session) -> list[Staged]:
    """What is staged, in the order it will be applied."""
    rows = stored(StagedChange).filter(session_id=session.session_id).order_by("place")
    most = CHARACTERS_SHOWN
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
    """A call from the session's document, in any shape."""
    entry = call if isinstance(call, dict) else {}
    answer, schema = entry.get("response"), entry.get("response_schema")
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
        by=who(entry.get("by")),
        schema=None if schema is None else shown(schema),
        entry=entry,
    )
