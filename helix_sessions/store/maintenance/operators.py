"""Calls by an operator, logged with their reason."""

from collections.abc import Callable
from typing import Any, TypeVar

from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.engine.unit_of_work import UnitOfWork

T = TypeVar("T")

Changes = dict[str, dict[str, Any]]


def operate(
    store: Store,
    session_id: str,
    action: str,
    call: Callable[[], T],
    *,
    by: dict[str, Any],
    reason: str,
    changes: Callable[[], Changes] = dict,
) -> T:
    """Make a call, and log the operator and the reason as `operator_action`: both are committed, or
    neither.

    A call that raises has changed nothing and is not logged. What an operator does is no sign of the agent.
    `changes` says, after it, what has another value than before; it is logged too.
    """
    with locking_transaction(store.using):
        outcome = call()
        changed = changes()
        data = {"action": action, "reason": reason, "by": by, **({"changes": changed} if changed else {})}
        store._decide(session_id, lambda work: _log(work, data))
    return outcome


def _log(work: UnitOfWork, data: dict[str, Any]) -> None:
    work.versioned = False
    work.event("operator_action", data)


def differences(before: dict[str, Any], after: dict[str, Any]) -> Changes:
    """What is not as it was: by name, the value from which and to which it changed."""
    return {
        name: {"from": before.get(name), "to": value}
        for name, value in after.items()
        if before.get(name) != value
    }
