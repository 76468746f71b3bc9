"""Attachments: content in a storage, and the sessions that have it."""

from django.db import models
from django.utils import timezone

from helix_sessions.models.constraints import non_negative, session_key
from helix_sessions.models.fields import IdField


class Blob(models.Model):
    """One content, by its digest. `name` is a part of its file's name: a content that is removed and comes
    again is another file."""

    sha256 = IdField(max_length=64, primary_key=True)
    name = IdField(max_length=12)
    size = models.BigIntegerField()
    media_type = models.CharField(max_length=255)
    touched_at = models.DateTimeField(default=timezone.now)
    """When a writer last relied on it."""

    class Meta:
        constraints = [non_negative("helix_blob_size", "size")]
        indexes = [models.Index(fields=["touched_at"], name="helix_blob_touched_idx")]

    def __str__(self) -> str:
        return str(self.sha256)


class BlobRef(models.Model):
    """A session has a content: in its documents or, `posted`, beside them. It goes with the session, because
    the log keeps what was said. The foreign key keeps the content from being removed meanwhile."""

    pk = models.CompositePrimaryKey("session_id", "blob_id")
    session = session_key()
    blob = models.ForeignKey(Blob, on_delete=models.DO_NOTHING, related_name="+")
    posted = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"{self.session_id} {self.blob_id}"
