"""Whose a client's tool call is, and whether its answer was consumed: what the root of a tree knows.

The table knows every call for as long as the root lives. The root's two maps, which are part of its state,
show the calls that wait and the last of those consumed, so that a session with a hundred thousand calls
does not carry them all through every commit.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from helix_sessions.content import documents
from helix_sessions.models import ClientCall
from helix_sessions.store.engine.moments import Moment
from helix_sessions.store.engine.unit_of_work import UnitOfWork

SHOWN = 256
"""So many consumed calls are in the root's maps."""

_KEY = ("session_id", "tool_call_id", "owner_session_id")


def wait(root: UnitOfWork, owner_id: str, call_ids: Iterable[str]) -> None:
    """Let answers to these calls find their owner through the locked root."""
    calls = list(call_ids)
    if not calls:
        return
    ownership = _map(root, "client_tool_call_ownership")
    for call_id in calls:
        _put(root, owner_id, call_id, requested_at=root.now)
        ownership[call_id] = owner_id
    root.change(client_tool_call_ownership=documents.write(ownership))
    root.event("tool_calls_waiting", {"owner_session_id": owner_id, "tool_call_ids": calls})


def tell_of(work: UnitOfWork, calls: Mapping[str, Any]) -> None:
    """Tell webhooks and signals of the entries of calls that wait, as of the event that ended the run."""
    for call_id, entry in calls.items():
        data = {"tool_call_id": call_id, "tool_name": entry["tool_name"], "kind": entry["kind"]}
        work.moments.append(Moment("call.waiting", work.session.head_seq, data))


def complete(root: UnitOfWork, owner_id: str, calls: Mapping[str, bool]) -> None:
    """Note that the answers to these calls were consumed; the value says whether it was the deadline's."""
    if not calls:
        return
    ownership = _map(root, "client_tool_call_ownership")
    completed = _map(root, "completed_client_tool_calls")
    for call_id, expired in calls.items():
        _put(root, owner_id, call_id, requested_at=root.now, completed_at=root.now, expired=expired)
        ownership[call_id] = owner_id
        completed.pop(call_id, None)
        completed[call_id] = root.now.isoformat()
    for call_id in list(completed)[:-SHOWN]:
        del completed[call_id]
        ownership.pop(call_id, None)
    root.change(
        client_tool_call_ownership=documents.write(ownership),
        completed_client_tool_calls=documents.write(completed),
    )
    root.event("tool_calls_completed", {"owner_session_id": owner_id, "tool_call_ids": list(calls)})


def find(using: str, root_id: str, call_id: str, owner_id: str | None = None) -> ClientCall | None:
    """A call of the tree, or of one session in it: one that waits before one that was consumed."""
    rows = ClientCall.objects.using(using).filter(session_id=root_id, tool_call_id=call_id)
    if owner_id is not None:
        rows = rows.filter(owner_session_id=owner_id)
    found = list(rows)
    waiting = [row for row in found if row.completed_at is None]
    return max(waiting or found, key=lambda row: row.requested_at, default=None)


def note_late(work: UnitOfWork, call: ClientCall) -> None:
    """Remember, with the owner's write, that an answer came after the deadline's error was consumed."""
    key = {name: getattr(call, name) for name in _KEY}
    work.update(ClientCall, key, late_at=work.now)


def _put(root: UnitOfWork, owner_id: str, call_id: str, **values: Any) -> None:
    """Add a call; a later call with the same id takes the same row."""
    row = {"tool_call_id": call_id, "owner_session_id": owner_id, "expired": False, **values}
    root.put(ClientCall, **row)


def _map(root: UnitOfWork, column: str) -> dict[str, Any]:
    text = getattr(root.session, column)
    return {} if text is None else documents.load(text)
