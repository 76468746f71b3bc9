"""All sessions that wait: for what, since when. Longest first."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from helix_sessions.admin.base import stored
from helix_sessions.admin.pages.waiting import Pending, as_pending
from helix_sessions.exceptions import InvalidCursor
from helix_sessions.models import Session
from helix_sessions.store.engine import cursors
from helix_sessions.store.state import child_waits, pending_calls

PAGE_SIZE = 25
SHOWN = 20
"""So many calls and sub-sessions of one session; the rest are counted."""

LOOKED_INTO = 300
"""So many sessions are searched for the calls of one tool."""

COLUMNS = (
    "session_id",
    "agent_type",
    "user_id",
    "owner_id",
    "status",
    "waiting_since",
    "pending_client_tool_calls",
    "suspended_awaiting_children",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """A sub-session that has not ended."""

    call_id: str
    sub_session_id: str
    agent_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A session that waits."""

    session: Session
    calls: list[Pending]
    children: list[Awaited]
    unshown: int
    """How many calls and sub-sessions are not among those above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPage:
    """A page of sessions that wait; `next_cursor` leads to the next one."""

    items: list[Waiting]
    next_cursor: str | None
    is_first: bool
    tool: str = ""
    """The one tool whose calls are shown."""

    @property
    def has_approvals(self) -> bool:
        """Whether these are calls of one tool, and a person has to approve some of them."""
        return bool(self.tool) and any(call.kind == "approval" for item in self.items for call in item.calls)


def waiting_page(cursor: str = "", tool: str = "") -> WaitingPage:
    """A page, in one query and one for the names of owners. An invalid cursor starts from the beginning. With
    a tool, its calls among the sessions that wait longest."""
    rows = stored(Session).waiting().only(*COLUMNS).prefetch_related("owner")
    if tool:
        return _of_tool(rows.filter(awaiting_client=True), tool)
    after = _place(cursor)
    if after is not None:
        since, key = after
        rows = rows.filter(waiting_since__gte=since).exclude(waiting_since=since, session_id__lte=key)
    found = list(rows[: PAGE_SIZE + 1])
    shown = found[:PAGE_SIZE]
    last = shown[-1] if len(found) > PAGE_SIZE else None
    return WaitingPage(
        items=[_waiting(session) for session in shown],
        next_cursor=cursors.encode("waiting", last.waiting_since, last.session_id) if last else None,
        is_first=after is None,
    )


def _of_tool(rows: Any, tool: str) -> WaitingPage:
    found = []
    for session in rows[:LOOKED_INTO]:
        calls = [
            as_pending(call_id, entry)
            for call_id, entry in pending_calls.unanswered(session.pending_client_tool_calls)
            if entry.get("tool_name") == tool
        ]
        if calls:
            found.append(Waiting(session=session, calls=calls[:SHOWN], children=[], unshown=0))
    return WaitingPage(items=found, next_cursor=None, is_first=True, tool=tool)


def awaited(session: Session) -> list[Awaited]:
    """The sub-sessions a session waits for."""
    return [
        _awaited(call_id, wait)
        for call_id, wait in (session.suspended_awaiting_children or {}).items()
        if not child_waits.is_settled(wait)
    ]


def _waiting(session: Session) -> Waiting:
    calls = list(pending_calls.unanswered(session.pending_client_tool_calls))
    children = awaited(session)
    shown = [as_pending(call_id, entry) for call_id, entry in calls[:SHOWN]]
    left = SHOWN - len(shown)
    unshown = len(calls) - len(shown) + max(len(children) - left, 0)
    return Waiting(session=session, calls=shown, children=children[:left], unshown=unshown)


def _awaited(call_id: str, wait: Any) -> Awaited:
    entry = wait if isinstance(wait, dict) else {}
    return Awaited(
        call_id=call_id,
        sub_session_id=str(entry.get("sub_session_id") or ""),
        agent_type=str(entry.get("agent_type") or ""),
    )


def _place(cursor: str) -> tuple[datetime, str] | None:
    try:
        since, key = cursors.decode("waiting", cursor, datetime, str)
    except InvalidCursor:
        return None
    return since, key
