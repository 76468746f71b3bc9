"""Transactions of the store: lock the rows, let the operation decide, flush once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.exceptions import (
    HelixSessionsError,
    SessionBusy,
    SessionNotFound,
)
from helix_sessions.store.engine import remembered_rows
from helix_sessions.store.engine.connection import (
    connect,
    errors_translated,
    is_between_transactions,
    transaction_on,
)
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.remembered_rows import KnownRow
from helix_sessions.store.engine.session_columns import ALL_COLUMNS, LIGHT_COLUMNS
from helix_sessions.store.engine.session_rows import (
    SessionRow,
    check_fence,
    check_row_version,
    lock_row,
    read_row,
)
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.types import TOMBSTONE, UNSET, Lease

T = TypeVar("T")


class Transaction:
    """The sessions that one call writes in one transaction.

    They are locked the root first, then downwards, and those of one level by id, so that two calls never
    wait for each other in a circle.
    """

    def __init__(self, connection: BaseDatabaseWrapper, lease: Lease | None = None) -> None:
        self.connection = connection
        self._lease = lease
        self._works: dict[str, UnitOfWork] = {}
        self._written: list[UnitOfWork] = []

    def lock(
        self,
        session_id: str,
        columns: tuple[str, ...] = LIGHT_COLUMNS,
        owner: Any = UNSET,
        *,
        tombstones: bool = False,
    ) -> UnitOfWork:
        """Lock one more session. Idempotent: a session that is locked already returns its `UnitOfWork`."""
        if session_id not in self._works:
            row = lock_row(self.connection, session_id, columns, owner, tombstones=tombstones)
            check_fence(row, self._lease)
            self._works[session_id] = UnitOfWork(self.connection, row, lease=self._lease)
        return self._works[session_id]

    def add(self, work: UnitOfWork) -> UnitOfWork:
        """Write a new session, too."""
        self._works[work.session.session_id] = work
        return work

    def lock_with_root(self, session_id: str, owner: Any = UNSET) -> tuple[UnitOfWork, UnitOfWork]:
        """Lock the root of a session's tree, then the session, with all columns; returns both.

        A session whose root is not stored is its own root.
        """
        named = read_row(self.connection, session_id, ("root_session_id",), owner).root_session_id
        root = None
        if named not in (None, session_id):
            try:
                root = self.lock(named, ALL_COLUMNS)
            except SessionNotFound:
                root = None
        work = self.lock(session_id, ALL_COLUMNS, owner)
        if work.session.root_session_id != named:
            raise SessionBusy(f"The session {session_id!r} was replaced meanwhile.")
        return root or work, work

    def flush(self) -> None:
        """Write what was collected for each session. A session without changes is not written."""
        self._written = [work for work in self._works.values() if work.flush()]
        shared = dialect_of(self.connection).shared_row_version(self.connection) if self._written else None
        if shared is not None:
            for work in self._written:
                work.row_version = shared

    def remember(self) -> None:
        """Remember the committed rows for the next write of this connection."""
        if is_between_transactions(self.connection):
            for work in self._written:
                if work.row_version is not None and work.session.status != TOMBSTONE:
                    remembered_rows.remember(self.connection, work.session.session_id, work.as_known())


@contextmanager
def write_tree(using: str, lease: Lease | None = None) -> Iterator[Transaction]:
    """Let the block lock sessions and decide; then flush all of them and commit. With a lease, its session is
    written only while the lease is the newest.

    A refused write has written nothing, so its transaction ends without a rollback, which would make the
    driver forget its prepared statements.
    """
    refusal: HelixSessionsError | None = None
    with locking_transaction(using) as connection:
        tree = Transaction(connection, lease)
        try:
            yield tree
        except HelixSessionsError as error:
            refusal = error
        else:
            tree.flush()
    if refusal is not None:
        raise refusal
    tree.remember()


@contextmanager
def write(
    using: str,
    session_id: str,
    expected_version: int | None = None,
    *,
    columns: tuple[str, ...] = LIGHT_COLUMNS,
    owner: Any = UNSET,
    tombstones: bool = False,
    lease: Lease | None = None,
) -> Iterator[UnitOfWork]:
    """Lock a session, check the expected version, let the block decide, flush, commit."""
    with write_tree(using, lease) as tree:
        work = tree.lock(session_id, columns, owner, tombstones=tombstones)
        check_version(work, expected_version)
        yield work


class _NeedsLock(Exception):
    """The write does nothing, or does not fit into one statement."""


def decide(
    using: str,
    session_id: str,
    decision: Callable[[UnitOfWork], T],
    expected_version: int | None = None,
    *,
    owner: Any = UNSET,
    lease: Lease | None = None,
) -> tuple[UnitOfWork, T]:
    """Make a write that is decided by a function of the row: without a lock, on condition that the row is
    still unchanged when it is written. If it is not, it is decided again under the lock. For the hot paths.

    The row is the one that this connection wrote last, or is read without a lock, where that pays: then a
    write takes two statements instead of the four of a transaction.

    The decision may be made several times, so it only collects; it may read rows that never change.
    """
    connection = connections[using]
    for look in (remembered_rows.recall, dialect_of(connection).read_unlocked):
        known = look(connection, session_id)
        if known is None or owner not in (UNSET, known.values["owner_id"]):
            continue
        try:
            done = _decide_unlocked(connection, known, decision, expected_version, lease)
        except _NeedsLock:
            break
        if done is not None:
            return done
        remembered_rows.forget(connection, session_id)
    with write(using, session_id, expected_version, owner=owner, lease=lease) as work:
        outcome = decision(work)
    return work, outcome


def _decide_unlocked(
    connection: BaseDatabaseWrapper,
    known: KnownRow,
    decision: Callable[[UnitOfWork], T],
    expected_version: int | None,
    lease: Lease | None,
) -> tuple[UnitOfWork, T] | None:
    """Try the write without the lock. Returns `None` if the row has changed, or if the write is refused on
    the row as it was."""
    work = UnitOfWork(connection, SessionRow.of(known), lease=lease)
    if expected_version not in (None, work.session.version):
        return None
    try:
        check_fence(work.session, lease)
        outcome = decision(work)
    except HelixSessionsError:
        return None
    if not work.stamp() or work.ahead or not work.changes or not work.dialect.needs_no_lock(work):
        raise _NeedsLock
    with errors_translated(connection):
        work.row_version = work.dialect.flush_if_unchanged(work, known)
    if work.row_version is None:
        return None
    remembered_rows.remember(connection, work.session.session_id, work.as_known())
    work.notify_after_commit()
    return work, outcome


def create(using: str, build: Callable[[BaseDatabaseWrapper], UnitOfWork]) -> UnitOfWork:
    """Write a new session: in one statement where the database has one for it, otherwise in a transaction.
    `build` may be called twice, so it only collects."""
    connection = connections[using]
    connect(connection)
    if dialect_of(connection).creates_in_one_statement and is_between_transactions(connection):
        work = build(connection)
        work.stamp()
        with errors_translated(connection):
            created = work.dialect.create(work)
        if created:
            remembered_rows.remember(connection, work.session.session_id, work.as_known())
            work.notify_after_commit()
            return work
    with write_tree(using) as tree:
        return tree.add(build(tree.connection))


def check_version(work: UnitOfWork, expected_version: int | None) -> None:
    check_row_version(work.session, expected_version)


@contextmanager
def locking_transaction(using: str) -> Iterator[BaseDatabaseWrapper]:
    """A transaction, or a part of the caller's, in which rows are locked."""
    with transaction_on(using) as connection, dialect_of(connection).own_lock_timeout(connection):
        yield connection
