"""Status, by decree or by compare-and-set, and the counters."""

from collections.abc import Iterable
from typing import Any

from helix_sessions.exceptions import InvalidInput
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.types import JSON, SESSION_STATUSES, UNSET, CasMismatch, CasOk, Unset

CLEARED_ON_ACTIVE = ("error", "failure_reason", "interrupt_context")


def update_status(
    store: Store,
    session_id: str,
    status: str,
    *,
    error: str | None = None,
    failure_reason: str | None = None,
    interrupt_context: JSON = None,
    output: JSON | Unset = UNSET,
    expected_version: int | None = None,
) -> int:
    """Set the status, whatever it was; returns the version. `None` leaves a value as it is, and
    entering `active` clears error, failure reason and interrupt context unless given."""
    columns = _status_columns(status, error, failure_reason, interrupt_context)
    if output is not UNSET:
        columns["output"] = inputs.document(output)
    work, _ = store._decide(session_id, lambda work: enter(work, columns), expected_version)
    return int(work.session.version)


def compare_and_set_status(
    store: Store,
    session_id: str,
    expected_statuses: str | Iterable[str],
    new_status: str,
    *,
    expected_version: int | None = None,
    interrupt_context: JSON = None,
    error: str | None = None,
    failure_reason: str | None = None,
) -> CasOk | CasMismatch:
    """Set the status if it is one of those expected, and the version too if given. A mismatch is
    returned, not raised, and changes nothing."""
    expected = _statuses(expected_statuses)
    version = inputs.expected_version(expected_version)
    columns = _status_columns(new_status, error, failure_reason, interrupt_context)

    def swap(work: UnitOfWork) -> CasMismatch | None:
        session = work.session
        if session.status not in expected or version not in (None, session.version):
            return CasMismatch(current_status=session.status, current_version=session.version)
        enter(work, columns)
        return None

    work, mismatch = store._decide(session_id, swap)
    return CasOk(new_version=work.session.version) if mismatch is None else mismatch


def increment_step_count(store: Store, session_id: str, *, expected_version: int | None = None) -> int:
    """Count one step; returns the new number."""
    return _increment(store, session_id, "step_count", expected_version)


def increment_resume_count(store: Store, session_id: str, *, expected_version: int | None = None) -> int:
    """Count one resume; returns the new number."""
    return _increment(store, session_id, "resume_count", expected_version)


def _increment(store: Store, session_id: str, counter: str, expected_version: int | None) -> int:
    def count(work: UnitOfWork) -> int:
        value = inputs.integer(getattr(work.session, counter) + 1, counter)
        work.change(**{counter: value})
        work.event("counter_raised", {"counter": counter, "value": value})
        return value

    return store._decide(session_id, count, expected_version)[1]


def enter(work: UnitOfWork, columns: dict[str, Any]) -> None:
    """Change the status and what was given with it."""
    before, after = work.session.status, columns["status"]
    if after == "active":
        work.change(**dict.fromkeys(CLEARED_ON_ACTIVE))
    work.change(**columns)
    if before != after:
        work.change(status_since=work.now)
    told = {"from": before, "to": after, "failure_reason": columns.get("failure_reason")}
    work.event("status_changed", {name: value for name, value in told.items() if value is not None})


def _status_columns(
    status: str, error: str | None, failure_reason: str | None, interrupt_context: JSON
) -> dict[str, Any]:
    columns = {
        "error": inputs.string_document(error, "error"),
        "failure_reason": None if failure_reason is None else inputs.text(failure_reason, "failure_reason"),
        "interrupt_context": inputs.document(interrupt_context),
    }
    given = {name: value for name, value in columns.items() if value is not None}
    return {"status": inputs.choice(status, SESSION_STATUSES, "The status"), **given}


def _statuses(values: str | Iterable[str]) -> set[str]:
    if isinstance(values, str):
        values = [values]
    if not isinstance(values, Iterable):
        raise InvalidInput("expected_statuses must be a list of statuses.")
    return {inputs.choice(value, SESSION_STATUSES, "An expected status") for value in values}
