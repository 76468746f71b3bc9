"""The doctor: finds sessions whose rows disagree, and repairs what follows from other rows."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.content import documents
from helix_sessions.exceptions import ContentUnreadable, HelixSessionsError, SessionNotFound
from helix_sessions.models import MovedSession, Session
from helix_sessions.models.guard import is_guarded
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import connect, execute, fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.remembered_rows import new_mark
from helix_sessions.store.engine.session_rows import SessionRow, lock_row
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.tables import aware, table
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.maintenance import encrypted_rows, sql
from helix_sessions.store.maintenance.invariant import Check, LookedFor, Scope
from helix_sessions.store.maintenance.invariants import invariants
from helix_sessions.store.maintenance.job import Job, pages_of_ids
from helix_sessions.store.maintenance.tree_checks import TREE_CHECKS
from helix_sessions.store.sessions.recover import recovery_policy
from helix_sessions.store.state import child_waits, pending_calls, runnable, snapshots
from helix_sessions.store.transcript import log_rows
from helix_sessions.types import PRUNED_STATUSES, Finding

_SEALED_AT_ONCE = 200
_NAMED_AT_ONCE = 500
_HIGHEST_ID = "\U0010ffff" * inputs.MAX_ID
_SCOPE = re.compile(r"IN_SCOPE\((\w+)\)")
_log = logging.getLogger("helix_sessions.doctor")


def examine_sessions(
    store: Store,
    *,
    session_ids: Iterable[str] | None = None,
    repair: bool = False,
    deep: bool = False,
    page_size: int = 500,
    on_finding: Callable[[Finding], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> list[Finding]:
    """Check every invariant of all sessions, or of these; return what is wrong.

    Writers are neither blocked nor reported by mistake: a check is one snapshot, or looks again at what
    it found. On a cluster, where nodes share no snapshot, look twice. `repair` restores what follows from
    other rows, under the session's lock, and neither raises the version nor logs an event. `deep` also
    reads and reassembles every session's state. `on_progress` gets the number of sessions checked so far.
    """
    inputs.integer(page_size, "page_size", minimum=1)
    found: list[Finding] = []

    def tell(finding: Finding) -> None:
        found.append(finding)
        if on_finding is not None:
            on_finding(finding)

    def progress(examined: _Examined) -> None:
        if on_progress is not None:
            on_progress(examined.sessions)

    job = Job(_Examined(), on_progress=progress, should_stop=should_stop)
    connect(store._connection)  # which of them it is, the server has to be asked
    can_guard = dialect_of(store._connection).takes_triggers
    if session_ids is None and can_guard and not is_guarded(store._connection):
        tell(Finding(code="log_not_guarded", session_id=None, severity="warning", detail=_UNGUARDED))
    for count, scope in job.over(_scopes(store, session_ids, page_size)):
        for check in checks(deep=deep):
            for finding in _without_hidden(store, list(check_scope(store._connection, check, scope))):
                tell(_repaired(store, check, finding) if repair and finding.repairable else finding)
        job.count(sessions=count)
    return found


def _without_hidden(store: Store, findings: list[Finding]) -> list[Finding]:
    """Without those of sessions that are on their way between cells: parts of their rows are put away."""
    keys = [finding.session_id for finding in findings if finding.session_id is not None]
    if not keys:
        return findings
    hidden = MovedSession.objects.using(store.using).filter(moved_id__among=keys)
    away = set(hidden.values_list("moved_id", flat=True))
    return [finding for finding in findings if finding.session_id not in away]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Examined:
    sessions: int = 0


def _scopes(store: Store, session_ids: Iterable[str] | None, size: int) -> Iterator[tuple[int, Scope]]:
    if session_ids is not None:
        keys, most = [session_key(key) for key in session_ids], min(size, _NAMED_AT_ONCE)
        for start in range(0, len(keys), most):
            some = keys[start : start + most]
            yield len(some), Scope(sql=f"IN ({', '.join(['%s'] * len(some))})", params=tuple(some))
        return
    # Ranges, not lists: rows of deleted sessions are between those that exist.
    last = ""
    for page in pages_of_ids(Session.with_tombstones.using(store.using), size):
        end = page[-1] if len(page) == size else _HIGHEST_ID
        yield len(page), Scope(sql="> %s AND {column} <= %s", params=(last, end))
        last = end


def _repaired(store: Store, check: Check, finding: Finding) -> Finding:
    key = str(finding.session_id)
    try:
        with locking_transaction(store.using) as connection:
            try:
                lock_row(connection, key, ("session_id",), tombstones=True)
            except SessionNotFound:
                if not finding.code.startswith("orphan_"):
                    return finding
            repair_session(connection, check, key)
            scope = Scope(sql="IN (%s)", params=(key,))
            left = list(check_scope(connection, check, scope))
    except HelixSessionsError as error:
        _log.error("%s of session %s could not be repaired: %s", finding.code, key, error.code)
        return finding
    if not left:
        _log.warning("%s of session %s was repaired: %s", finding.code, key, finding.detail)
    return replace(finding, repaired=not left)


_UNGUARDED = "the database does not refuse changes to the event log; see manage.py guard_event_log"


def check_scope(connection: BaseDatabaseWrapper, check: Check, scope: Scope) -> Iterator[Finding]:
    """The findings of one check among these sessions."""
    if isinstance(check, LookedFor):
        for session_id, detail in check.look(connection, scope):
            yield Finding(
                code=check.code,
                session_id=session_id,
                detail=detail,
                severity=check.severity,
                repairable=check.mend is not None,
            )
        return
    params: list[str] = []

    def place(match: re.Match[str]) -> str:
        params.extend(scope.params)
        return scope.on(f"{match[1]}.session_id")

    query = _SCOPE.sub(place, check.sql)
    for session_id, detail in fetch(connection, query, params, prepare=False):
        yield Finding(
            code=check.code,
            session_id=session_id,
            detail=detail,
            severity=check.severity,
            repairable=bool(check.repair),
        )


def repair_session(connection: BaseDatabaseWrapper, check: Check, session_id: str) -> None:
    """Repair one invariant of a locked session."""
    if isinstance(check, LookedFor):
        if check.mend is not None:
            check.mend(connection, session_id)
        return
    for statement in check.repair:
        execute(connection, statement, [session_id] * statement.count("%s"), prepare=False)


def _texts(
    connection: BaseDatabaseWrapper, scope: Scope, columns: tuple[str, ...], condition: str
) -> list[tuple[Any, ...]]:
    query = sql.sessions(dialect_of(connection), columns, f"{scope.on('session_id')} AND {condition}")
    found = []
    for values in fetch(connection, query, scope.params, prepare=False):
        with suppress(ContentUnreadable):  # a finding of its own
            found.append(tuple(table(Session).opened(columns, list(values))))
    return found


_WAIT_COLUMNS = (
    "awaiting_client",
    "awaiting_children",
    "waiting_since",
    "status",
    "pending_client_tool_calls",
    "suspended_awaiting_children",
)


def _look_for_flags(connection: BaseDatabaseWrapper, scope: Scope) -> Iterator[tuple[str, str]]:
    for session_id, *values in _texts(connection, scope, ("session_id", *_WAIT_COLUMNS), sql.MAY_WAIT):
        row = SessionRow(_WAIT_COLUMNS, values)
        client, children, waits_now = _should_wait(row)
        flags = (bool(row.awaiting_client), bool(row.awaiting_children), row.waiting_since is not None)
        if flags != (client, children, waits_now):
            yield session_id, f"waiting for a client, for children, at all: {flags}, by what waits it is not"


def _should_wait(row: SessionRow) -> tuple[bool, bool, bool]:
    """Whether a session waits for a client, for children, and at all, derived from its documents."""
    client = bool(pending_calls.columns(pending_calls.read(row.pending_client_tool_calls))["awaiting_client"])
    children = bool(
        child_waits.columns(child_waits.read(row.suspended_awaiting_children))["awaiting_children"]
    )
    return client, children, (client or children) and row.status not in PRUNED_STATUSES


def _mend_flag(connection: BaseDatabaseWrapper, session_id: str) -> None:
    row = lock_row(connection, session_id, (*_WAIT_COLUMNS, "updated_at"), tombstones=True)
    derived = pending_calls.columns(pending_calls.read(row.pending_client_tool_calls))
    del derived["pending_client_tool_calls"]
    _, children, waits_now = _should_wait(row)
    since = (row.waiting_since or row.updated_at) if waits_now else None
    mended = Session.with_tombstones.using(connection.alias).filter(session_id=session_id)
    mended.update(**derived, awaiting_children=children, waiting_since=since, write_mark=new_mark())


_RUN_COLUMNS = (
    *_WAIT_COLUMNS,
    *("session_id", "agent_type", "run_id", "pending_inputs", "updated_at"),
    *("runnable_at", "run_requested", "run_requested_at"),
)


def _look_for_runnable(connection: BaseDatabaseWrapper, scope: Scope) -> Iterator[tuple[str, str]]:
    for values in _texts(connection, scope, _RUN_COLUMNS, sql.MAY_BE_RUNNABLE):
        row = SessionRow(_RUN_COLUMNS, values)
        if (row.runnable_at is None) != (_should_run_at(connection, row) is None):
            found = "at no time" if row.runnable_at is None else "at some time"
            yield row.session_id, f"runnable {found}, by its run, inputs, answers and requests it is not so"


def _should_run_at(connection: BaseDatabaseWrapper, row: SessionRow) -> datetime | None:
    """When a session wants to run, as far as that follows from other facts; else as it says."""
    client, children, waits = _should_wait(row)
    vars(row).update(awaiting_client=client, awaiting_children=children)
    if row.runnable_at is not None:
        return None if waits and row.run_id is None else aware(row.runnable_at)
    if row.run_id is not None and recovery_policy(row.agent_type) == "leave":
        return None
    at = runnable.due_at(row, aware(row.updated_at))
    if at is not None and row.run_id is None and row.pending_inputs and not _asks_for_a_run(connection, row):
        vars(row).update(pending_inputs=0)
        at = runnable.due_at(row, aware(row.updated_at))
    return None if at is None else aware(at)


def _asks_for_a_run(connection: BaseDatabaseWrapper, row: SessionRow) -> bool:
    """Whether a pending input was admitted to be taken up, as far as the log tells."""
    query = sql.pending_admissions(dialect_of(connection))
    for seq, text in fetch(connection, query, [row.session_id], prepare=False):
        data = documents.load(log_rows.opened_data(row.session_id, seq, None, text))
        if data.get("resume", True):
            return True
    return False


def _mend_runnable(connection: BaseDatabaseWrapper, session_id: str) -> None:
    row = lock_row(connection, session_id, _RUN_COLUMNS, tombstones=True)
    mended = Session.with_tombstones.using(connection.alias).filter(session_id=session_id)
    mended.update(runnable_at=_should_run_at(connection, row), write_mark=new_mark())


def _look_for_owners(connection: BaseDatabaseWrapper, scope: Scope) -> Iterator[tuple[str, str]]:
    columns = ("session_id", "client_tool_call_ownership")
    rows = _texts(connection, scope, columns, sql.OWNS_CALLS)
    maps = {session_id: documents.load(text) for session_id, text in rows}
    named = {owner for owners in maps.values() for owner in owners.values() if isinstance(owner, str)}
    existing = set(
        Session.with_tombstones.using(connection.alias)
        .filter(session_id__among=named)
        .values_list("session_id", flat=True)
    )
    for session_id, owners in maps.items():
        lost = sum(owner not in existing for owner in owners.values() if isinstance(owner, str))
        if lost:
            yield session_id, f"client tool calls owned by sessions that do not exist: {lost}"


def _look_for_states(connection: BaseDatabaseWrapper, scope: Scope) -> Iterator[tuple[str, str]]:
    columns = ("session_id", "state_base", "state_number", "state_digest")
    for session_id, base, number, digest in _texts(connection, scope, columns, sql.HAS_STATE):
        try:
            state = snapshots.read(connection, session_id, base, number)
            wrong = "the state is not the one that was saved"
            if documents.digest(documents.write(state)) == digest:
                continue
        except HelixSessionsError as error:
            wrong = f"the state cannot be put together: {error.code}"
        if not _moved(connection, session_id, number):
            yield session_id, wrong


def _look_for_unreadable(connection: BaseDatabaseWrapper, scope: Scope) -> Iterator[tuple[str, str]]:
    """Content whose key is lost, or that was changed or moved. Every encrypted row is decrypted."""
    dialect = dialect_of(connection)
    query = sql.sessions(dialect, ("session_id",), scope.on("session_id"))
    for [session_id] in fetch(connection, query, scope.params, prepare=False):
        count, first = 0, ""
        for rows in encrypted_rows.tables():
            if not rows.content:
                continue
            sealed = sql.sealed(dialect, rows)
            for _, page in encrypted_rows.pages(connection, rows, session_id, sealed, _SEALED_AT_ONCE):
                for values in page:
                    try:
                        rows.opened(rows.columns, values)
                    except ContentUnreadable as error:
                        count, first = count + 1, first or str(error)
        if count:
            yield session_id, f"rows that cannot be decrypted: {count}; {first}"


def _moved(connection: BaseDatabaseWrapper, session_id: str, number: int) -> bool:
    """Whether the session got another state, or was deleted, during the read."""
    return not fetch(connection, sql.HAS_THIS_STATE, [session_id, number])


_DOCUMENT_CHECKS = (
    LookedFor(code="awaiting_client", look=_look_for_flags, mend=_mend_flag),
    LookedFor(code="runnable_at", look=_look_for_runnable, mend=_mend_runnable),
    LookedFor(code="ownership_dangling", look=_look_for_owners, severity="warning"),
)
_DEEP_CHECKS = (
    LookedFor(code="state_digest", look=_look_for_states),
    LookedFor(code="content_unreadable", look=_look_for_unreadable),
)


def checks(*, deep: bool) -> tuple[Check, ...]:
    """All that is checked, in the order of repair."""
    return (*invariants(), *TREE_CHECKS, *_DOCUMENT_CHECKS, *(_DEEP_CHECKS if deep else ()))
