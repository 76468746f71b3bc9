"""What differs from one database to another, behind one class. No other room asks which database it is.

`dialect_of` chooses the dialect of a connection. `postgres.py` and `sqlite.py` have one each; another way to
use one of these databases is one more class there, and one more line in `_CLASSES`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from django.db import DatabaseError, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone
from django.utils.module_loading import import_string

from helix_sessions.exceptions import NotConfigured
from helix_sessions.models.fields import among
from helix_sessions.models.sql import ask_again, is_distributed

if TYPE_CHECKING:
    from helix_sessions.store.engine.remembered_rows import KnownRow
    from helix_sessions.store.engine.unit_of_work import UnitOfWork

Encoder: TypeAlias = Callable[[Any], Any]
Statement: TypeAlias = tuple[str, Sequence[Any]]


class Dialect(ABC):
    """How the store speaks to one kind of database. It has no state: one instance serves every connection."""

    name: ClassVar[str]

    # Values

    number: ClassVar[str] = "%s"
    """The placeholder of a number that no column tells the type of."""
    moment: ClassVar[str] = "%s"
    """The placeholder of a time that no column tells the type of."""
    day: ClassVar[str] = "%s"
    """The placeholder of a date that no column tells the type of."""
    any_value: ClassVar[str] = "%s"
    """A placeholder into which the planner does not look: it expects the same of every value, and so plans a
    prepared statement once."""

    lease_now: ClassVar[str] = "%s"
    """The time that leases go by; `lease_clock` has its parameters."""

    def lease_clock(self) -> list[Any]:
        """The parameters of `lease_now`."""
        return self.parameters([timezone.now()])

    @abstractmethod
    def encoder(self, field: "models.Field[Any, Any]") -> Encoder | None:
        """What turns a value of a column into a parameter; `None` if it is one already."""

    @abstractmethod
    def parameters(self, values: Iterable[Any]) -> list[Any]:
        """Numbers, texts and times as parameters, where no column is at hand to encode them."""

    def as_text(self, expression: str) -> str:
        """A document, to be read as the text it was written with."""
        return expression

    @abstractmethod
    def rows_as_json(self, query: str, columns: Sequence[str]) -> str:
        """The rows of a query that has these columns, as one text: a list of lists or of objects."""

    @abstractmethod
    def contains(self, text: str, part: str) -> str:
        """A condition: the text holds this part, which is a literal of ours."""

    def among(self, column: str, values: Iterable[str]) -> tuple[str, Any]:
        """A condition that a column is one of these texts, and its one parameter, however many they are."""
        return among(self.name, column, values)

    def on_primary(self, expression: str) -> str:
        """An expression that is null on a replica."""
        return expression

    def using_index(self, name: str) -> str:
        """What follows the table of a query that should use an index, where the planner has to be told."""
        return ""

    # Locks

    @abstractmethod
    def locking(self, select: str) -> str:
        """A query of rows by their key, made to lock them until the transaction ends. `waiting` has what
        parameters it takes after its own."""

    def waiting(self) -> list[Any]:
        """How long a lock is waited for, as the last parameters of a statement that takes one."""
        return []

    def wait_for_locks(self, connection: BaseDatabaseWrapper, seconds: float) -> None:  # noqa: B027
        """Let the rest of the transaction wait so long for a lock, where the transaction decides it."""

    def own_lock_timeout(self, connection: BaseDatabaseWrapper) -> AbstractContextManager[None]:
        """Leave the lock timeout of a caller's transaction as it was."""
        return nullcontext()

    def uncompiled(self, connection: BaseDatabaseWrapper) -> AbstractContextManager[None]:
        """Let the database compile no statement of the block, where it would. A compilation takes a hundred
        times as long as a claim."""
        return nullcontext()

    def hold_name(self, connection: BaseDatabaseWrapper, name: str) -> None:  # noqa: B027
        """Let no other transaction hold this name until this one ends, where several can write at once."""

    # Writes

    creates_in_one_statement: ClassVar[bool] = False
    """Whether `create` may be tried."""

    def create(self, work: "UnitOfWork") -> bool:
        """Write a new session and all that is written with it in one statement, if it fits into one and is
        not refused; returns whether it was written. `SessionExists` if its id is taken."""
        return False

    @abstractmethod
    def insert_session(self, work: "UnitOfWork") -> None:
        """Insert the row of a new session. `SessionExists` if its id is taken."""

    @abstractmethod
    def flush(self, work: "UnitOfWork") -> str | None:
        """Write what was decided under the row's lock. Returns the row's version, where the database tells it
        with the write."""

    @abstractmethod
    def flush_if_unchanged(self, work: "UnitOfWork", known: "KnownRow") -> str | None:
        """Write what was decided on a row without its lock, if the row still is that one.

        Returns the row's version, or `None` if nothing was written because the row has changed.
        """

    def needs_no_lock(self, work: "UnitOfWork") -> bool:
        """Whether what was decided can be written by `flush_if_unchanged`."""
        return True

    @abstractmethod
    def remembers(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether a row that was written may be written again without being read."""

    shares_row_version: ClassVar[bool] = False
    """Whether all rows have one version, that of the database."""

    def shared_row_version(self, connection: BaseDatabaseWrapper) -> str | None:
        """The version of every row the transaction has written, where there is one for all of them."""
        return None

    def read_unlocked(self, connection: BaseDatabaseWrapper, session_id: str) -> "KnownRow | None":
        """The row as it is, without a lock, to be written if it is unchanged then; `None` where that does not
        pay."""
        return None

    @abstractmethod
    def wait_for_readers(self, connection: BaseDatabaseWrapper, table: str) -> None:
        """Wait until every transaction that writes, and has read the table, has ended, and let no other read
        it before this one ends."""

    claims_in_one_statement: ClassVar[bool] = False
    """Whether one statement takes a session to drive and returns it, and finds the next one, unless the
    dialect `searches_unlocked`."""
    flushed_later: ClassVar[str] = ""
    """A condition of such a statement that is always true: its commit does not wait for the disk."""

    def fetch_locking(
        self, connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any], *, lazily: bool
    ) -> list[tuple[Any, ...]]:
        """Run such a statement for a session that is named, with the store's lock timeout. `lazily`: its
        commit need not wait for the disk."""
        raise NotImplementedError

    skips_locked_rows: ClassVar[bool] = False
    """Whether a query can leave out the rows that others are taking at this moment."""
    searches_unlocked: ClassVar[bool] = False
    """Whether a session to drive is looked for before the transaction that takes it."""

    reads_any_tables: ClassVar[bool] = True
    """Whether one query may read tables of the session and tables that are shared by all."""

    # Connections

    @abstractmethod
    def prepares(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether a cursor of the store's own may be used."""

    @abstractmethod
    def new_cursor(self, raw: Any) -> Any:
        """A cursor to be cached with the connection, which takes `%s` for a placeholder."""

    most_rows_cached: ClassVar[int | None] = None
    """A cached cursor holds its last result. One with more rows than this is closed."""

    @abstractmethod
    def is_idle(self, raw: Any) -> bool:
        """Whether no transaction is open on the connection to the server."""

    def is_closed(self, raw: Any) -> bool:
        """Whether the connection to the server is known to be lost."""
        return False

    def is_direct(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether nothing pools connections between here and the server."""
        return True

    def is_durable(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether the connection is not set to lose what it committed when the power fails."""
        return True

    def begin_by_hand(self, connection: BaseDatabaseWrapper) -> None:  # noqa: B027
        """Where the caller commits by hand, see that there is a transaction for `atomic` to be a part of."""

    @abstractmethod
    def read_snapshot(self, connection: BaseDatabaseWrapper) -> AbstractContextManager[None]:
        """A read-only transaction whose queries all see the same snapshot. It locks nothing."""

    # Errors: `error` is Django's, its cause the driver's

    @abstractmethod
    def is_busy(self, error: DatabaseError) -> bool:
        """Whether the statement failed because another transaction held a lock."""

    @abstractmethod
    def is_exhausted(self, error: DatabaseError) -> bool:
        """Whether the database refused a statement for lack of room or time, so that the write is undone. An
        error of the connection does not count: it may have been lost after a commit."""

    @abstractmethod
    def is_away(self, error: DatabaseError) -> bool:
        """Whether there was no database to answer: no connection, or one that was lost."""

    def is_outcome_unknown(self, error: DatabaseError) -> bool:
        """Whether an error that looks like an answer says that a commit may or may not have happened."""
        return False

    @abstractmethod
    def lacks_tables(self, error: DatabaseError) -> bool:
        """Whether a table or a column was missing."""

    # What a database knows of itself

    @abstractmethod
    def answers(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether the database answers a query."""

    @abstractmethod
    def clock(self, connection: BaseDatabaseWrapper) -> datetime:
        """The time that all owners of leases go by."""

    def estimated_rows(self, connection: BaseDatabaseWrapper, table: str) -> int | None:
        """How many rows the planner believes a table has; `None` where it has no idea."""
        return None

    def estimated_shares(self, connection: BaseDatabaseWrapper, table: str, column: str) -> dict[str, float]:
        """Which values of a column are the most frequent, and which share of the rows each has."""
        return {}

    def bytes_per_row(self, connection: BaseDatabaseWrapper, table: str) -> float | None:
        """What a row takes on average, with its indexes; `None` where that is not known."""
        return None

    recurses_over_sessions: ClassVar[bool] = True
    """Whether one query can follow sessions to their sub-sessions at any depth."""
    takes_triggers: ClassVar[bool] = True
    """Whether the tables of sessions can have triggers."""

    def has_citus(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether tables can be spread over the machines of a Citus cluster."""
        return False


_CLASSES = {
    "postgresql": "helix_sessions.store.engine.postgres.PostgresDialect",
    "postgresql, portable": "helix_sessions.store.engine.postgres.PortablePostgresDialect",
    "postgresql, distributed": "helix_sessions.store.engine.citus.CitusDialect",
    "sqlite": "helix_sessions.store.engine.sqlite.SqliteDialect",
}
_chosen: dict[str, Dialect] = {}
"""By alias."""


def dialect_of(connection: BaseDatabaseWrapper) -> Dialect:
    """The dialect that a connection is spoken to in."""
    try:
        return _chosen[connection.alias]
    except KeyError:
        return _choose(connection)


_table_by_table = [False]


@contextmanager
def table_by_table(on: bool = True) -> Iterator[None]:
    """Write in the way that every database takes, not in the better one of this: for tests, to compare."""
    before, _table_by_table[0] = _table_by_table[0], on
    _chosen.clear()
    try:
        yield
    finally:
        _table_by_table[0] = before
        _chosen.clear()


def writes_table_by_table() -> bool:
    """Whether the better way is not taken."""
    return _table_by_table[0]


def choose_again() -> None:
    """Forget the choices: the tables have moved."""
    _chosen.clear()
    ask_again()


def _choose(connection: BaseDatabaseWrapper) -> Dialect:
    vendor = connection.vendor
    if vendor not in _CLASSES:
        raise NotConfigured(f"Sessions cannot be stored in {vendor}. Use PostgreSQL or SQLite.")
    if vendor != "postgresql":
        return _chosen.setdefault(connection.alias, _instance(_CLASSES[vendor]))
    alone = _instance(_CLASSES["postgresql, portable" if writes_table_by_table() else vendor])
    if connection.connection is None:  # there is no server to ask yet
        return alone
    try:
        distributed = is_distributed(connection)
    except DatabaseError:  # of a database that does not answer nothing is remembered
        return alone
    chosen = _instance(_CLASSES["postgresql, distributed"]) if distributed else alone
    return _chosen.setdefault(connection.alias, chosen)


@cache
def _instance(path: str) -> Dialect:
    dialect: Dialect = import_string(path)()
    return dialect
