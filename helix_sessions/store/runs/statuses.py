"""How a session enters a status, and the counters."""

from typing import Any

from helix_sessions.content import documents
from helix_sessions.store.engine import inputs, open_calls
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import interrupts, ownership
from helix_sessions.store.state import child_waits, pending_calls, runnable
from helix_sessions.types import JSON, SESSION_STATUSES, TERMINAL_STATUSES, UNSET, Unset

CLEARED_ON_ACTIVE = ("error", "error_fingerprint", "failure_reason", "interrupt_context")


def increment_step_count(store: Store, session_id: str, *, expected_version: int | None = None) -> int:
    """Increment the step count; returns it."""
    return _increment(store, session_id, "step_count", expected_version)


def increment_resume_count(store: Store, session_id: str, *, expected_version: int | None = None) -> int:
    """Increment the resume count; returns it."""
    return _increment(store, session_id, "resume_count", expected_version)


def _increment(store: Store, session_id: str, counter: str, expected_version: int | None) -> int:
    def count(work: UnitOfWork) -> int:
        value = inputs.integer(getattr(work.session, counter) + 1, counter)
        work.change(**{counter: value})
        work.event("counter_raised", {"counter": counter, "value": value})
        return value

    return store._decide(session_id, count, expected_version)[1]


def enter(work: UnitOfWork, columns: dict[str, Any], *, stops_driver: bool = True) -> None:
    """Change the status and what was given with it; `columns` are those of `columns_of`.

    Anything but `active` stops who drives the session, unless this is the driver's own write. A session
    that ends waits for nothing, and is not asked to stop any more.
    """
    before, after = work.session.status, columns["status"]
    rested = runnable.rests_with_inputs(work.session)
    if after == "active":
        work.change(**dict.fromkeys(CLEARED_ON_ACTIVE))
    if after in TERMINAL_STATUSES:
        if not _goes_on(work, after):
            interrupts.clear(work)
        wait_for_nothing(work)
    work.change(**columns)
    if before != after:
        work.change(status_since=work.now)
    data = {"from": before, "to": after, "failure_reason": columns.get("failure_reason")}
    work.event("status_changed", {name: value for name, value in data.items() if value is not None})
    if after in runnable.STOPPED_STATUSES:
        runnable.forget_request(work)
    elif before != after and not work.is_drivers:
        work.change(attempts=0, retry_attempt=0)
    if after != "active" and stops_driver:
        error = {name: value for name, value in columns.items() if name.startswith("error")}
        reason = columns.get("failure_reason") or f"session_{after}"
        ownership.take_away(work, after, reason, error=error)
    if before != after or after in runnable.STOPPED_STATUSES:
        runnable.follow(work, rested=rested)


def _goes_on(work: UnitOfWork, status: str) -> bool:
    """Whether its driver has more inputs: it looks at a request to stop before it takes the next."""
    return bool(work.is_drivers and status == "completed" and work.session.pending_inputs)


def wait_for_nothing(work: UnitOfWork) -> None:
    """Forget what the locked session waited for, and give its calls an error for a result. A document that
    was not read may be there."""
    known = vars(work.session)
    waits = (known.get("pending_client_tool_calls"), known.get("suspended_awaiting_children"))
    if any(map(documents.has_entries, waits)):
        for message in open_calls.closing_messages(work.session.open_calls):
            work.message("tool", documents.write(message))
    if known.get("pending_client_tool_calls", UNSET) is not None:
        work.change(**pending_calls.columns(None))
    if known.get("suspended_awaiting_children", UNSET) is not None:
        work.change(**child_waits.columns(None))


def columns_of(
    status: str,
    error: JSON = None,
    failure_reason: str | None = None,
    interrupt_context: JSON = None,
    output: JSON | Unset = UNSET,
) -> dict[str, Any]:
    """A status and what a caller gives with it, checked, as columns. `None` leaves a value as it is."""
    given = {
        "failure_reason": None if failure_reason is None else inputs.text(failure_reason, "failure_reason"),
        "interrupt_context": inputs.document(interrupt_context),
        **(inputs.error_columns(error) if error is not None else {}),
    }
    columns: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if output is not UNSET:
        columns["output"] = inputs.document(output)
    return {"status": inputs.choice(status, SESSION_STATUSES, "The status"), **columns}
