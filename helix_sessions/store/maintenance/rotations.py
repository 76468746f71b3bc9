"""Encrypts stored content again: with another key, for the first time, or no longer."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from django.db import models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.functions import Cast

from helix_sessions.conf import conf
from helix_sessions.content import blobs as content_blobs
from helix_sessions.content import encryption
from helix_sessions.content.encryption import Keyring
from helix_sessions.exceptions import NotConfigured, SessionNotFound
from helix_sessions.models import ArchivedRange, Event, IdempotentAnswer, Message, Schedule, Session, Webhook
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import execute, transaction_on
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.session_rows import lock_row
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.tables import Table, insert_sql, update_sql
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.keyed import blobs
from helix_sessions.store.keyed.idempotency import place_of_answer
from helix_sessions.store.maintenance import encrypted_rows, sql
from helix_sessions.store.maintenance.encrypted_rows import Key
from helix_sessions.store.maintenance.job import Job, ids_of
from helix_sessions.store.memory import upkeep as memory_upkeep
from helix_sessions.store.transcript import archive_files
from helix_sessions.types import RotationSummary

_LOG = (Event, Message)
"""Tables whose rows the database refuses to change."""

_SECRETS: tuple[tuple[type[models.Model], str], ...] = ((Webhook, "secret"), (Schedule, "prompt"))
"""Texts of tables that belong to no session."""

_log = logging.getLogger("helix_sessions.rotations")


_ROWS_AT_ONCE = 500
"""A page is written in one statement, and databases limit its parameters."""


def rotate_encryption(
    store: Store,
    *,
    after: str = "",
    page_size: int = 200,
    dry_run: bool = False,
    on_progress: Callable[[RotationSummary], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> RotationSummary:
    """Encrypt all content with the active key of `ENCRYPTION`; without one, store it as plain text.

    Rows that have the active key are skipped, so it can be stopped and repeated at any time. `after`
    starts after a session's id. Each page of rows is a transaction under its session's lock; versions,
    times and the log do not change. Content that cannot be decrypted is counted as an error and not
    changed.
    """
    size = min(inputs.integer(page_size, "page_size", minimum=1), _ROWS_AT_ONCE)
    ring = encryption.keyring()
    if ring is None:
        raise NotConfigured("HELIX_SESSIONS['ENCRYPTION'] names no keys.")
    job = Job(RotationSummary(), _log, dry_run=dry_run, on_progress=on_progress, should_stop=should_stop)
    sessions = Session.with_tombstones.using(store.using)
    for session_id in job.over(ids_of(sessions, after=after)):
        with job.attempt(f"Session {session_id!r} could not be encrypted again", ignore=SessionNotFound):
            _rotate_session(store, ring, session_id, size, job)
        job.count(sessions=1)
        job.summary = replace(job.summary, last_session_id=session_id)
    if not job.is_stopped:
        _rotate_answers(store, ring, job)
        _rotate_memories(store, ring, job)
        _rotate_secrets(store, ring, job)
        _rotate_blobs(store, job)
    return job.summary


def _rotate_session(
    store: Store, ring: Keyring, session_id: str, size: int, job: Job[RotationSummary]
) -> None:
    connection = store._connection
    if ring.active is not None and not job.dry_run:
        with transaction_on(store.using):
            execute(connection, sql.REMOVE_WORDS, [session_id])  # they would tell what is encrypted
    for rows in encrypted_rows.tables():
        condition = sql.stale(store._dialect, rows, ring)
        for after, page in encrypted_rows.pages(connection, rows, session_id, condition, size):
            if not job.dry_run:
                page = _rotate_page(store, rows, session_id, condition, size, after)
            job.count(rows=len(page))
    for archive in archive_files.files_of(store.using, session_id):
        if not archive_files.is_sealed_by(archive, ring):
            job.count(files=1)
            if not job.dry_run:
                _rotate_file(store, archive)


def _rotate_page(
    store: Store, rows: Table, session_id: str, condition: str, size: int, after: Key
) -> list[list[Any]]:
    """Write rows with their content encrypted again. They are read under the lock, because another writer may
    have changed them since."""
    with locking_transaction(store.using) as connection:
        begin = lock_row(connection, session_id, ("first_seq",), tombstones=True).first_seq
        page = encrypted_rows.page(connection, rows, session_id, condition, size, after)
        if rows.model is Event:
            # Archived events are being removed; written again, they would stay.
            place = rows.columns.index("seq")
            page = [values for values in page if values[place] >= begin]
        fresh = [rows.opened(rows.columns, values, with_blobs=False) for values in page]
        if rows.model in _LOG:
            _replace(connection, rows, session_id, begin, fresh)
        else:
            _update(connection, rows, fresh)
    return fresh


def _rotate_file(store: Store, archive: ArchivedRange) -> None:
    """Write an archive's lines to a new file, and delete the old one."""
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
    else:  # another process archived or deleted it meanwhile
        storage.delete(name)


def _rotate_answers(store: Store, ring: Keyring, job: Job[RotationSummary]) -> None:
    """The responses kept for idempotency keys. One that cannot be read expires by itself."""
    for row in IdempotentAnswer.objects.using(store.using).exclude(status=None).iterator():
        if ring.is_current(row.body):
            continue
        job.count(rows=1)
        if job.dry_run:
            continue
        with job.attempt("The response kept for an idempotency key could not be encrypted again"):
            place = place_of_answer(row.user_id, row.key)
            body = ring.seal(place, encryption.open_text(place, row.body))
            digest = ring.veil(str(row.user_id), encryption.unveil(row.user_id, row.digest))
            same = IdempotentAnswer.objects.using(store.using).filter(
                user_id=row.user_id, key=row.key, body=row.body
            )
            with transaction_on(store.using):
                same.update(body=body, digest=digest)


def _rotate_memories(store: Store, ring: Keyring, job: Job[RotationSummary]) -> None:
    for stored in memory_upkeep.stale(store.using, ring):
        job.count(rows=1)
        if not job.dry_run:
            with job.attempt(f"The memory {stored.memory_id} could not be encrypted again"):
                memory_upkeep.encrypt_again(store.using, ring, stored)


def _rotate_blobs(store: Store, job: Job[RotationSummary]) -> None:
    """The files of attachments."""
    if not content_blobs.is_on():
        return
    for sha, name in blobs.stale(store.using):
        job.count(files=1)
        if not job.dry_run:
            with job.attempt(f"The attachment {sha} could not be encrypted again"):
                content_blobs.encrypt_again(sha, name)


def _rotate_secrets(store: Store, ring: Keyring, job: Job[RotationSummary]) -> None:
    """The secrets of webhooks, and the prompts of schedules."""
    for model, name in _SECRETS:
        for row in model._default_manager.using(store.using).annotate(stored=Cast(name, models.TextField())):
            if ring.is_current(row.stored):
                continue
            job.count(rows=1)
            if not job.dry_run:
                with (
                    job.attempt(
                        f"The {name} of {model._meta.model_name} {row.pk} could not be encrypted again"
                    ),
                    transaction_on(store.using),
                ):
                    row.save(using=store.using, update_fields=[name])


def _update(connection: BaseDatabaseWrapper, rows: Table, fresh: Sequence[list[Any]]) -> None:
    changed = (*rows.content, *rows.digests)
    columns = (*changed, *rows.key)
    update = update_sql(rows.model, changed, rows.key)
    encode = rows.encoder(dialect_of(connection), columns)
    places = [rows.columns.index(name) for name in columns]
    for values in fresh:
        execute(connection, update, encode([values[place] for place in places]))


def _replace(
    connection: BaseDatabaseWrapper, rows: Table, session_id: str, begin: int, fresh: Sequence[list[Any]]
) -> None:
    """The database refuses changes to rows of the log, but rows before its beginning may be deleted. So
    within this transaction the log begins after them; concurrent readers see neither that nor a gap."""
    if not fresh:
        return
    _begin_at(connection, session_id, inputs.MAX_INTEGER)
    place = rows.columns.index("seq")
    seqs = [values[place] for values in fresh]
    execute(connection, sql.remove_from_log(rows, len(seqs)), [session_id, *seqs], prepare=False)
    encode = rows.encoder(dialect_of(connection), rows.columns)
    params = [value for values in fresh for value in encode(values)]
    execute(connection, insert_sql(rows.model, rows.columns, len(fresh)), params, prepare=False)
    _begin_at(connection, session_id, begin)


def _begin_at(connection: BaseDatabaseWrapper, session_id: str, first_seq: int) -> None:
    update = update_sql(Session, ("first_seq",), ("session_id",))
    execute(connection, update, dialect_of(connection).parameters([first_seq, session_id]))
