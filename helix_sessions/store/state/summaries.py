"""A session as a line of a list."""

from datetime import datetime
from typing import Any

from helix_sessions.store.engine import cursors, inputs
from helix_sessions.types import (
    Page,
    SessionSummary,
)

_SUMMARY = (
    "session_id",
    "agent_type",
    "status",
    "version",
    "step_count",
    "message_count",
    "user_id",
    "owner_id",
    "tags",
    "parent_session_id",
    "expires_at",
    "created_at",
    "updated_at",
)


def page_of_summaries(rows: Any, *, limit: int, cursor: str | None) -> Page[SessionSummary]:
    """A page of sessions of a queryset that is in the order `newest_first`."""
    inputs.integer(limit, "limit", minimum=1)
    if cursor is not None:
        created_at, key = cursors.decode("sessions", cursor, datetime, str)
        rows = rows.filter(created_at__lte=created_at).exclude(created_at=created_at, session_id__gte=key)
    found = summaries(rows[: min(limit, inputs.MAX_INTEGER - 1) + 1])
    items, more = found[:limit], len(found) > limit
    return Page(
        items=items,
        next_cursor=cursors.encode("sessions", items[-1].created_at, items[-1].session_id) if more else None,
    )


def summaries(rows: Any) -> list[SessionSummary]:
    """The sessions of a queryset without their documents."""
    found = [dict(zip(_SUMMARY, values, strict=True)) for values in rows.values_list(*_SUMMARY)]
    return [SessionSummary(**{**summary, "tags": tuple(summary["tags"])}) for summary in found]
