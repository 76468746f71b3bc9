"""The unit of work: it collects what a call writes to one session, and flushes it once.

Every write of the store goes through here, so the ground rules are in one place: the version rises by one,
the sequence numbers have no gaps, and the time never goes back.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db import models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from helix_sessions.conf import conf
from helix_sessions.content import blobs, documents
from helix_sessions.models import BlobRef, Event, Message, MessageWords
from helix_sessions.store.engine import (
    kept_blobs,
    message_words,
    moments,
    open_calls,
    remembered_rows,
    spending,
)
from helix_sessions.store.engine.connection import after_commit
from helix_sessions.store.engine.dialect import Statement, dialect_of
from helix_sessions.store.engine.remembered_rows import KnownRow
from helix_sessions.store.engine.session_columns import LIGHT_COLUMNS
from helix_sessions.store.engine.session_rows import SessionRow
from helix_sessions.store.engine.tables import Row, table, update_sql
from helix_sessions.stream.wakeups import notify_readers_after_commit
from helix_sessions.types import PRUNED_STATUSES, UNSET, Lease, Unset

_log = logging.getLogger("helix_sessions.writes")


_SAYS_WHETHER_IT_WAITS = frozenset(("status", "awaiting_client", "awaiting_children"))


_SEQ = table(Event).columns.index("seq")


def refer_sql() -> str:
    """A reference to an attachment; one that is there stays, and what was posted stays posted."""
    name = table(BlobRef).name
    return (
        f'INSERT INTO {name} ("session_id", "blob_id", "posted") VALUES (%s, %s, %s)'  # noqa: S608
        ' ON CONFLICT ("session_id", "blob_id")'
        f' DO UPDATE SET "posted" = {name}."posted" OR excluded."posted"'
    )


class UnitOfWork:
    """What one call is about to write to one session."""

    def __init__(
        self,
        connection: BaseDatabaseWrapper,
        session: SessionRow,
        *,
        new: bool = False,
        lease: Lease | None = None,
    ) -> None:
        self.connection = connection
        self.dialect = dialect_of(connection)
        self.session = session
        self.is_drivers = lease is not None and lease.session_id == session.session_id
        """Whether this is a write of the session's driver, under its lease."""
        self.now: datetime = timezone.now()
        """The time of this write. Within a session it never goes back, even if the clock does."""
        if not new:
            self.now = max(self.now, session.updated_at)
        self.versioned = True
        """Whether this write raises the version."""
        self.new = new
        self.changes: dict[str, Any] = {}
        self.inserts: dict[type[models.Model], list[Row]] = {}
        self.replacing: set[type[models.Model]] = set()
        """The tables whose new rows replace those with the same key (upsert)."""
        self.statements: list[tuple[str, list[Any]]] = []
        self.guardable = True
        """Whether each of these statements ends in a condition, to which another can be added."""
        self.ahead: list[tuple[str, list[Any]]] = []
        """Statements that run before any row is added."""
        self.row_version: str | None = None
        """The version of the row as this write left it, if the database has told it."""
        self.notices: dict[str, Callable[[], None]] = {}
        """What to do once this write has committed, by name: each is done once."""
        self.moments: list[moments.Moment] = []
        """What webhooks and signals are told of this write."""
        self.spent = spending.NOTHING
        """What this write counts as spent."""
        self.asks_spend = False
        """Whether it is told how the limits of spending stand, even if it spends nothing."""
        self.question: Statement | None = None
        """A query that is answered with this write, as the tables were before it."""
        self.answer: list[Any] | None = None
        self.standings: spending.Standings | None = None
        """How the limits of spending stand after this write, once it is read from the answer."""
        self.blobs: dict[str, bool] = {}
        """The attachments that this write refers to, and whether they are posted."""
        self.blob_length = blobs.shortest()
        """Texts that are shorter have no attachments; `None`: no text is looked at."""

    def change(self, **columns: Any) -> None:
        """Set columns of the session's row."""
        self.session.__dict__.update(columns)
        self.changes.update(columns)

    def insert(self, model: type[models.Model], /, **values: Any) -> None:
        """Add a row to a table of the session. Columns that are not given are null."""
        values["session_id"] = self.session.session_id
        if self.blob_length is not None:
            values = self._without_blobs(model, values)
        rows = self.inserts.setdefault(model, [])
        rows.append(tuple(map(values.get, table(model).columns)))

    def put(self, model: type[models.Model], /, **values: Any) -> None:
        """Add a row, or replace the one with the same key (upsert)."""
        self.replacing.add(model)
        self.insert(model, **values)

    def update(self, model: type[models.Model], key: dict[str, Any], /, **values: Any) -> None:
        """Change one row of the session in another table."""
        self.statements.append(self._update(model, key, values))

    def update_first(self, model: type[models.Model], key: dict[str, Any], /, **values: Any) -> None:
        """Change a row before any row is added, because a new row would collide with it."""
        self.ahead.append(self._update(model, key, values))

    def _update(
        self, model: type[models.Model], key: dict[str, Any], values: dict[str, Any]
    ) -> tuple[str, list[Any]]:
        if self.blob_length is not None:
            values = self._without_blobs(model, values)
        keys = {"session_id": self.session.session_id, **key}
        sql = update_sql(model, tuple(values), tuple(keys))
        encode = table(model).encoder(self.dialect, (*values, *keys))
        return sql, encode([*values.values(), *keys.values()])

    def _without_blobs(self, model: type[models.Model], values: dict[str, Any]) -> dict[str, Any]:
        """The values of a row, large attachments of its documents kept elsewhere."""
        for name in table(model).content:
            text = values.get(name)
            if text is None or len(text) <= (self.blob_length or 0):
                continue
            extracted = kept_blobs.take_out(self.connection.alias, text)
            if extracted is not None:
                values = {**values, name: extracted.text}
                self.refer_to_blobs(extracted.digests)
        return values

    def refer_to_blobs(self, digests: Iterable[str], *, posted: bool = False) -> None:
        """Note that the session has these attachments. What was `posted` stays so."""
        for digest in digests:
            self.blobs[digest] = posted or self.blobs.get(digest, False)
        if not self.session.has_blobs:
            self.change(has_blobs=True)

    def delete(self, model: type[models.Model], *conditions: tuple[str, str, Any]) -> None:
        """Remove rows of the session from another table: all of them, or those that meet the conditions, each
        a column, an operator and a value."""
        where = "".join(f' AND "{column}" {compares} %s' for column, compares, _ in conditions)
        sql = f'DELETE FROM {table(model).name} WHERE "session_id" = %s{where}'  # noqa: S608
        params = [self.session.session_id, *(value for _, _, value in conditions)]
        self.statements.append((sql, self.dialect.parameters(params)))

    def statement(self, sql: str, params: Sequence[Any]) -> None:
        """Add any other statement to this write."""
        self.guardable = False
        self.statements.append((sql, self.dialect.parameters(params)))

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
        """Append an event to the log; returns its sequence number. `data` is a small value of ours, `text` a
        document."""
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
        if kind in moments.OF_EVENTS and isinstance(data, dict):
            moment = moments.of_event(kind, seq, data)
            self.moments += [] if moment is None else [moment]
        return seq

    def message(
        self, role: str, text: str, *, run_id: str | Unset | None = UNSET, turn_id: str | None = None
    ) -> int:
        """Append a message to the transcript and its event to the log; returns the sequence number."""
        position: int = self.session.message_count
        seq = self.event(f"{role}_message", run_id=run_id, turn_id=turn_id, message_position=position)
        self.insert(Message, position=position, seq=seq, role=role, content=text)
        if conf.TRANSCRIPT_SEARCH:
            self._keep_words(seq, text)
        self.session.message_count = self.changes["message_count"] = position + 1
        before = self.session.open_calls
        open_now = open_calls.after(before, role, text, position)
        if open_now != before:
            self.change(open_calls=open_now)
        return seq

    def spend(self, amount: spending.Spent) -> None:
        """Count what the session has spent."""
        self.spent = self.spent.plus(amount)

    def _keep_words(self, seq: int, text: str) -> None:
        """Keep the words of a message for the search in transcripts."""
        if message_words.are_kept() and (found := message_words.words_in(text)):
            self.insert(MessageWords, seq=seq, searchable=found)

    def note_activity(self) -> None:
        """Note a sign of the agent: of one that runs, or whose run this write begins."""
        if self.session.run_id is not None:
            self.change(last_agent_activity_at=self.now)

    def flush(self) -> bool:
        """Write everything, in as few statements as the database allows; returns whether there was any."""
        if not self.stamp():
            return False
        if not (self.new and self.dialect.creates_in_one_statement and self.dialect.create(self)):
            if self.new:
                self.dialect.insert_session(self)
            self.row_version = self.dialect.flush(self)
        self.notify_after_commit()
        return True

    def notify_after_commit(self) -> None:
        """Tell signals, readers and runners of this write once it has committed."""
        if self.moments:
            moments.announce(self)
        if _log.isEnabledFor(logging.DEBUG):
            self._log_after_commit()
        if Event in self.inserts:
            notify_readers_after_commit(
                self.connection, self.session.session_id, self.inserts[Event][0][_SEQ]
            )
        for notice in self.notices.values():
            after_commit(self.connection, notice)

    def _log_after_commit(self) -> None:
        session, kind = self.session, table(Event).columns.index("type")
        details = {
            "session_id": session.session_id,
            "run_id": session.run_id,
            "version": session.version,
            "head_seq": session.head_seq,
            "events": [row[kind] for row in self.inserts.get(Event, ())],
        }
        transaction.on_commit(
            lambda: _log.debug("wrote", extra=details), using=self.connection.alias, robust=True
        )

    def stamp(self) -> bool:
        """Set the version and the time of the write; returns whether there is anything to write."""
        if not (self.changes or self.inserts or self.statements):
            return False
        if not _SAYS_WHETHER_IT_WAITS.isdisjoint(self.changes):
            self._note_waiting()
        if self.is_drivers:
            self.note_activity()
        if self.moments:
            moments.record(self)
        if self.asks_spend or self.spent != spending.NOTHING:
            spending.record(self)
        for digest in sorted(self.blobs):
            self.statement(refer_sql(), [self.session.session_id, digest, self.blobs[digest]])
        if self.versioned:
            self.change(version=self.session.version + (0 if self.new else 1), updated_at=self.now)
        elif "head_seq" in self.changes:
            self.change(updated_at=self.now)
        if self.changes:
            self.session.write_mark = self.changes["write_mark"] = remembered_rows.new_mark()
        return True

    def _note_waiting(self) -> None:
        """Set `waiting_since` from the rest of the row. A session that waits already keeps it."""
        session = self.session
        waits = session.awaiting_client or session.awaiting_children
        waits = waits and session.status not in PRUNED_STATUSES
        if waits != (session.waiting_since is not None):
            self.change(waiting_since=self.now if waits else None)

    def as_known(self) -> KnownRow | None:
        """The row as this write left it, for the next write; `None` if a part of it is unreadable, or if its
        version is not known."""
        columns = vars(self.session)
        if self.row_version is None or "unreadable" in columns or columns["write_mark"] is None:
            return None
        if len(columns) == len(LIGHT_COLUMNS):  # nothing else was read or set
            return KnownRow(self.row_version, columns.copy())
        return KnownRow(self.row_version, {name: columns[name] for name in LIGHT_COLUMNS})
