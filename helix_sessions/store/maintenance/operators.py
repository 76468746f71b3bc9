"""Calls by an operator, logged with their reason."""

from collections.abc import Callable
from typing import Any, TypeVar

from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.engine.unit_of_work import UnitOfWork

T = TypeVar("T")


def operate(
    store: Store,
    session_id: str,
    action: str,
    call: Callable[[], T],
    *,
    by: dict[str, Any],
    reason: str,
) -> T:
    """Make a call, and log the operator and the reason as `operator_action`: both are committed, or
    neither.

    A call that raises has changed nothing and is not logged. What an operator does is no sign of the agent.
    """

    def log(work: UnitOfWork) -> None:
        work.versioned = False
        work.event("operator_action", {"action": action, "reason": reason, "by": by})

    with locking_transaction(store.using):
        outcome = call()
        store._decide(session_id, log)
    return outcome
