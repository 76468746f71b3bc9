"""Attachments on their way into the database: base64 leaves a document's text before the text is written.

The content is in the storage before the transaction commits that refers to it. Its row was used lately, or is
touched here, so the cleanup leaves it alone; and the foreign key of the reference refuses to commit if the
row is gone nevertheless.
"""

from datetime import timedelta
from typing import NamedTuple
from uuid import uuid4

from django.utils import timezone

from helix_sessions.conf import conf
from helix_sessions.content import blobs
from helix_sessions.models import Blob


class Extracted(NamedTuple):
    """A text without its attachments, and their digests."""

    text: str
    digests: frozenset[str]


def take_out(using: str, text: str) -> Extracted | None:
    """Keep the attachments of a document; `None` if it has none."""
    found = blobs.inline_in(text)
    if not found:
        return None
    contents = {each.sha256: each for each in found}
    names = {
        sha: keep(using, sha, each.data, each.media_type).name
        for sha, each in sorted(contents.items())  # in one order, so that no two writers wait in a circle
    }
    return Extracted(blobs.taken_out(text, found, names.__getitem__), frozenset(names))


def keep(using: str, sha: str, data: bytes, media_type: str) -> Blob:
    """The row of a content, which is in the storage then."""
    rows = Blob.objects.using(using).filter(sha256=sha)
    now = timezone.now()
    row = rows.first()
    if row is not None:
        if row.touched_at > now - timedelta(seconds=conf.BLOB_GRACE / 2):
            return row
        if rows.filter(name=row.name).update(touched_at=now):
            return row
    made = Blob(sha256=sha, name=uuid4().hex[:12], size=len(data), media_type=media_type, touched_at=now)
    blobs.write(sha, made.name, data)
    while True:
        Blob.objects.using(using).bulk_create([made], ignore_conflicts=True)
        row = rows.first()
        if row is not None and (row.name == made.name or rows.filter(name=row.name).update(touched_at=now)):
            break  # otherwise another's was there, and was removed at once
    if row.name != made.name:
        blobs.delete(sha, made.name)
    return row
