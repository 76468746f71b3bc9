"""Moments: the few events of a session that the world outside is told of, by webhooks and by signals.

The unit of work notes them as it appends to the log. What webhooks are told is written in the transaction of
the change, by one statement that finds no row where there is no webhook; signals are sent after the commit.
Events that a caller emits under the same names are no moments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from django.dispatch import Signal

from helix_sessions import signals
from helix_sessions.content import documents
from helix_sessions.models import Session, Webhook, WebhookDelivery
from helix_sessions.store.engine.connection import after_commit
from helix_sessions.store.engine.ids import new_id
from helix_sessions.store.engine.tables import table

if TYPE_CHECKING:
    from helix_sessions.store.engine.unit_of_work import UnitOfWork

OF_EVENTS = frozenset(("run_finished", "status_changed", "spend_warning"))
"""The types of events that may be moments."""

EXPIRED = "session_expired"

_AT_ONCE = 16
"""So many moments are added by one statement; a suspension may have more calls."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What happened, as the event with this number says it."""

    type: str
    seq: int
    data: Mapping[str, Any]
    """What a webhook is told beside the session and the number: no content."""


_SIGNALS: dict[str, Signal] = {
    "run.finished": signals.run_finished,
    "call.waiting": signals.call_waiting,
    "session.failed": signals.session_failed,
    "session.expired": signals.session_expired,
    "spend.warning": signals.spend_warning,
}


def of_event(kind: str, seq: int, data: Mapping[str, Any]) -> Moment | None:
    """The moment that an event of the store is, if it is one."""
    if kind == "run_finished":
        return Moment("run.finished", seq, {"run_id": data["run_id"], "status": data["status"]})
    if kind == "spend_warning":
        return Moment("spend.warning", seq, {name: data[name] for name in ("scope", "key", "window")})
    if data["to"] != "failed" or data["from"] == "failed":
        return None
    reason = data.get("failure_reason")
    if reason == EXPIRED:
        return Moment("session.expired", seq, {})
    return Moment("session.failed", seq, {"failure_reason": reason})


def record(work: "UnitOfWork") -> None:
    """Add the moments to the outbox, for each webhook that wants them, as a part of this write."""
    session_id = work.session.session_id
    timestamp = work.now.isoformat().replace("+00:00", "Z")
    for start in range(0, len(work.moments), _AT_ONCE):
        some = work.moments[start : start + _AT_ONCE]
        params: list[Any] = [work.now, work.now]
        for moment in some:
            data = {"session_id": session_id, "seq": moment.seq, **moment.data}
            body = documents.write({"type": moment.type, "timestamp": timestamp, "data": data})
            params += [f"msg_{new_id()}", moment.type, session_id, body]
        work.statements.append((_record_sql(len(some)), work.dialect.parameters(params)))


def told_alone(dialect: Any, kind: str, data: Mapping[str, Any], now: datetime) -> tuple[str, list[Any]]:
    """The statement that adds to the outbox what is of no single session."""
    timestamp = now.isoformat().replace("+00:00", "Z")
    body = documents.write({"type": kind, "timestamp": timestamp, "data": dict(data)})
    params = [now, now, f"msg_{new_id()}", kind, "", body]
    return _record_sql(1), dialect.parameters(params)


@lru_cache(maxsize=_AT_ONCE)
def _record_sql(moments: int) -> str:
    """It ends in a condition, so that it can be a part of a guarded write."""
    first = 'SELECT %s AS "message_id", %s AS "type", %s AS "session_id", %s AS "body"'
    rows = " UNION ALL ".join([first] + ["SELECT %s, %s, %s, %s"] * (moments - 1))
    return (
        f"INSERT INTO {table(WebhookDelivery).name}"  # noqa: S608
        ' ("webhook_id", "created_at", "due_at", "attempts", "message_id", "type", "session_id", "body")'
        ' SELECT w."webhook_id", %s, %s, 0, m."message_id", m."type", m."session_id", m."body"'
        f" FROM {table(Webhook).name} w CROSS JOIN ({rows}) m"
        ' WHERE w."enabled" AND (CAST(w."events" AS text) = \'[]\''
        ' OR CAST(w."events" AS text) LIKE \'%%"\' || m."type" || \'"%%\')'
    )


def announce(work: "UnitOfWork") -> None:
    """Send the signals of the moments once the transaction has committed, where there are receivers."""
    for moment in work.moments:
        signal = _SIGNALS[moment.type]
        if signal.has_listeners(Session):
            send = partial(signal.send_robust, Session, **_arguments(work, moment))
            after_commit(work.connection, send, robust=True)


def _arguments(work: "UnitOfWork", moment: Moment) -> dict[str, Any]:
    if moment.type == "spend.warning":
        return dict(moment.data)
    session_id = work.session.session_id
    if moment.type == "session.failed":
        text = vars(work.session).get("error")
        error = moment.data["failure_reason"] if text is None else documents.load(text)
        return {"session_id": session_id, "error": error}
    return {"session_id": session_id, **moment.data}
