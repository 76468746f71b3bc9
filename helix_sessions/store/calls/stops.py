"""A request to stop a session that waits: nobody drives it, so it is met at once."""

from helix_sessions.content import documents
from helix_sessions.store.calls import children
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.operation import operation
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.transactions import Transaction, write_tree
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import interrupts, statuses


@operation
def interrupt_waiting(store: Store, session_id: str, reason: str | None = None) -> bool:
    """Interrupt a session that waits for a person, a client or sub-agents; whether it did wait.

    Its sub-agents are interrupted with it. It waits for nothing any more: its calls have an error for a
    result, and what is answered later has no effect. A session without waits, or with a driver, is left as it
    is.
    """
    key = session_key(session_id)
    inputs.string_document(reason, "reason")
    with write_tree(store.using, store._lease) as tree:
        parent, work = children.lock_with_parent(tree, key, store._owner)
        if not _rests_and_waits(work):
            return False
        interrupt(tree, parent, work, reason)
    return True


def interrupt(
    tree: Transaction, parent: UnitOfWork | None, work: UnitOfWork, reason: str | None = None
) -> None:
    """Interrupt the locked session, for this reason or that of the request to stop; it waits for nothing any
    more."""
    request = interrupts.clear(work)
    if reason is None and request is not None:
        reason = request.reason
    statuses.wait_for_nothing(work)
    context = documents.write({"reason": reason})
    children.enter(tree, parent, work, {"status": "interrupted", "interrupt_context": context})


def _rests_and_waits(work: UnitOfWork) -> bool:
    session = work.session
    waits = (session.pending_client_tool_calls, session.suspended_awaiting_children)
    until = session.lease_expires_at
    driven = session.lease_owner is not None and until > work.dialect.clock(work.connection)
    return (
        session.status == "active"
        and session.run_id is None
        and not driven
        and any(map(documents.has_entries, waits))
    )
