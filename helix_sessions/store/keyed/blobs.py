"""Attachments: keep one, read one, give one to a session, and remove what no session has."""

import re
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from fnmatch import fnmatch
from itertools import islice
from typing import Any, BinaryIO

from django.db import IntegrityError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from helix_sessions import models
from helix_sessions.conf import conf
from helix_sessions.content import blobs
from helix_sessions.exceptions import BlobNotFound, BlobTooLarge, InvalidInput, MediaTypeRefused
from helix_sessions.store.engine import kept_blobs
from helix_sessions.store.engine.connection import execute
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.engine.unit_of_work import UnitOfWork, refer_sql
from helix_sessions.types import UNSET, Blob

_MEDIA_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_AT_ONCE = 500
_STRAY = timedelta(days=1)
"""A file without a row is younger than this while a transaction may still commit its row."""


def put_blob(store: Store, data: bytes, *, media_type: str) -> Blob:
    """Keep a content. The same content again is the same attachment. One that no session has is removed
    when `BLOB_GRACE` is over."""
    blobs.storage()
    kind = _checked(data, media_type)
    content = bytes(data)
    return _value(kept_blobs.keep(store.using, blobs.digest(content), content, kind), kind)


def attach_blob(store: Store, session_id: str, data: bytes, *, media_type: str) -> Blob:
    """Keep a content as one of the session's, until the session is deleted. Idempotent. The version
    stays."""
    store._read(session_id, ("session_id",))
    blobs.storage()
    kind = _checked(data, media_type)
    content = bytes(data)
    sha = blobs.digest(content)
    row = kept_blobs.keep(store.using, sha, content, kind)  # before the lock: a storage may be slow
    with store._write(session_id) as work:
        work.versioned = False
        rows = models.BlobRef.objects.using(store.using)
        if not rows.filter(session_id=work.session.session_id, blob_id=sha, posted=True).exists():
            work.refer_to_blobs([sha], posted=True)
            work.event("blob_attached", {"sha256": sha, "size": row.size, "media_type": kind})
    return _value(row, kind)


def open_blob(store: Store, sha256: str) -> BinaryIO:
    """A content as a binary file. A store of one owner opens what a session of that owner has, and what
    no session has yet."""
    blobs.storage()
    row = _find(store, sha256)
    if store._owner is not UNSET:
        refs = models.BlobRef.objects.using(store.using).filter(blob_id=row.sha256)
        owned = models.Session.objects.using(store.using).owned_by(store._owner).values("session_id")
        if refs.exists() and not refs.filter(session_id__in=owned).exists():
            raise BlobNotFound(f"There is no attachment {row.sha256}.")
    return blobs.opened(row.sha256, row.name)


def get_blob(store: Store, session_id: str, sha256: str) -> Blob:
    """What is known of an attachment of the session. `BlobNotFound` unless the session has it."""
    key = store._read(session_id, ("session_id",)).session_id
    row = _find(store, sha256)
    if not models.BlobRef.objects.using(store.using).filter(session_id=key, blob_id=row.sha256).exists():
        raise BlobNotFound(f"Session {session_id!r} has no attachment {row.sha256}.")
    return _value(row)


def copy(work: UnitOfWork, source_id: str) -> None:
    """Let a branch have what its source has."""
    refs = models.BlobRef.objects.using(work.connection.alias).filter(session_id=source_id)
    for digest, is_posted in refs.values_list("blob_id", "posted"):
        work.refer_to_blobs([digest], posted=is_posted)


def posted(using: str, session_id: str, *, without: Container[str] = ()) -> Iterator[tuple[Blob, bytes]]:
    """The attachments of a session that are not part of its documents."""
    refs = models.BlobRef.objects.using(using).filter(session_id=session_id, posted=True)
    for ref in refs.order_by("blob_id").select_related("blob"):
        if ref.blob_id in without:
            continue
        yield _value(ref.blob), blobs.read(ref.blob.sha256, ref.blob.name)


def import_posted(connection: BaseDatabaseWrapper, session_id: str, data: bytes, media_type: Any) -> None:
    """Give a content to a session that is being imported."""
    blobs.storage()
    sha = blobs.digest(data)
    kept_blobs.keep(connection.alias, sha, data, _checked(data, media_type))
    execute(connection, refer_sql(), [session_id, sha, True])
    rows = models.Session.objects.using(connection.alias)
    rows.filter(session_id=session_id).update(has_blobs=True)


def stale(using: str) -> Iterator[tuple[str, str]]:
    """The digest and the name of every content whose file is not encrypted as new ones are."""
    for sha, name in models.Blob.objects.using(using).values_list("sha256", "name").iterator():
        if not blobs.is_current(sha, name):
            yield sha, name


def of_sessions(using: str, session_ids: Iterable[str]) -> list[str]:
    """The digests of what these sessions have."""
    refs = models.BlobRef.objects.using(using).filter(session__session_id__among=list(session_ids))
    return sorted(set(refs.values_list("blob_id", flat=True)))


def unused(using: str, now: datetime) -> Iterator[str]:
    """The digests of what may be removed, as far as one can tell without a lock."""
    old = _old(using, now - timedelta(seconds=conf.BLOB_GRACE)).values_list("sha256", flat=True).iterator()
    while page := list(islice(old, _AT_ONCE)):
        refs = models.BlobRef.objects.using(using).filter(blob__sha256__among=page)
        used = set(refs.values_list("blob_id", flat=True))
        yield from (sha for sha in page if sha not in used)


def remove_unused(using: str, sha: str, now: datetime, *, grace: float | None = None) -> bool:
    """Remove a content that no session has, unless a writer has just relied on it. Its row goes first: the
    foreign key refuses that while a reference is being committed. The file goes when the row is gone."""
    before = now - timedelta(seconds=conf.BLOB_GRACE if grace is None else grace)
    with suppress(IntegrityError):
        with locking_transaction(using):
            row = _old(using, before).filter(sha256=sha).select_for_update().first()
            if row is None or models.BlobRef.objects.using(using).filter(blob_id=sha).exists():
                return False
            if not models.Blob.objects.using(using).filter(sha256=sha, name=row.name).delete()[0]:
                return False
        blobs.delete(row.sha256, row.name)
        return True
    return False


def remove_strays(using: str, now: datetime) -> int:
    """Remove old files without a row, which writers that died left behind; return how many."""
    count = 0
    names = models.Blob.objects.using(using)
    for path, sha, name in blobs.files():
        if names.filter(sha256=sha, name=name).exists():
            continue
        with suppress(FileNotFoundError):
            if blobs.storage().get_modified_time(path) < now - _STRAY:
                blobs.storage().delete(path)
                count += 1
    return count


def _old(using: str, before: datetime) -> "QuerySet[models.Blob]":
    """What no writer has just relied on."""
    return models.Blob.objects.using(using).filter(touched_at__lt=before).order_by("touched_at")


def _find(store: Store, sha256: str) -> models.Blob:
    if not isinstance(sha256, str) or not _DIGEST.fullmatch(sha256):
        raise BlobNotFound("A digest is 64 hexadecimal digits.")
    row = models.Blob.objects.using(store.using).filter(sha256=sha256).first()
    if row is None:
        raise BlobNotFound(f"There is no attachment {sha256}.")
    return row


def _checked(data: bytes, media_type: str) -> str:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidInput(f"An attachment is bytes, not {type(data).__name__}.")
    if not isinstance(media_type, str) or not _MEDIA_TYPE.fullmatch(media_type):
        raise InvalidInput("media_type must be a media type, such as 'image/png'.")
    kind = media_type.lower()
    allowed = conf.BLOB_MEDIA_TYPES
    if allowed and not any(fnmatch(kind, pattern.lower()) for pattern in allowed):
        raise MediaTypeRefused(f"Attachments of the media type {kind} are not taken.")
    if len(data) > conf.BLOB_MAX_BYTES:
        raise BlobTooLarge(f"The attachment has {len(data):,} bytes; {conf.BLOB_MAX_BYTES:,} are allowed.")
    return kind


def _value(row: models.Blob, media_type: str | None = None) -> Blob:
    return Blob(sha256=row.sha256, size=row.size, media_type=media_type or row.media_type)
