"""The status of a session, decided from outside: set outright, or by compare-and-set."""

from collections.abc import Callable, Iterable
from typing import Any

from helix_sessions.exceptions import InvalidInput
from helix_sessions.store.calls import children
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.session_rows import SessionRow
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.transactions import check_version, write_tree
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import statuses
from helix_sessions.types import (
    JSON,
    SESSION_STATUSES,
    TERMINAL_STATUSES,
    UNSET,
    CasMismatch,
    CasOk,
    SessionStatus,
    Unset,
)


def update_status(
    store: Store,
    session_id: str,
    status: SessionStatus,
    *,
    error: JSON = None,
    failure_reason: str | None = None,
    interrupt_context: JSON = None,
    output: JSON | Unset = UNSET,
    expected_version: int | None = None,
) -> int:
    """Set the status, regardless of the present one; returns the version. `None` leaves a value as it is,
    and entering `active` clears error, failure reason and interrupt context unless given.

    Any other status ends the run under way and takes the session away from who drives it. One that ends
    waits for nothing any more, and its parent is told; one that fails or is interrupted takes its
    ephemeral children with it.
    """
    columns = statuses.columns_of(status, error, failure_reason, interrupt_context, output)
    version = inputs.expected_version(expected_version)

    def check(work: UnitOfWork) -> None:
        check_version(work, version)

    return int(_decide(store, session_id, columns, check)[0].session.version)


def compare_and_set_status(
    store: Store,
    session_id: str,
    expected_statuses: SessionStatus | Iterable[SessionStatus],
    new_status: SessionStatus,
    *,
    expected_version: int | None = None,
    interrupt_context: JSON = None,
    error: JSON = None,
    failure_reason: str | None = None,
) -> CasOk | CasMismatch:
    """Set the status if it is one of those expected, and the version too if given. A mismatch is
    returned, not raised, and changes nothing."""
    expected = _statuses(expected_statuses)
    version = inputs.expected_version(expected_version)
    columns = statuses.columns_of(new_status, error, failure_reason, interrupt_context)

    def compare(work: UnitOfWork) -> CasMismatch | None:
        session = work.session
        if session.status in expected and version in (None, session.version):
            return None
        return CasMismatch(current_status=session.status, current_version=session.version)

    work, mismatch = _decide(store, session_id, columns, compare)
    return CasOk(new_version=work.session.version) if mismatch is None else mismatch


class _NeedsMoreRows(Exception):
    """The decision is about more than the session's own row."""


def _decide(
    store: Store,
    session_id: str,
    columns: dict[str, Any],
    check: Callable[[UnitOfWork], CasMismatch | None],
) -> tuple[UnitOfWork, CasMismatch | None]:
    """Enter a status if nothing speaks against it: on the session's row alone, if it is about no other."""

    def enter(work: UnitOfWork) -> CasMismatch | None:
        mismatch = check(work)
        if mismatch is None:
            if _concerns_others(work.session, columns["status"]):
                raise _NeedsMoreRows
            statuses.enter(work, columns)
        return mismatch

    if columns["status"] not in children.STOPS_CHILDREN:
        try:
            return store._decide(session_id, enter)
        except _NeedsMoreRows:
            pass
    with write_tree(store.using, store._lease) as tree:
        parent, work = children.lock_with_parent(tree, session_key(session_id), store._owner)
        store._check_head(work)
        mismatch = check(work)
        if mismatch is None:
            children.enter(tree, parent, work, columns)
    return work, mismatch


def _concerns_others(session: SessionRow, status: str) -> bool:
    """Its parent waits for its end; or documents are to be read: it becomes active, and may have answers that
    no run has consumed yet, or it ends, and may wait for answers to its open calls."""
    if status == "active":
        return bool(session.status != "active")
    linked = session.parent_session_id is not None or session.open_calls is not None
    return linked and status in TERMINAL_STATUSES


def _statuses(values: str | Iterable[str]) -> set[str]:
    if isinstance(values, str):
        values = [values]
    if not isinstance(values, Iterable):
        raise InvalidInput("expected_statuses must be a list of statuses.")
    return {inputs.choice(value, SESSION_STATUSES, "An expected status") for value in values}
