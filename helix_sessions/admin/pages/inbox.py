"""The inbox of a session, and who drives it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from helix_sessions.admin import decryption
from helix_sessions.admin.base import stored
from helix_sessions.admin.documents import CHARACTERS_SHOWN, Preview, shown_beginning
from helix_sessions.models import Input, Session
from helix_sessions.models.fields import beginning_of, size_of

INPUTS_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The owner of a session, or the last one if the lease has expired."""

    name: str
    fence: int
    expires_at: datetime
    is_live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """An input."""

    input_id: str
    delivery: str
    created_at: datetime
    state: str
    seq: int | None
    """The event that promoted or cancelled it."""
    prompt: Preview


def owner(session: Session) -> Owner | None:
    """The owner of the newest lease, unless it was released."""
    if session.lease_owner is None or session.lease_expires_at is None:
        return None
    return Owner(
        name=session.lease_owner,
        fence=session.fence,
        expires_at=session.lease_expires_at,
        is_live=stored(Session).filter(session_id=session.session_id).leased().exists(),
    )


def inputs(session: Session) -> list[Prompt]:
    """The newest inputs, the last one first; large prompts are cut by the database."""
    rows = stored(Input).filter(session_id=session.session_id).order_by("-admitted_seq")
    found: list[Any] = list(
        rows.values(
            "input_id",
            "delivery",
            "created_at",
            "promoted_seq",
            "cancelled_seq",
            text=beginning_of("prompt", CHARACTERS_SHOWN),
            size=size_of("prompt"),
        )[:INPUTS_SHOWN]
    )
    decryption.open_beginnings(Input, session.session_id, found, "prompt", CHARACTERS_SHOWN)
    return [_prompt(row) for row in found]


def _prompt(row: dict[str, Any]) -> Prompt:
    state = _("Pending")
    if row["promoted_seq"] is not None:
        state = _("Promoted")
    elif row["cancelled_seq"] is not None:
        state = _("Cancelled")
    return Prompt(
        input_id=row["input_id"],
        delivery=row["delivery"],
        created_at=row["created_at"],
        state=state,
        seq=row["promoted_seq"] or row["cancelled_seq"],
        prompt=shown_beginning(row["text"], row["size"]),
    )
