"""Decisions from outside: a caller that stops a session takes it away from the process that drives it.

The run ends with the reason and the fence rises in the transaction of the decision, so the driver's next
write is refused. A driver's own write, under its lease, does nothing of this.
"""

from collections.abc import Mapping

from django.utils import timezone

from helix_sessions.models import Run
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.state import runnable

RUN_STATUS_OF = {"completed": "completed", "failed": "failed"}
"""How a run ends with its session; it is interrupted by everything else."""


def take_away(
    work: UnitOfWork, status: str, reason: str | None, *, error: Mapping[str, str | None] | None = None
) -> bool:
    """Stop who drives the locked session, unless this is its own write; whether a run was under way. `error`
    are the columns of one."""
    if work.is_drivers:
        return False
    revoke(work)
    session = work.session
    run_id = session.run_id
    if run_id is None:
        return False
    ending = RUN_STATUS_OF.get(status, "interrupted")
    data = {"run_id": run_id, "status": ending, "reason": reason}
    data = {name: value for name, value in data.items() if value is not None}
    seq = work.event("run_finished", data, run_id=run_id)
    columns = error or (inputs.error_columns(reason) if ending == "failed" else {})
    ended = {"status": ending, "end_sequence": seq, "ended_at": work.now}
    work.update(Run, {"run_id": run_id}, **ended, **columns)
    work.change(run_id=None)
    runnable.follow(work)
    return True


def interrupt(work: UnitOfWork, reason: str | None = None) -> None:
    """Stop who drives the locked session, as above; what its run was about to do is to be done by another."""
    if take_away(work, "interrupted", reason) and work.session.status == "active":
        runnable.request(work, timezone.now())


def revoke(work: UnitOfWork) -> None:
    """Fence the holder of the locked session's lease, unless this is its own write."""
    if not work.is_drivers and work.session.lease_owner is not None:
        fence(work)


def fence(work: UnitOfWork) -> None:
    """Raise the locked session's fence, and end its lease. The attempt of its holder counts only if that one
    has died: its lease has expired."""
    session = work.session
    until = session.lease_expires_at
    if session.attempts and until is not None and until > work.dialect.clock(work.connection):
        work.change(attempts=session.attempts - 1)
    work.change(fence=session.fence + 1, lease_owner=None, lease_token=None, lease_expires_at=None)
