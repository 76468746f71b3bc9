"""What was said so far of a message under way: published at once, kept soon after, gone with its commit."""

import asyncio
import threading
from datetime import datetime
from itertools import chain
from typing import Any

from django.db import NotSupportedError, connections
from django.utils import timezone

from helix_sessions.content import documents
from helix_sessions.models import FragmentBatch, Session
from helix_sessions.store.engine import ids
from helix_sessions.store.engine.connection import execute, fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.tables import insert_sql, table
from helix_sessions.store.transcript import sql
from helix_sessions.stream.fragment_writer import PendingBatch, writer_of
from helix_sessions.stream.hub import hub
from helix_sessions.types import JSON, Fragment

_ROWS_AT_ONCE = 50


class MessageStream:
    """The fragments of one message, as a turn says it. Any thread may speak; it never waits for the
    database."""

    def __init__(self, using: str, session_id: str, *, run_id: str, turn_id: str, after_seq: int) -> None:
        self.message_id = ids.new_id()
        self.after_seq = after_seq
        """The last event that comes before what is said next."""
        self.is_open = True
        self._using = using
        self._session_id = session_id
        self._run_id = run_id
        self._turn_id = turn_id
        self._index = 0
        self._lock = threading.Lock()
        self._waiting: list[PendingBatch] = []
        self._is_kept = not connections[using].in_atomic_block
        """No other reader sees what is said inside a transaction before its end, and then it is over."""
        self._was_kept = False

    @property
    def was_used(self) -> bool:
        """Whether anything was said."""
        return self._index > 0

    def publish(self, data: JSON) -> bool:
        """Say a piece; `False` if the message is over."""
        text = documents.dump(data)
        with self._lock:
            if not self.is_open:
                return False
            index, self._index = self._index, self._index + 1
            fragment = Fragment(
                session_id=self._session_id,
                data=data,
                after_seq=self.after_seq,
                turn_id=self._turn_id,
                message_id=self.message_id,
                index=index,
            )
            if self._is_kept:
                self._add(index, text)
            hub.publish(self._using, fragment, text)
        if self._is_kept:
            writer_of(self._using, write).enqueue(self)
        return True

    def close(self) -> bool:
        """Say nothing more; whether something is kept that has to go."""
        with self._lock:
            self.is_open = False
            if not self._index or not self._is_kept:
                return False
        writer_of(self._using, write).discard(self)
        return self._was_kept

    def take(self) -> list[PendingBatch]:
        with self._lock:
            taken, self._waiting = self._waiting, []
            self._was_kept |= bool(taken)
            return taken

    def give_back(self, batches: list[PendingBatch]) -> None:
        with self._lock:
            self._waiting[:0] = batches

    def _add(self, index: int, text: str) -> None:
        last = self._waiting[-1] if self._waiting else None
        if last is not None and last.after_seq == self.after_seq and isinstance(last.texts, list):
            last.texts.append(text)
            return
        self._waiting.append(
            PendingBatch(
                self._session_id, self._run_id, self._turn_id, self.message_id, index, self.after_seq, [text]
            )
        )


def write(using: str, batches: list[PendingBatch]) -> None:
    """Keep batches of any sessions, each statement a transaction of its own."""
    connection = connections[using]
    columns = table(FragmentBatch).columns
    encode = table(FragmentBatch).encoder(dialect_of(connection), columns)
    now = timezone.now()
    rows = [encode([_column(batch, name, now) for name in columns]) for batch in batches]
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[start : start + _ROWS_AT_ONCE]
        statement = insert_sql(FragmentBatch, columns, len(some), replacing=True)
        execute(connection, statement, list(chain.from_iterable(some)), prepare=len(some) == _ROWS_AT_ONCE)


def _column(batch: PendingBatch, name: str, now: datetime) -> Any:
    if name == "fragments":
        return f"[{','.join(batch.texts)}]"
    return now if name == "kept_at" else getattr(batch, name)


def read(using: str, session_id: str) -> list[Fragment]:
    """The pieces that are kept of the message under way. A replica has none."""
    connection = connections[using]
    try:
        rows = fetch(connection, sql.kept_fragments(dialect_of(connection)), [session_id, session_id])
    except NotSupportedError:  # an unlogged table is not on a standby
        return []
    newest = max((row[0] for row in rows), default=None)
    found: list[Fragment] = []
    for message_id, first_index, turn_id, after_seq, text in rows:
        if message_id != newest:
            continue
        opened = table(FragmentBatch).open_text("fragments", text, session_id, message_id, first_index)
        found += [
            Fragment(
                session_id=session_id,
                data=data,
                after_seq=after_seq,
                turn_id=turn_id,
                message_id=message_id,
                index=index,
            )
            for index, data in enumerate(documents.load(opened), first_index)
        ]
    return found


def remove_orphaned(using: str, before: datetime, *, dry_run: bool) -> int:
    """Remove what processes left that are gone: of runs that are over, and kept before a time."""
    running = Session.objects.using(using).filter(run_id__isnull=False).values("run_id")
    old = FragmentBatch.objects.using(using).filter(kept_at__lt=before).exclude(run_id__in=running)
    return old.count() if dry_run else old.delete()[0]


def said() -> Any:
    """What speaking returns to async code, which may await it: nothing waits."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done
