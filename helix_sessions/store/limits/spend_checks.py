"""How the limits of spending stand for a session, and the warnings that are due."""

import logging
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import connections

from helix_sessions.messages.usage import usage_of
from helix_sessions.models import SpendLimit
from helix_sessions.store.engine import spending
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.spending import Standing, Standings
from helix_sessions.store.engine.transactions import write_tree
from helix_sessions.store.limits import spend_totals

_log = logging.getLogger("helix_sessions.spend")

_FOLD_EVERY = spend_totals.AT_ONCE
"""So many turns that limits hold for add entries before this process folds them."""
_turns = 0


def standings(using: str, owner_id: Any, agent_type: str) -> Standings:
    """How the limits stand that hold for sessions of an owner and an agent type."""
    connection = connections[using]
    statement = spending.question(dialect_of(connection), owner_id, agent_type)
    return spending.read_standings(fetch(connection, *statement))


def with_usage(found: Standings, report: Any) -> Standings:
    """The same once a report is counted that is not committed yet."""
    if report is None or not found:
        return found
    usage = usage_of(report)
    amount = spending.spent(usage.cost, usage.tokens)
    return tuple(replace(standing, used=standing.used.plus(amount)) for standing in found)


def reached(found: Standings) -> Standings:
    """The limits of which nothing is left."""
    return tuple(standing for standing in found if standing.is_reached)


def next_window(limits: Standings) -> datetime | None:
    """When all of these limits have begun anew; `None`: one of them never does."""
    moments = [standing.resets_at for standing in limits]
    return None if None in moments else max((each for each in moments if each is not None), default=None)


def words(limit: Standing) -> str:
    """What was reached, for a person. It tells no amounts of others than the owner."""
    whose = {"owner": "this owner", "agent_type": f"the agent type {limit.key!r}", "all": "all sessions"}
    period = {"day": "of the day", "month": "of the month", "total": "in total"}
    return f"The spend limit {period[limit.window]} for {whose[limit.scope]} was reached."


def warn(using: str, session_id: str, found: Standings) -> None:
    """Send the warnings that are due, each once in a window: an event in the log of this session, the signal
    and the webhooks of it. A failure is logged; the next check sends it."""
    for limit in found:
        if limit.owes_warning:
            try:
                _send(using, session_id, limit)
            except Exception:
                _log.exception("A warning of the spend limit %r could not be sent.", limit.limit_id)


def _send(using: str, session_id: str, limit: Standing) -> None:
    with write_tree(using) as tree:
        work = tree.lock(session_id)
        work.versioned = False
        rows = SpendLimit.objects.using(using).filter(limit_id=limit.limit_id, enabled=True)
        if rows.exclude(warned_on=limit.starts_on).update(warned_on=limit.starts_on):
            told = {"scope": limit.scope, "key": limit.key, "window": limit.window, "warn_at": limit.warn_at}
            work.event("spend_warning", told)


def _spent(using: str, session_id: str, found: Standings) -> None:
    """A write has spent something that limits hold for."""
    global _turns
    warn(using, session_id, found)
    _turns += 1
    if _turns % _FOLD_EVERY == 0:
        try:
            spend_totals.fold(using)
        except Exception:
            _log.exception("What was spent could not be added up.")


spending.watchers.append(_spent)
