"""The files of archived events."""

import gzip
import logging
from collections.abc import Iterator, Mapping
from datetime import datetime
from io import TextIOWrapper
from tempfile import SpooledTemporaryFile
from typing import Any, cast

from django.core.files import File
from django.core.files.storage import Storage
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.conf import conf
from helix_sessions.content import documents, encryption
from helix_sessions.content.storages import folder_of, storage_named
from helix_sessions.exceptions import NotConfigured
from helix_sessions.models import ArchivedRange
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.tables import aware
from helix_sessions.store.transcript import log_rows, sql
from helix_sessions.types import EventRecord

FOLDER = "helix_sessions/archives"
"""Where in the storage archives are written."""

EVENTS_PER_PAGE = 500


_IN_MEMORY = 4 * 1024 * 1024


_log = logging.getLogger("helix_sessions.archives")


def archive_storage() -> Storage:
    """The storage of archives. Raises `NotConfigured` without one."""
    if not conf.ARCHIVE_STORAGE:
        raise NotConfigured(
            "Set HELIX_SESSIONS['ARCHIVE_STORAGE'] to the alias in STORAGES of a storage that is not public."
        )
    return storage_named(conf.ARCHIVE_STORAGE)


def write_file(
    storage: Storage, session_id: str, first: int, last: int, lines: Iterator[str]
) -> tuple[str, int]:
    """Write a range's lines to a new file; returns its name and size."""
    with SpooledTemporaryFile(max_size=_IN_MEMORY) as spool:
        with gzip.GzipFile(fileobj=cast(Any, spool), mode="wb", mtime=0) as packed:
            for seq, line in enumerate(lines, first):
                packed.write(f"{encryption.seal_text(line_place(session_id, seq), line)}\n".encode())
        size = spool.tell()
        spool.seek(0)
        wanted = f"{FOLDER}/{folder_of(session_id)}/{first}-{last}.jsonl.gz"
        return storage.save(wanted, File(cast(Any, spool))), size


def read_file(archive: ArchivedRange) -> Iterator[str]:
    """The lines of an archive, each an event as JSON."""
    with storage_named(archive.storage).open(archive.name, "rb") as stored:
        unpacked = gzip.GzipFile(fileobj=cast(Any, stored), mode="rb")
        lines = TextIOWrapper(cast(Any, unpacked), encoding="utf-8", newline="\n")
        for seq, line in enumerate(lines, archive.first_seq):
            yield encryption.open_text(line_place(archive.session_id, seq), line.rstrip("\n"))


def is_sealed_by(archive: ArchivedRange, ring: encryption.Keyring) -> bool:
    """Whether an archive is sealed with the active key."""
    with storage_named(archive.storage).open(archive.name, "rb") as stored:
        unpacked = gzip.GzipFile(fileobj=cast(Any, stored), mode="rb")
        return ring.is_current(unpacked.readline().decode())


def line_place(session_id: str, seq: int) -> encryption.Place:
    """The place of an archived event, which its seal is bound to."""
    return ("archivedrange", "line", session_id, seq)


def event_lines(connection: BaseDatabaseWrapper, session_id: str, first: int, last: int) -> Iterator[str]:
    """The events of a range as JSON lines. Their data are the stored text, not parsed."""
    lines = sql.events_to_archive(dialect_of(connection))
    while first <= last:
        until = min(last, first + EVENTS_PER_PAGE - 1)
        rows = fetch(connection, lines, [session_id, first, until])
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
    """Remove a session's archives: their rows now, their files after the commit."""
    for alias, name in fetch(connection, sql.REMOVE_ARCHIVES, [session_id]):
        _delete_after_commit(connection.alias, alias, name)


def _delete_after_commit(using: str, alias: str, name: str) -> None:
    # A function: Django logs the failure of a robust one by its name, which a partial does not have.
    transaction.on_commit(lambda: delete_file(using, alias, name) and None, using=using, robust=True)


def delete_file(using: str, alias: str, name: str, *, besides: str | None = None) -> bool:
    """Delete an archive's file, unless a row of another session names it."""
    notes = ArchivedRange.objects.using(using).filter(storage=alias, name=name)
    if notes.exclude(session_id=besides).exists() if besides is not None else notes.exists():
        return False
    try:
        storage_named(alias).delete(name)
    except Exception:
        _log.exception("The archive %s in storage %s could not be deleted.", name, alias)
        raise
    return True
