"""What an operation is given: the database, whose sessions it may see, and under which lease it writes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.exceptions import Fenced, InvalidInput, SessionExists, SessionNotFound
from helix_sessions.models.databases import sessions_database
from helix_sessions.store.engine import inputs, moves, session_rows, transactions
from helix_sessions.store.engine.dialect import Dialect, dialect_of
from helix_sessions.store.engine.session_columns import LIGHT_COLUMNS
from helix_sessions.store.engine.session_rows import SessionRow
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.types import TOMBSTONE, UNSET, Lease

T = TypeVar("T")


class Store:
    """The alias a store works on, and its two ways to a session: reading, and writing under the lock.

    Without an alias it is the database that the project's routers write sessions to, when the store is made;
    after that no router is asked.
    `owned_by` (a user or its key) makes a store that knows the sessions of one owner only: any other id
    is unknown to it, and what it creates belongs to that owner.
    """

    def __init__(self, using: str | None = None, *, owned_by: Any = UNSET) -> None:
        self.using = sessions_database(using)
        self._owner = owned_by if owned_by is UNSET else inputs.required_owner_key(owned_by)
        self._lease: Lease | None = None
        self._written = WrittenHead()

    @property
    def _connection(self) -> BaseDatabaseWrapper:
        return connections[self.using]

    @property
    def _dialect(self) -> Dialect:
        return dialect_of(self._connection)

    def _owner_key(self, owner: Any) -> Any:
        """The key of the owner that a call names. In a store of one owner that is always this one."""
        key = inputs.owner_key(owner)
        if self._owner is UNSET:
            return key
        if key not in (None, self._owner):
            raise InvalidInput("This store is for its own owner only.")
        return self._owner

    def _read(
        self, session_id: str, columns: tuple[str, ...] = LIGHT_COLUMNS, *, tombstones: bool = False
    ) -> SessionRow:
        key = session_key(session_id)
        return session_rows.read_row(self._connection, key, columns, self._owner, tombstones=tombstones)

    def _write(
        self,
        session_id: str,
        expected_version: Any = None,
        *,
        columns: tuple[str, ...] = LIGHT_COLUMNS,
        tombstones: bool = False,
        fenced: bool = True,
    ) -> AbstractContextManager[UnitOfWork]:
        key, lease = session_key(session_id), self._lease if fenced else None
        writing = transactions.write(
            self.using,
            key,
            inputs.expected_version(expected_version),
            columns=columns,
            owner=self._owner,
            tombstones=tombstones,
            lease=lease,
        )
        return self._written.guarding(writing) if lease is not None and lease.session_id == key else writing

    def _decide(
        self,
        session_id: str,
        decision: Callable[[UnitOfWork], T],
        expected_version: Any = None,
        *,
        fenced: bool = True,
    ) -> tuple[UnitOfWork, T]:
        key, lease = session_key(session_id), self._lease if fenced else None
        guarded = lease is not None and lease.session_id == key
        work, outcome = transactions.decide(
            self.using,
            key,
            self._written.guarded(decision) if guarded else decision,
            inputs.expected_version(expected_version),
            owner=self._owner,
            lease=lease,
        )
        if guarded:
            self._written.note(work)
        return work, outcome

    def _check_head(self, work: UnitOfWork) -> None:
        """Refuse a write under a lease to a log that has lost what was written under it."""
        if self._lease is not None and self._lease.session_id == work.session.session_id:
            self._written.check(work)

    def _refuse_to_recreate(self, session_id: str) -> None:
        """Raise `Fenced` if the caller drives the session, which is gone: it must not come back."""
        if self._lease is not None and self._lease.session_id == session_id:
            raise Fenced(f"The session {session_id!r} is driven under a lease, and cannot be created.")

    def _explain_absence(self, error: SessionNotFound) -> None:
        """Raise what is known of the session that was not found: where it is, or that it has come."""
        moves.explain_absence(self._connection, error, self._owner)

    def _refuse_if_taken(self, session_id: str) -> None:
        """An id that another owner's session has, or a tombstone, will never be this store's, however often
        it is tried."""
        columns = ("owner_id", "status")
        try:
            row = session_rows.read_row(self._connection, session_id, columns, tombstones=True)
        except SessionNotFound:
            return
        session_rows.check_owner(session_id, row, self._owner)
        if row.status == TOMBSTONE:
            moves.refuse_moved(self._connection, session_id)
            raise SessionExists(f"There was a session {session_id!r}, which was deleted.")


class WrittenHead:
    """How far the log had come when it was last written under a lease.

    A log that is shorter than that has lost what its driver wrote: the database was put back, or failed over
    to a standby that was behind, to a moment of the same lease. What the driver would write next follows from
    what is not there any more, so the driver is fenced, and its session is recovered as it is.
    """

    def __init__(self) -> None:
        self._seq = 0

    def check(self, work: UnitOfWork) -> None:
        """Refuse to go on from a log that was put back."""
        if work.session.head_seq < self._seq:
            raise Fenced(
                f"The log of {work.session.session_id!r} ends at {work.session.head_seq}; under this lease it"
                f" was written up to {self._seq}. Was the database put back to an older state?"
            )

    def note(self, work: UnitOfWork) -> None:
        """Remember what was committed. Inside a caller's transaction that is not known."""
        if not work.connection.in_atomic_block:
            self._seq = max(self._seq, work.session.head_seq)

    def guarded(self, decision: Callable[[UnitOfWork], T]) -> Callable[[UnitOfWork], T]:
        """A decision that is only made on a log that is whole."""

        def decide(work: UnitOfWork) -> T:
            self.check(work)
            return decision(work)

        return decide

    @contextmanager
    def guarding(self, writing: AbstractContextManager[UnitOfWork]) -> Iterator[UnitOfWork]:
        """A write that is only made to a log that is whole."""
        with writing as work:
            self.check(work)
            yield work
        self.note(work)


def session_key(session_id: Any) -> str:
    return inputs.identifier(session_id, "The session id")
