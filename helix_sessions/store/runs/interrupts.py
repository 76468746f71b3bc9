"""The interrupt flag: any caller sets it, exactly one takes it."""

from helix_sessions.content import documents
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.types import InterruptRequest


class AskedToStop(Exception):
    """This owner was asked to stop before it has begun a run."""


def set_interrupt_flag(
    store: Store, session_id: str, reason: str | None = None, *, expected_version: int | None = None
) -> int:
    """Ask the driver of the session to stop; returns the version."""
    text = inputs.string_document(reason, "reason")
    with store._write(session_id, expected_version, fenced=False) as work:
        work.change(interrupt_reason=text, interrupt_requested_at=work.now)
        work.event("interrupt_requested", {"reason": reason})
    return int(work.session.version)


def check_interrupt_flag(
    store: Store, session_id: str, *, expected_version: int | None = None
) -> InterruptRequest | None:
    """Read and clear the flag at once: of N pollers exactly one sees it."""
    if expected_version is None and peek_interrupt_flag(store, session_id) is None:
        return None
    with store._write(session_id, expected_version) as work:
        return clear(work)


def peek_interrupt_flag(store: Store, session_id: str) -> InterruptRequest | None:
    """Read the flag without clearing it."""
    row = store._read(session_id, ("interrupt_reason", "interrupt_requested_at"))
    return _request(row.interrupt_reason, row.interrupt_requested_at)


def clear_interrupt_flag(store: Store, session_id: str, *, expected_version: int | None = None) -> int:
    """Withdraw the request, if there is one; returns the version."""
    with store._write(session_id, expected_version) as work:
        clear(work)
    return int(work.session.version)


def clear(work: UnitOfWork) -> InterruptRequest | None:
    """Clear the flag of the locked session; return the request."""
    session = work.session
    request = _request(session.interrupt_reason, session.interrupt_requested_at)
    if request is not None:
        work.change(interrupt_reason=None, interrupt_requested_at=None)
        work.event("interrupt_cleared", {"reason": request.reason})
    return request


def _request(reason: str | None, requested_at: object) -> InterruptRequest | None:
    if requested_at is None:
        return None
    return InterruptRequest(
        reason=None if reason is None else documents.load(reason),
        requested_at=requested_at,  # type: ignore[arg-type]
    )
