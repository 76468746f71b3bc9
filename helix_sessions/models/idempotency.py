"""Responses that are kept for retries."""

from django.conf import settings
from django.db import models

from helix_sessions.models.databases import OwnerKey, go_with_owner
from helix_sessions.models.fields import DocumentField, IdField


class IdempotentAnswer(models.Model):
    """The response to a request with an idempotency key. The key belongs to one user; `digest` identifies the
    request. Without a status, the request is in progress."""

    pk = models.CompositePrimaryKey("user_id", "key")
    user = OwnerKey(settings.AUTH_USER_MODEL, on_delete=go_with_owner, db_index=False)
    key = IdField()
    digest = IdField(max_length=32)
    status = models.PositiveSmallIntegerField(null=True)
    headers = DocumentField(default=dict, searchable=True)
    body = models.TextField(default="")
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="helix_answer_expiry_idx")]

    def __str__(self) -> str:
        return f"{self.user_id} {self.key}"
