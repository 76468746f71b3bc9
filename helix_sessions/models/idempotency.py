"""Answers that were given once and are given again."""

from django.conf import settings
from django.db import models

from helix_sessions.models.fields import DocumentField, IdField


class IdempotentAnswer(models.Model):
    """What a request with an idempotency key was answered. The key belongs to one user; `digest` tells
    whether a later request is the same one. Without a status, the request is being worked on."""

    pk = models.CompositePrimaryKey("user_id", "key")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
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
