"""The unit of work: one session row locked, what it needs collected, everything flushed once.

Every write of the store goes through here, so the ground rules live in this one place: the lock, the
version check, the version that rises by one, the gapless sequence numbers, the time that never goes back.
"""

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from helix_sessions.content import documents
from helix_sessions.exceptions import (
    SessionExists,
)
from helix_sessions.models import Event, Message, Session
from helix_sessions.store.engine import flush, open_calls, remembered_rows
from helix_sessions.store.engine.connection import (
    execute,
    lock_timeout,
)
from helix_sessions.store.engine.remembered_rows import KnownRow
from helix_sessions.store.engine.session_rows import ALL_COLUMNS, LIGHT_COLUMNS, SessionRow
from helix_sessions.store.engine.tables import Row, insert_sql, table, update_sql
from helix_sessions.stream.wakeups import wake_after_commit
from helix_sessions.types import PRUNED_STATUSES, UNSET, Unset

_log = logging.getLogger("helix_sessions.writes")


_SAYS_WHETHER_IT_WAITS = frozenset(("status", "awaiting_client", "awaiting_children"))


_SEQ = table(Event).columns.index("seq")


class UnitOfWork:
    """What one call is about to write to one session."""

    def __init__(self, connection: BaseDatabaseWrapper, session: SessionRow, *, new: bool = False) -> None:
        self.connection = connection
        self.session = session
        self.now: datetime = timezone.now()
        """When this write takes place. It never goes back within a session, whatever the clock does."""
        if not new:
            self.now = max(self.now, session.updated_at)
        self.versioned = True
        """Whether this write raises the version."""
        self.new = new
        self.changes: dict[str, Any] = {}
        self.inserts: dict[type[models.Model], list[Row]] = {}
        self.replacing: set[type[models.Model]] = set()
        """The tables whose new rows take the place of others."""
        self.statements: list[tuple[str, list[Any]]] = []
        self.ahead: list[tuple[str, list[Any]]] = []
        """Statements that make room for new rows."""
        self.mark: str | None = None
        """What the row is known by as this write left it."""

    def change(self, **columns: Any) -> None:
        """Set columns of the session's row."""
        self.session.__dict__.update(columns)
        self.changes.update(columns)

    def insert(self, model: type[models.Model], /, **values: Any) -> None:
        """Add a row to a table of the session. Columns that are not given are null."""
        values["session_id"] = self.session.session_id
        rows = self.inserts.setdefault(model, [])
        rows.append(tuple(map(values.get, table(model).columns)))

    def put(self, model: type[models.Model], /, **values: Any) -> None:
        """Add a row, in place of one with the same key."""
        self.replacing.add(model)
        self.insert(model, **values)

    def update(self, model: type[models.Model], key: dict[str, Any], /, **values: Any) -> None:
        """Change one row of the session in another table."""
        self.statements.append(self._update(model, key, values))

    def update_first(self, model: type[models.Model], key: dict[str, Any], /, **values: Any) -> None:
        """`update`, before any row is added: for what a new row would collide with."""
        self.ahead.append(self._update(model, key, values))

    def _update(
        self, model: type[models.Model], key: dict[str, Any], values: dict[str, Any]
    ) -> tuple[str, list[Any]]:
        keys = {"session_id": self.session.session_id, **key}
        sql = update_sql(model, tuple(values), tuple(keys))
        encode = table(model).encoder(self.connection.vendor, (*values, *keys))
        return sql, encode([*values.values(), *keys.values()])

    def delete(self, model: type[models.Model], condition: str = "", params: Sequence[Any] = ()) -> None:
        """Remove rows of the session from another table; `condition` is SQL about them."""
        where = f'"session_id" = %s{" AND " + condition if condition else ""}'
        sql = f"DELETE FROM {table(model).name} WHERE {where}"  # noqa: S608
        as_text = self.connection.vendor == "postgresql"
        values = [str(value) if as_text else value for value in params]
        self.statements.append((sql, [self.session.session_id, *values]))

    def statement(self, sql: str, params: Sequence[Any]) -> None:
        """Anything else that belongs to this write."""
        self.statements.append((sql, list(params)))

    def event(
        self,
        kind: str,
        data: Any = UNSET,
        *,
        text: str | None = None,
        run_id: str | Unset | None = UNSET,
        turn_id: str | None = None,
        message_position: int | None = None,
    ) -> int:
        """Append to the log; the event's number. `data` is a small value of ours, `text` a document."""
        seq: int = self.session.head_seq + 1
        self.session.head_seq = self.changes["head_seq"] = seq
        self.insert(
            Event,
            seq=seq,
            type=kind,
            data=text if data is UNSET else documents.write(data),
            message_position=message_position,
            turn_id=turn_id,
            run_id=self.session.run_id if run_id is UNSET else run_id,
            created_at=self.now,
        )
        return seq

    def message(
        self, role: str, text: str, *, run_id: str | Unset | None = UNSET, turn_id: str | None = None
    ) -> int:
        """Append to the transcript, and to the log; the event's number."""
        position: int = self.session.message_count
        seq = self.event(f"{role}_message", run_id=run_id, turn_id=turn_id, message_position=position)
        self.insert(Message, position=position, seq=seq, role=role, content=text)
        self.session.message_count = self.changes["message_count"] = position + 1
        before = self.session.open_calls
        open_now = open_calls.after(before, role, text, position)
        if open_now != before:
            self.change(open_calls=open_now)
        return seq

    def flush(self) -> bool:
        """Write everything, in as few statements as the engine allows; whether there was anything."""
        if not self.stamp():
            return False
        if self.new:
            self._insert_session()
        self.mark = flush.all_of(self)
        self.wake_readers()
        return True

    def wake_readers(self) -> None:
        """Tell those who read along, once the transaction has committed."""
        if _log.isEnabledFor(logging.DEBUG):
            self._tell_after_commit()
        if Event in self.inserts:
            wake_after_commit(self.connection, self.session.session_id, self.inserts[Event][0][_SEQ])

    def _tell_after_commit(self) -> None:
        session, kind = self.session, table(Event).columns.index("type")
        told = {
            "session_id": session.session_id,
            "run_id": session.run_id,
            "version": session.version,
            "head_seq": session.head_seq,
            "events": [row[kind] for row in self.inserts.get(Event, ())],
        }
        transaction.on_commit(
            lambda: _log.debug("wrote", extra=told), using=self.connection.alias, robust=True
        )

    def stamp(self) -> bool:
        """Give the write its version and its time; whether there is anything to write."""
        if not (self.changes or self.inserts or self.statements):
            return False
        if not _SAYS_WHETHER_IT_WAITS.isdisjoint(self.changes):
            self._note_waiting()
        if self.versioned:
            self.change(version=self.session.version + (0 if self.new else 1), updated_at=self.now)
        elif "head_seq" in self.changes:
            self.change(updated_at=self.now)
        if self.changes:
            self.session.write_mark = self.changes["write_mark"] = remembered_rows.new_mark()
        return True

    def _note_waiting(self) -> None:
        """`waiting_since` follows from what else the row says; one that goes on waiting keeps it."""
        session = self.session
        waits = session.awaiting_client or session.awaiting_children
        waits = waits and session.status not in PRUNED_STATUSES
        if waits != (session.waiting_since is not None):
            self.change(waiting_since=self.now if waits else None)

    def _insert_session(self) -> None:
        sql = f"{insert_sql(Session, ALL_COLUMNS, 1)} ON CONFLICT DO NOTHING"
        encode = table(Session).encoder(self.connection.vendor, ALL_COLUMNS)
        params = encode([getattr(self.session, column) for column in ALL_COLUMNS])
        if self.connection.vendor == "postgresql":
            # As with the lock: how long to wait for another creation of this id is set by the statement.
            timed = "(CASE WHEN set_config('lock_timeout', %s, true) IS NOT NULL THEN %s END"
            sql = sql.replace("(%s", timed, 1)
            params.insert(0, lock_timeout())
        if execute(self.connection, sql, params) == 0:
            raise SessionExists(f"There is a session {self.session.session_id!r} already.")

    def as_known(self) -> KnownRow | None:
        """The row as this write left it, for the next one; `None` if a part of it could not be read, or
        nothing tells it from another."""
        columns = vars(self.session)
        if self.mark is None or "unreadable" in columns or columns["write_mark"] is None:
            return None
        if len(columns) == len(LIGHT_COLUMNS):  # nothing else was read or set
            return KnownRow(self.mark, columns.copy())
        return KnownRow(self.mark, {name: columns[name] for name in LIGHT_COLUMNS})
