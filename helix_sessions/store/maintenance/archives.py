"""The event log's older part, moved to a file storage as compressed JSON Lines.

The order makes it safe to die anywhere: the file is written, then under the session's lock the range is
noted and `first_seq` raised, and only then are the rows removed. A file without a note is never read; rows
below `first_seq` are removed by whoever archives next.
"""

from functools import cache

from django.core.files.storage import Storage

from helix_sessions.conf import conf
from helix_sessions.models import ArchivedRange, Event, EventKey, Message, Run
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import execute, fetch, transaction_on
from helix_sessions.store.engine.session_rows import lock_row
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.transcript.archive_files import (
    EVENTS_PER_PAGE,
    archive_storage,
    event_lines,
    write_file,
)
from helix_sessions.types import ArchiveSummary

EVENTS_PER_FILE = 50_000


_EVENTS_PER_REMOVAL = 5_000


def archive_events(
    store: Store, session_id: str, *, keep: int = 1_000, dry_run: bool = False
) -> ArchiveSummary:
    """Move all but the last `keep` events, and none of a running run, to the archive storage.

    The transcript, state, runs and checkpoints stay as they are, and so do version and `head_seq`. What
    was archived can no longer be read with `get_events`, which says so with `EventsArchived`.
    """
    inputs.integer(keep, "keep")
    first = begin = store._read(session_id, ("first_seq",)).first_seq
    storage = archive_storage()
    if not dry_run:
        _remove_archived(store, session_id)
    files = stored = 0
    end = _archivable_until(store, session_id, keep)
    while first <= end and not dry_run:
        last = min(end, first + EVENTS_PER_FILE - 1)
        _keep_keyed_events(store, session_id, first, last)
        size = _archive_range(store, storage, session_id, first, last)
        if size is None:  # somebody else archives this log
            break
        _remove_archived(store, session_id)
        files, stored, first = files + 1, stored + size, last + 1
    events = max(0, end - begin + 1) if dry_run else first - begin
    return ArchiveSummary(sessions=int(events > 0), events=events, files=files, stored_bytes=stored)


def _archivable_until(store: Store, session_id: str, keep: int) -> int:
    """The last event that may go."""
    session = store._read(session_id, ("head_seq", "run_id"))
    end = int(session.head_seq) - keep
    if session.run_id is not None:
        runs = Run.objects.using(store.using).filter(session_id=session_id, run_id=session.run_id)
        end = min(end, runs.values_list("start_sequence", flat=True).get())
    return end


def _keep_keyed_events(store: Store, session_id: str, first: int, last: int) -> None:
    """An idempotency key answers with its event, wherever the log begins: put it beside the key."""
    keys = EventKey.objects.using(store.using).filter(
        session_id=session_id, seq__gte=first, seq__lte=last, record__isnull=True
    )
    while some := dict(keys.values_list("seq", "key")[:EVENTS_PER_PAGE]):
        with locking_transaction(store.using) as connection:
            lock_row(connection, session_id, ("session_id",))
            encode = table(EventKey).encoder(connection.vendor, ("record", "session_id", "key"))
            for seq, key in sorted(some.items()):
                [line] = event_lines(connection, session_id, seq, seq)
                execute(connection, _keep_sql(), encode([line, session_id, key]))


def _archive_range(store: Store, storage: Storage, session_id: str, first: int, last: int) -> int | None:
    """Write a file and note it; its size, or `None` if the log meanwhile begins elsewhere."""
    lines = event_lines(store._connection, session_id, first, last)
    name, size = write_file(storage, session_id, first, last, lines)
    noted = False
    try:
        with store._write(session_id) as work:
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


def _remove_archived(store: Store, session_id: str) -> int:
    """Remove the rows of events that are archived, oldest first, a few thousand at a time."""
    begin = store._read(session_id, ("first_seq",)).first_seq
    removed = 0
    while True:
        with transaction_on(store.using) as connection:
            [[oldest]] = fetch(connection, _oldest_sql(), [session_id])
            if oldest is None or oldest >= begin:
                if begin > 1:
                    execute(connection, _remove_truncated_sql(), [session_id, begin])
                return removed
            until = min(begin, oldest + _EVENTS_PER_REMOVAL)
            removed += execute(connection, _remove_sql(), [session_id, until])


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
