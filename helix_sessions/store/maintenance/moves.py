"""Moves an owner's sessions to another database, a cell, while they are written and driven.

1. Copies are made in the target, hidden: absent to every call, list and worker. They are caught up.
2. The owner is closed in the source: no new session of theirs begins there. Then all are known in the target.
3. Tree by tree: the source is hidden and fenced in one transaction; the copy is caught up and made live in
   another; the source is removed. At every moment a session is live in one of the two, or in neither while
   its last rows are copied.

Each step is kept in both databases, so the same call goes on where another was stopped.
"""

import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, TypeVar

from django.db import connections
from django.utils import timezone

from helix_sessions.exceptions import HelixSessionsError, InvalidInput, SessionBusy, SessionNotFound
from helix_sessions.models import ArchivedRange, BlobRef, MovedOwner, MovedSession
from helix_sessions.models.moves import ARRIVING, LEAVING, LEFT, SETTLING
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import connect, transaction_on
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.session_columns import ALL_COLUMNS
from helix_sessions.store.engine.spending import key_of_owner
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.transactions import Transaction, locking_transaction
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.maintenance import exports, owner_rows, tree_copies
from helix_sessions.store.maintenance.job import Job
from helix_sessions.store.maintenance.tree_copies import HIDDEN, Route
from helix_sessions.store.sessions.delete import children_of
from helix_sessions.store.state import runnable
from helix_sessions.stream.wakeups import notify_readers_after_commit
from helix_sessions.types import UNSET, MoveSummary

_COPY_ROUNDS = 3
_ATTEMPTS = 20
T = TypeVar("T")
_log = logging.getLogger("helix_sessions.moves")


def move_owner(
    store: Store,
    owner: Any,
    to: str,
    *,
    shared_storage: bool = False,
    on_progress: Callable[[MoveSummary], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> MoveSummary:
    """Move everything of an owner to the database with the alias `to`, while it is in use.

    Calls for a session that has gone raise `SessionMoved`, which names the other database. When this is
    stopped or killed nothing is lost: call it again, and it goes on. Called again at the end, it moves
    what processes that still used the old database have left there since.

    Posted attachments and archived events are in files. An owner who has any moves only with
    `shared_storage`, which says that both databases have the same storages.
    """
    key = inputs.required_owner_key(owner)
    route = _checked_route(store, key_of_owner(key), to)
    job = Job(MoveSummary(), _log, on_progress=on_progress, should_stop=should_stop)
    if not shared_storage:
        _refuse_files(store, key)
    state = _begin(route)
    if state != LEFT:
        _copy_all(store, route, key, job)
        owner_rows.take_memories(route, key, keep=True)
        if job.is_stopped:
            return job.summary
        owner_rows.take_schedules(route, key)
        _patiently(lambda: _close(route))
        for root in exports.roots_of_owner(store, key):
            _copy(route, root, job)
        owner_rows.copy_rows(route, key)
        owner_rows.carry_spending(route)
        _open(route)
    for root in job.over(_to_switch(store, route, key)):
        _switch(store, route, root, job)
    if not job.is_stopped:
        _finish(route, key, job)
    return job.summary


def _checked_route(store: Store, tenant: str, to: str) -> Route:
    if store._owner is not UNSET:
        raise InvalidInput("A move takes whole trees along; use a store without an owner.")
    if to not in connections.settings or to == store.using:
        raise InvalidInput(f"{to!r} is not another database of this project.")
    for alias in (store.using, to):
        connect(connections[alias])
        if connections[alias].in_atomic_block:
            raise InvalidInput("A move is many transactions; it cannot be a part of one.")
    return Route(tenant, store.using, to)


def _refuse_files(store: Store, owner: Any) -> None:
    """Raise `InvalidInput` if a session of the owner has content in files."""
    for root in exports.roots_of_owner(store, owner):
        members = exports.tree_of(store.using, root, tombstones=True)
        blobs = BlobRef.objects.using(store.using).filter(posted=True)
        archives = ArchivedRange.objects.using(store.using)
        if any(rows.filter(session__session_id__among=members).exists() for rows in (blobs, archives)):
            raise InvalidInput(
                f"The tree {root!r} has attachments or archived events in files. Say shared_storage if both "
                "databases have the same BLOB_STORAGE and ARCHIVE_STORAGE."
            )


# The owner


def _begin(route: Route) -> str | None:
    """Note in the target that the owner arrives; returns the state of the owner in the source."""
    leaving = MovedOwner.objects.using(route.source).filter(tenant=route.tenant).first()
    if leaving is not None and leaving.state in (ARRIVING, SETTLING):
        raise InvalidInput(f"This owner is still on the way here from {leaving.cell!r}; end that move first.")
    if leaving is not None and leaving.cell != route.target:
        raise InvalidInput(f"This owner is moving, or has moved, to {leaving.cell!r}.")
    state = None if leaving is None else leaving.state
    with transaction_on(route.target):
        rows = MovedOwner.objects.using(route.target).select_for_update()
        found = rows.filter(tenant=route.tenant).first()
        if found is None or found.state == LEFT:  # they come back
            values = {"state": SETTLING if state == LEFT else ARRIVING, "cell": route.source, "progress": {}}
            rows.update_or_create(tenant=route.tenant, defaults={**values, "since": timezone.now()})
        elif found.cell != route.source or found.state == LEAVING:
            raise InvalidInput(f"In {route.target!r} this owner moves to or from {found.cell!r} already.")
    return state


def _close(route: Route) -> None:
    """Let no new session of the owner begin in the source. Those that are beginning are waited for: each has
    read the table in its transaction."""
    with locking_transaction(route.source) as connection:
        dialect_of(connection).wait_for_readers(connection, table(MovedOwner).name)
        MovedOwner.objects.using(route.source).update_or_create(
            tenant=route.tenant,
            defaults={"state": LEAVING, "cell": route.target, "since": timezone.now()},
        )


def _open(route: Route) -> None:
    """All sessions are known in the target: new ones may begin there, and callers are sent there."""
    arriving = MovedOwner.objects.using(route.target).filter(tenant=route.tenant, cell=route.source)
    with transaction_on(route.target):
        arriving.update(state=SETTLING)
    with transaction_on(route.source):
        MovedOwner.objects.using(route.source).filter(tenant=route.tenant).update(state=LEFT)


def _finish(route: Route, owner: Any, job: Job[MoveSummary]) -> None:
    job.count(memories=owner_rows.take_memories(route, owner))
    owner_rows.take_rows(route, owner)
    owner_rows.take_schedules(route, owner)
    owner_rows.carry_spending(route)
    owner_rows.forget_spending(route, owner)
    orphans = MovedSession.objects.using(route.target).filter(
        tenant=route.tenant, state=ARRIVING, cell=route.source
    )
    for root in sorted(set(orphans.values_list("root_id", flat=True))):
        tree_copies.drop_copy(route, root)  # deleted in the source before it could leave
    owner_rows.enable_schedules(route)
    with transaction_on(route.target):
        MovedOwner.objects.using(route.target).filter(tenant=route.tenant, cell=route.source).delete()


# Copies


def _copy_all(store: Store, route: Route, owner: Any, job: Job[MoveSummary]) -> None:
    """Copy every tree, then those that were written meanwhile, so that little is left to catch up."""
    for _ in range(_COPY_ROUNDS):
        copied = 0
        for root in job.over(exports.roots_of_owner(store, owner)):
            if not tree_copies.is_current(route, root):
                _copy(route, root, job)
                copied += 1
        if not copied or job.is_stopped:
            return


def _copy(route: Route, root: str, job: Job[MoveSummary]) -> None:
    job.count(records=_patiently(lambda: tree_copies.copy_tree(route, root)))


# Trees


def _to_switch(store: Store, route: Route, owner: Any) -> Iterator[str]:
    """The roots of the trees that were being switched, then of those that are still in the source."""
    leaving = MovedSession.objects.using(route.source).filter(tenant=route.tenant, state=LEAVING)
    yield from sorted(set(leaving.values_list("root_id", flat=True)))
    yield from exports.roots_of_owner(store, owner)


def _switch(store: Store, route: Route, root: str, job: Job[MoveSummary]) -> None:
    if not tree_copies.is_current(route, root):
        _copy(route, root, job)  # the last rows before the sessions are hidden
    sessions = _patiently(lambda: _hide(store, route, root))
    job.count(records=_patiently(lambda: tree_copies.copy_tree(route, root, live=True)))
    _patiently(lambda: tree_copies.remove_source(route, root))
    job.count(trees=1 if sessions else 0, sessions=sessions)


def _hide(store: Store, route: Route, root: str) -> int:
    """Hide the sessions of a tree in one transaction, and fence their drivers; returns how many. Its copy is
    in the target: from here on that is what says whether the tree has become live."""
    arriving = MovedSession.objects.using(route.target).filter(moved_id=root, state=ARRIVING)
    with locking_transaction(store.using) as connection:
        tree = Transaction(connection)
        works: list[UnitOfWork] = []
        level, seen = {root}, set[str]()
        while level:
            seen |= level
            found = [work for key in sorted(level) if (work := _locked(tree, key)) is not None]
            works += found
            level = children_of(store.using, [work.session.session_id for work in found]) - seen
        known = MovedSession.objects.using(store.using).filter(moved_id__among=sorted(seen), state=LEAVING)
        if not works or known.exists():
            return 0
        if not arriving.exists():
            raise SessionBusy(f"The tree {root!r} has no copy in {route.target!r} yet.")
        left = MovedSession.objects.using(store.using)
        left.filter(moved_id__among=sorted(seen)).delete()  # it had gone, and come back
        left.bulk_create([_hidden(work, route, root) for work in works])
        tree.flush()
        for work in works:
            notify_readers_after_commit(connection, work.session.session_id, None)
    return len(works)


def _locked(tree: Transaction, session_id: str) -> UnitOfWork | None:
    try:
        return tree.lock(session_id, ALL_COLUMNS, tombstones=True)
    except SessionNotFound:
        return None


def _hidden(work: UnitOfWork, route: Route, root: str) -> MovedSession:
    """Hide a locked session: what it had is kept for its copy, and its driver is fenced."""
    session = work.session
    work.versioned = False
    if session.lease_owner is not None:
        work.change(lease_owner=None, lease_token=None, lease_expires_at=None)
        runnable.give_back(work)
    work.change(fence=session.fence + 1)
    had = {name: getattr(session, name) for name in HIDDEN}
    work.change(**HIDDEN)
    work.notices.clear()
    return route.leaving(session, root, {name: _written(value) for name, value in had.items()})


def _written(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _patiently(step: Callable[[], T]) -> T:
    """A step that waits for writers, again while they hold a row."""
    for attempt in range(_ATTEMPTS):
        try:
            return step()
        except SessionBusy:
            if attempt == _ATTEMPTS - 1:
                raise
    raise HelixSessionsError  # never reached
