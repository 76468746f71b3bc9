"""Content sealed anew: under another key, for the first time, or no longer."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.conf import conf
from helix_sessions.content import encryption
from helix_sessions.content.encryption import Keyring
from helix_sessions.exceptions import NotConfigured, SessionNotFound
from helix_sessions.models import ArchivedRange, Event, IdempotentAnswer, Message, Session
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import execute, transaction_on
from helix_sessions.store.engine.session_rows import lock_row
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.tables import Table, insert_sql, table, update_sql
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.keyed.idempotency import place_of_answer
from helix_sessions.store.maintenance import encrypted_rows, failures
from helix_sessions.store.maintenance.encrypted_rows import Key
from helix_sessions.store.transcript import archive_files
from helix_sessions.types import RotationSummary

_LOG = (Event, Message)
"""Tables whose rows the database refuses to change."""

_log = logging.getLogger("helix_sessions.rotations")


_ROWS_AT_ONCE = 500
"""A page of any size is written in one statement, and databases bound its parameters."""


def rotate_encryption(
    store: Store,
    *,
    after: str = "",
    page_size: int = 200,
    dry_run: bool = False,
    on_progress: Callable[[RotationSummary], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> RotationSummary:
    """Seal all content with the active key of `ENCRYPTION`; without one, store it as it is.

    Rows that are as they should be are left alone, so it can be stopped and repeated at any time.
    `after` goes on behind a session's id. Each page of rows is a transaction under its session's lock;
    versions, times and the log stay as they are. What cannot be read is counted and left as it is.
    """
    size = min(inputs.integer(page_size, "page_size", minimum=1), _ROWS_AT_ONCE)
    ring = encryption.keyring()
    if ring is None:
        raise NotConfigured("HELIX_SESSIONS['ENCRYPTION'] names no keys.")
    tally = _Tally()
    for session_id in _ids_after(store, after):
        if should_stop is not None and should_stop():
            return tally.summary()
        try:
            _rotate_session(store, ring, session_id, size, dry_run, tally)
        except SessionNotFound:
            continue
        except Exception as error:
            tally.errors += 1
            failures.report(_log, f"Session {session_id!r} could not be sealed anew", error)
        tally.sessions, tally.last_session_id = tally.sessions + 1, session_id
        if on_progress is not None:
            on_progress(tally.summary())
    _rotate_answers(store, ring, dry_run, tally)
    return tally.summary()


def _ids_after(store: Store, last: str) -> Iterator[str]:
    rows = Session.with_tombstones.using(store.using).order_by("session_id")
    while page := list(rows.filter(session_id__gt=last).values_list("session_id", flat=True)[:500]):
        yield from page
        last = page[-1]


def _rotate_session(
    store: Store, ring: Keyring, session_id: str, size: int, dry_run: bool, tally: "_Tally"
) -> None:
    connection = store._connection
    for rows in encrypted_rows.tables():
        condition = encrypted_rows.stale(connection.vendor, rows, ring)
        for after, page in encrypted_rows.pages(connection, rows, session_id, condition, size):
            if not dry_run:
                page = _rotate_page(store, rows, session_id, condition, size, after)
            tally.rows += len(page)
    for archive in archive_files.files_of(store.using, session_id):
        if not archive_files.is_sealed_by(archive, ring):
            tally.files += 1
            if not dry_run:
                _rotate_file(store, archive)


def _rotate_page(
    store: Store, rows: Table, session_id: str, condition: str, size: int, after: Key
) -> list[list[Any]]:
    """Write rows again, with their content as it is now to be stored. They are read under the lock:
    somebody may have written them since they were found."""
    with locking_transaction(store.using) as connection:
        begin = lock_row(connection, session_id, ("first_seq",), tombstones=True).first_seq
        page = encrypted_rows.page(connection, rows, session_id, condition, size, after)
        if rows.model is Event:
            # What is archived goes; written again, it would stay behind a removal that is under way.
            place = rows.columns.index("seq")
            page = [values for values in page if values[place] >= begin]
        fresh = [rows.opened(rows.columns, values) for values in page]
        if rows.model in _LOG:
            _replace(connection, rows, session_id, begin, fresh)
        else:
            _update(connection, rows, fresh)
    return fresh


def _rotate_file(store: Store, archive: ArchivedRange) -> None:
    """Write an archive's lines to a new file, and forget the old one."""
    storage = archive_files.archive_storage()
    lines = archive_files.read_file(archive)
    session_id, first = archive.session_id, archive.first_seq
    name, _ = archive_files.write_file(storage, session_id, first, archive.last_seq, lines)
    rows = ArchivedRange.objects.using(store.using).filter(session_id=session_id, first_seq=first)
    try:
        with transaction_on(store.using):
            changed = rows.filter(name=archive.name, storage=archive.storage).update(
                name=name, storage=conf.ARCHIVE_STORAGE
            )
    except BaseException:
        storage.delete(name)
        raise
    if changed:
        transaction.on_commit(
            lambda: archive_files.delete_file(store.using, archive.storage, archive.name) and None,
            using=store.using,
            robust=True,
        )
    else:  # archived or deleted by somebody else meanwhile
        storage.delete(name)


def _rotate_answers(store: Store, ring: Keyring, dry_run: bool, tally: "_Tally") -> None:
    """The answers kept for idempotency keys. One that cannot be read expires by itself."""
    for row in IdempotentAnswer.objects.using(store.using).exclude(status=None).iterator():
        if ring.is_current(row.body):
            continue
        tally.rows += 1
        if dry_run:
            continue
        place = place_of_answer(row.user_id, row.key)
        try:
            body = ring.seal(place, encryption.open_text(place, row.body))
            digest = ring.veil(str(row.user_id), encryption.unveil(row.user_id, row.digest))
        except Exception as error:
            tally.errors += 1
            failures.report(_log, "The answer kept for an idempotency key could not be sealed anew", error)
            continue
        same = IdempotentAnswer.objects.using(store.using).filter(
            user_id=row.user_id, key=row.key, body=row.body
        )
        with transaction_on(store.using):
            same.update(body=body, digest=digest)


def _update(connection: BaseDatabaseWrapper, rows: Table, fresh: Sequence[list[Any]]) -> None:
    changed = (*rows.content, *rows.digests)
    columns = (*changed, *rows.key)
    sql = update_sql(rows.model, changed, rows.key)
    encode = rows.encoder(connection.vendor, columns)
    places = [rows.columns.index(name) for name in columns]
    for values in fresh:
        execute(connection, sql, encode([values[place] for place in places]))


def _replace(
    connection: BaseDatabaseWrapper, rows: Table, session_id: str, begin: int, fresh: Sequence[list[Any]]
) -> None:
    """Rows of the log cannot be changed, but those before its beginning may go. So within this transaction
    the log begins behind them; who reads meanwhile sees neither that nor a gap."""
    if not fresh:
        return
    _begin_at(connection, session_id, inputs.MAX_INTEGER)
    place = rows.columns.index("seq")
    seqs = [values[place] for values in fresh]
    marks = ", ".join(["%s"] * len(seqs))
    execute(
        connection,
        f'DELETE FROM {rows.name} WHERE "session_id" = %s AND "seq" IN ({marks})',  # noqa: S608
        [session_id, *seqs],
        prepare=False,
    )
    encode = rows.encoder(connection.vendor, rows.columns)
    params = [value for values in fresh for value in encode(values)]
    execute(connection, insert_sql(rows.model, rows.columns, len(fresh)), params, prepare=False)
    _begin_at(connection, session_id, begin)


def _begin_at(connection: BaseDatabaseWrapper, session_id: str, first_seq: int) -> None:
    sql = update_sql(Session, ("first_seq",), ("session_id",))
    encode = table(Session).encoder(connection.vendor, ("first_seq", "session_id"))
    execute(connection, sql, encode([first_seq, session_id]))


class _Tally:
    def __init__(self) -> None:
        self.sessions = self.rows = self.files = self.errors = 0
        self.last_session_id: str | None = None

    def summary(self) -> RotationSummary:
        return RotationSummary(**vars(self))
