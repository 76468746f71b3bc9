"""Moves the older part of an event log to a file storage, as compressed JSON Lines.

A crash at any point is safe: the job writes the file, then under the session's lock records the range and
raises `first_seq`, and only then removes the rows. A file without a record is never read; the next job
removes rows below `first_seq`.
"""

from django.core.files.storage import Storage

from helix_sessions.conf import conf
from helix_sessions.models import ArchivedRange, EventKey, Run
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import execute, fetch, transaction_on
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.session_rows import lock_row
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.tables import table, update_sql
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.maintenance import sql
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

    The transcript, state, runs and checkpoints stay as they are, and so do version and `head_seq`.
    `get_events` can no longer read archived events and raises `EventsArchived`.
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
        if size is None:  # another process archives this log
            break
        _remove_archived(store, session_id)
        files, stored, first = files + 1, stored + size, last + 1
    events = max(0, end - begin + 1) if dry_run else first - begin
    return ArchiveSummary(sessions=int(events > 0), events=events, files=files, stored_bytes=stored)


def _archivable_until(store: Store, session_id: str, keep: int) -> int:
    """The number of the last event that may be archived."""
    session = store._read(session_id, ("head_seq", "run_id"))
    end = int(session.head_seq) - keep
    if session.run_id is not None:
        runs = Run.objects.using(store.using).filter(session_id=session_id, run_id=session.run_id)
        end = min(end, runs.values_list("start_sequence", flat=True).get())
    return end


def _keep_keyed_events(store: Store, session_id: str, first: int, last: int) -> None:
    """Store the event of each idempotency key with the key, so that the key still returns it."""
    keys = EventKey.objects.using(store.using).filter(
        session_id=session_id, seq__gte=first, seq__lte=last, record__isnull=True
    )
    while some := dict(keys.values_list("seq", "key")[:EVENTS_PER_PAGE]):
        with locking_transaction(store.using) as connection:
            lock_row(connection, session_id, ("session_id",))
            keep = update_sql(EventKey, ("record",), ("session_id", "key"))
            encode = table(EventKey).encoder(dialect_of(connection), ("record", "session_id", "key"))
            for seq, key in sorted(some.items()):
                [line] = event_lines(connection, session_id, seq, seq)
                execute(connection, keep, encode([line, session_id, key]))


def _archive_range(store: Store, storage: Storage, session_id: str, first: int, last: int) -> int | None:
    """Write a file and record it; its size, or `None` if another process has archived the range meanwhile."""
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
    """Remove the rows of archived events, oldest first, a few thousand per transaction."""
    begin = store._read(session_id, ("first_seq",)).first_seq
    removed = 0
    while True:
        with transaction_on(store.using) as connection:
            [[oldest]] = fetch(connection, sql.OLDEST_EVENT, [session_id])
            if oldest is None or oldest >= begin:
                if begin > 1:
                    execute(connection, sql.REMOVE_TRUNCATED_MESSAGES, [session_id, begin])
                    execute(connection, sql.REMOVE_WORDS_OF_NONE, [session_id, begin])
                return removed
            until = min(begin, oldest + _EVENTS_PER_REMOVAL)
            removed += execute(connection, sql.REMOVE_EVENTS, [session_id, until])
