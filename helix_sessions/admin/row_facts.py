"""What a row of the list says beyond its columns: why the session is as it is, and which model it used.

Read for one page of rows, documents only as far as they are shown.
"""

from collections.abc import Iterable
from typing import Any

from django.db.models import Case, OuterRef, Subquery, TextField, Value, When
from django.utils.translation import gettext as _

from helix_sessions.admin import decryption
from helix_sessions.admin.base import stored
from helix_sessions.admin.documents import completed, read_masked
from helix_sessions.models import AgentRecord, Run, Session
from helix_sessions.models.fields import beginning_of, size_of
from helix_sessions.store.state import child_waits, pending_calls

WHY = 80
"""So many characters of the reason are in a row."""

MODEL = 60
"""So many of the name of the model."""

_READ = 2_000
"""So much of a document is read for them."""

_DOCUMENTS: dict[str, dict[str, Any]] = {
    "error": {"error__isnull": False},
    "pending_client_tool_calls": {"awaiting_client": True},
    "suspended_awaiting_children": {"awaiting_children": True},
    "interrupt_reason": {"interrupt_requested_at__isnull": False},
    "interrupt_context": {"status": "interrupted"},
}
"""The documents that say why, and when they do."""


def add_facts(rows: list[Any]) -> None:
    """Give each row of a page `why` and `model_used`. One query by key, however many rows."""
    facts = _read([row.session_id for row in rows]) if rows else {}
    for row in rows:
        row.why, row.model_used = facts.get(row.session_id, ("", ""))


def _read(keys: list[str]) -> dict[str, tuple[str, str]]:
    """Why each session is as it is, and its model."""
    parts: dict[str, Any] = {}
    for name, when in _DOCUMENTS.items():
        text = Case(When(**when, then=beginning_of(name, _READ)), default=None, output_field=TextField())
        parts |= {f"{name}_text": text, f"{name}_size": size_of(name)}
    agent = stored(AgentRecord).filter(session_id=OuterRef("session_id"))
    parts["model_text"] = Subquery(agent.values(text=beginning_of("model", _READ))[:1])
    last = stored(Run).filter(session_id=OuterRef("session_id"), turn=OuterRef("turn_count"))
    parts["usage_text"] = Subquery(last.values(text=beginning_of("usage", _READ))[:1])
    rows = stored(Session).filter(session_id__in=keys)
    rows = rows.values("session_id", "status", "failure_reason", model_size=Value(0), **parts)
    return {row["session_id"]: (cut(_why(row), WHY), cut(_model(row), MODEL)) for row in rows}


def _why(row: dict[str, Any]) -> str:
    for name in _DOCUMENTS:
        names = {"text": f"{name}_text", "size": f"{name}_size"}
        decryption.open_beginnings(Session, row["session_id"], [row], name, _READ, **names)
        row[name] = _value(row[names["text"]])
    if row["status"] == "failed":
        return error_in_words(row["error"]) or str(row["failure_reason"] or "")
    for words in (_calls(row["pending_client_tool_calls"]), _children(row["suspended_awaiting_children"])):
        if words:
            return words
    for name in ("interrupt_reason", "interrupt_context"):
        if row[name]:
            return row[name] if isinstance(row[name], str) else error_in_words(row[name])
    return error_in_words(row["error"])


def error_in_words(error: Any) -> str:
    """What an error says of itself: its message, else its code or type; nothing, if it says nothing."""
    if not isinstance(error, dict):
        return "" if error is None else str(error)
    if not any(error.values()):
        return ""
    said = next((error[key] for key in ("message", "code", "type", "reason") if error.get(key)), error)
    return str(said)


def _calls(calls: Any) -> str:
    if not isinstance(calls, dict):
        return ""
    waiting = [call for _id, call in pending_calls.unanswered(calls)]
    return _named(waiting, "tool_name", approval=_("Approve %s"), other=_("Answer %s"))


def _children(children: Any) -> str:
    if not isinstance(children, dict):
        return ""
    waiting = [wait for wait in children.values() if not child_waits.is_settled(wait)]
    return _named(waiting, "sub_session_id", approval="", other=_("Waits for %s"))


def _named(waiting: Iterable[Any], key: str, *, approval: str, other: str) -> str:
    entries = [entry for entry in waiting if isinstance(entry, dict)]
    if not entries:
        return ""
    text = (approval or other) if entries[0].get("kind") == "approval" else other
    text %= entries[0].get(key) or "?"
    return (
        text
        if len(entries) == 1
        else _("%(first)s and %(count)d more")
        % {
            "first": text,
            "count": len(entries) - 1,
        }
    )


def _model(row: dict[str, Any]) -> str:
    """The model that the last run used, else the one that is set for the session."""
    usage = _value(row["usage_text"])
    if isinstance(usage, dict) and usage.get("model"):
        return str(usage["model"])
    names = {"text": "model_text", "size": "model_size"}
    decryption.open_beginnings(AgentRecord, row["session_id"], [row], "model", _READ, **names)
    model = _value(row["model_text"])
    if isinstance(model, dict):
        model = model.get("name") or model.get("model")
    return "" if model is None else str(model)


def _value(text: str | None) -> Any:
    """The value of a document's beginning."""
    if text is None:
        return None
    try:
        return read_masked(text)
    except ValueError:  # it was cut
        return read_masked(completed(text))


def cut(text: str, most: int) -> str:
    """The beginning of a text on one line."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
