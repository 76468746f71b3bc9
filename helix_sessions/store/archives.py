"""The event log's older part, moved to a file storage as compressed JSON Lines.

The order makes it safe to die anywhere: the file is written, then under the session's lock the range is
noted and `first_seq` raised, and only then are the rows removed. A file without a note is never read; rows
below `first_seq` are removed by whoever archives next.
"""

import gzip
import logging
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache, partial
from io import TextIOWrapper
from tempfile import SpooledTemporaryFile
from typing import Any, cast

from django.core.files import File
from django.core.files.storage import Storage
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions import documents, encryption
from helix_sessions.conf import conf
from helix_sessions.exceptions import NotConfigured
from helix_sessions.models import ArchivedRange, Event, EventKey, Message, Run
from helix_sessions.storages import folder_of, storage_named
from helix_sessions.store import inputs, log_rows
from helix_sessions.store.base import StoreBase
from helix_sessions.store.database import execute, fetch, transaction_on
from helix_sessions.store.tables import aware, table
from helix_sessions.store.unit import lock_row, locking_transaction
from helix_sessions.types import ArchiveSummary, EventRecord

EVENTS_PER_FILE = 50_000
_EVENTS_PER_PAGE = 500
_EVENTS_PER_REMOVAL = 5_000
_IN_MEMORY = 4 * 1024 * 1024

_log = logging.getLogger("helix_sessions.archives")


class Archives(StoreBase):
    """Archives of the event log."""

    def archive_events(self, session_id: str, *, keep: int = 1_000, dry_run: bool = False) -> ArchiveSummary:
        """Move all but the last `keep` events, and none of a running run, to the archive storage.

        The transcript, state, runs and checkpoints stay as they are, and so do version and `head_seq`. What
        was archived can no longer be read with `get_events`, which says so with `EventsArchived`.
        """
        inputs.integer(keep, "keep")
        first = begin = self._read(session_id, ("first_seq",)).first_seq
        storage = archive_storage()
        if not dry_run:
            self._remove_archived(session_id)
        files = stored = 0
        end = self._archivable_until(session_id, keep)
        while first <= end and not dry_run:
            last = min(end, first + EVENTS_PER_FILE - 1)
            self._keep_keyed_events(session_id, first, last)
            size = self._archive_range(storage, session_id, first, last)
            if size is None:  # somebody else archives this log
                break
            self._remove_archived(session_id)
            files, stored, first = files + 1, stored + size, last + 1
        events = max(0, end - begin + 1) if dry_run else first - begin
        return ArchiveSummary(sessions=int(events > 0), events=events, files=files, stored_bytes=stored)

    def _archivable_until(self, session_id: str, keep: int) -> int:
        """The last event that may go."""
        session = self._read(session_id, ("head_seq", "run_id"))
        end = int(session.head_seq) - keep
        if session.run_id is not None:
            runs = Run.objects.using(self.using).filter(session_id=session_id, run_id=session.run_id)
            end = min(end, runs.values_list("start_sequence", flat=True).get())
        return end

    def _keep_keyed_events(self, session_id: str, first: int, last: int) -> None:
        """An idempotency key answers with its event, wherever the log begins: put it beside the key."""
        keys = EventKey.objects.using(self.using).filter(
            session_id=session_id, seq__gte=first, seq__lte=last, record__isnull=True
        )
        while some := dict(keys.values_list("seq", "key")[:_EVENTS_PER_PAGE]):
            with locking_transaction(self.using) as connection:
                lock_row(connection, session_id, ("session_id",))
                encode = table(EventKey).encoder(connection.vendor, ("record", "session_id", "key"))
                for seq, key in sorted(some.items()):
                    [line] = event_lines(connection, session_id, seq, seq)
                    execute(connection, _keep_sql(), encode([line, session_id, key]))

    def _archive_range(self, storage: Storage, session_id: str, first: int, last: int) -> int | None:
        """Write a file and note it; its size, or `None` if the log meanwhile begins elsewhere."""
        lines = event_lines(self._connection, session_id, first, last)
        name, size = write_file(storage, session_id, first, last, lines)
        noted = False
        try:
            with self._write(session_id) as work:
                work.versioned = False
                if work.session.first_seq == first:
                    work.insert(
                        ArchivedRange,
                        first_seq=first,
                        last_seq=last,
                        storage=conf.ARCHIVE_STORAGE,
                        name=name,
                        created_at=work.now,
                    )
                    work.change(first_seq=last + 1)
                    noted = True
        except BaseException:
            storage.delete(name)
            raise
        if not noted:
            storage.delete(name)
        return size if noted else None

    def _remove_archived(self, session_id: str) -> int:
        """Remove the rows of events that are archived, oldest first, a few thousand at a time."""
        begin = self._read(session_id, ("first_seq",)).first_seq
        removed = 0
        while True:
            with transaction_on(self.using) as connection:
                [[oldest]] = fetch(connection, _oldest_sql(), [session_id])
                if oldest is None or oldest >= begin:
                    if begin > 1:
                        execute(connection, _remove_truncated_sql(), [session_id, begin])
                    return removed
                until = min(begin, oldest + _EVENTS_PER_REMOVAL)
                removed += execute(connection, _remove_sql(), [session_id, until])


def archive_storage() -> Storage:
    """Where archives go; it has to be chosen."""
    if not conf.ARCHIVE_STORAGE:
        raise NotConfigured(
            "Set HELIX_SESSIONS['ARCHIVE_STORAGE'] to the alias in STORAGES of a storage that is not public."
        )
    return storage_named(conf.ARCHIVE_STORAGE)


def write_file(
    storage: Storage, session_id: str, first: int, last: int, lines: Iterator[str]
) -> tuple[str, int]:
    """Write a range's lines to a new file; its name and size."""
    with SpooledTemporaryFile(max_size=_IN_MEMORY) as spool:
        with gzip.GzipFile(fileobj=cast(Any, spool), mode="wb", mtime=0) as packed:
            for seq, line in enumerate(lines, first):
                packed.write(f"{encryption.seal_text(line_place(session_id, seq), line)}\n".encode())
        size = spool.tell()
        spool.seek(0)
        wanted = f"{conf.ARCHIVE_PREFIX.strip('/')}/{folder_of(session_id)}/{first}-{last}.jsonl.gz"
        return storage.save(wanted, File(cast(Any, spool))), size


def read_file(archive: ArchivedRange) -> Iterator[str]:
    """The lines of an archive, each an event as JSON."""
    with storage_named(archive.storage).open(archive.name, "rb") as stored:
        unpacked = gzip.GzipFile(fileobj=cast(Any, stored), mode="rb")
        lines = TextIOWrapper(cast(Any, unpacked), encoding="utf-8", newline="\n")
        for seq, line in enumerate(lines, archive.first_seq):
            yield encryption.open_text(line_place(archive.session_id, seq), line.rstrip("\n"))


def is_sealed_by(archive: ArchivedRange, ring: encryption.Keyring) -> bool:
    """Whether an archive is as the ring would write it now."""
    with storage_named(archive.storage).open(archive.name, "rb") as stored:
        unpacked = gzip.GzipFile(fileobj=cast(Any, stored), mode="rb")
        return ring.is_current(unpacked.readline().decode())


def line_place(session_id: str, seq: int) -> encryption.Place:
    """Where an archived event is, for who seals it and who opens it."""
    return ("archivedrange", "line", session_id, seq)


def event_lines(connection: BaseDatabaseWrapper, session_id: str, first: int, last: int) -> Iterator[str]:
    """The events of a range as JSON lines. Their data are the stored text, not parsed."""
    while first <= last:
        until = min(last, first + _EVENTS_PER_PAGE - 1)
        rows = fetch(connection, _lines_sql(connection.vendor), [session_id, first, until])
        for seq, kind, data, turn_id, run_id, created_at, _ in log_rows.opened(session_id, rows):
            values = {
                "seq": seq,
                "type": kind,
                "turn_id": turn_id,
                "run_id": run_id,
                "created_at": aware(created_at).isoformat(),
            }
            yield f'{documents.write(values)[:-1]},"data":{"null" if data is None else data}}}'
        first = until + 1


def event_of(session_id: str, values: Mapping[str, Any]) -> EventRecord:
    """The event an archived line stands for."""
    return EventRecord(
        session_id=session_id, **{**values, "created_at": datetime.fromisoformat(values["created_at"])}
    )


def files_of(using: str, session_id: str) -> list[ArchivedRange]:
    """The archives of a session, oldest first."""
    return list(ArchivedRange.objects.using(using).filter(session_id=session_id).order_by("first_seq"))


def forget(connection: BaseDatabaseWrapper, session_id: str) -> None:
    """Remove the notes of a session's archives, and after the commit the files."""
    files = fetch(
        connection,
        f'DELETE FROM {table(ArchivedRange).name} WHERE "session_id" = %s RETURNING "storage", "name"',  # noqa: S608
        [session_id],
    )
    for alias, name in files:
        transaction.on_commit(
            partial(delete_file, connection.alias, alias, name), using=connection.alias, robust=True
        )


def delete_file(using: str, alias: str, name: str, *, besides: str | None = None) -> bool:
    """Delete an archive's file, unless the note of a session besides this one names it."""
    notes = ArchivedRange.objects.using(using).filter(storage=alias, name=name)
    if notes.exclude(session_id=besides).exists() if besides is not None else notes.exists():
        return False
    try:
        storage_named(alias).delete(name)
    except Exception:
        _log.exception("The archive %s in storage %s could not be deleted.", name, alias)
        raise
    return True


@cache
def _lines_sql(vendor: str) -> str:
    return (
        f"SELECT {log_rows.selection(vendor)} FROM {table(Event).name} e {log_rows.MESSAGE}"  # noqa: S608
        ' WHERE e."session_id" = %s AND e."seq" BETWEEN %s AND %s ORDER BY e."seq"'
    )


@cache
def _keep_sql() -> str:
    return f'UPDATE {table(EventKey).name} SET "record" = %s WHERE "session_id" = %s AND "key" = %s'  # noqa: S608


@cache
def _oldest_sql() -> str:
    return f'SELECT MIN("seq") FROM {table(Event).name} WHERE "session_id" = %s'  # noqa: S608


@cache
def _remove_sql() -> str:
    return f'DELETE FROM {table(Event).name} WHERE "session_id" = %s AND "seq" < %s'  # noqa: S608


@cache
def _remove_truncated_sql() -> str:
    return (
        f'DELETE FROM {table(Message).name} WHERE "session_id" = %s'  # noqa: S608
        ' AND "truncated_seq" IS NOT NULL AND "seq" < %s'
    )
