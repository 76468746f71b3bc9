"""The model and the limits that sessions have, for the forms that change them."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from helix_sessions.admin.base import stored
from helix_sessions.exceptions import ContentUnreadable, InvalidInput
from helix_sessions.models import AgentRecord, Session
from helix_sessions.values.agents import Budget, optional

Set = tuple[dict[str, Any], set[str]]
"""What all sessions have, by the name of a field, and the fields in which they differ."""


def models(sessions: list[Session]) -> Set:
    """The model, if it is a text: another kind is no text that a form could show."""
    found = [_read(record, "model") for record in _records(sessions, "model")]
    return _common([{"model": model if isinstance(model, str) else None} for model in found])


def limits(sessions: list[Session]) -> Set:
    """The limits of executions; a deadline to the minute, as the form has it."""
    return _common([_limits(_read(record, "budget")) for record in _records(sessions, "budget")])


def _limits(value: Any) -> dict[str, Any]:
    try:
        budget = optional(Budget, value) or Budget()
    except InvalidInput:
        budget = Budget()
    found = asdict(budget)
    if budget.deadline is not None:
        found["deadline"] = budget.deadline.replace(second=0, microsecond=0)
    return found


def _records(sessions: list[Session], column: str) -> Iterable[AgentRecord | None]:
    """The record of each session, `None` for one that has none."""
    keys = [session.session_id for session in sessions]
    rows = stored(AgentRecord).filter(session_id__in=keys).only("session_id", column)
    found = {row.session_id: row for row in rows}
    return [found.get(key) for key in keys]


def _read(record: AgentRecord | None, column: str) -> Any:
    try:
        return None if record is None else getattr(record, column)
    except ContentUnreadable:
        return None


def _common(found: list[dict[str, Any]]) -> Set:
    first = found[0] if found else {}
    differ = {name for name, value in first.items() if any(other[name] != value for other in found)}
    return {name: value for name, value in first.items() if name not in differ}, differ
