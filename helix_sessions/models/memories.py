"""Memories: documents under a key of a namespace, which outlive sessions.

`memory_id` is a digest of namespace and key, so a memory is found by one column, regardless of its names. A
namespace is stored as one text whose order is that of the tuples, so a prefix is a range of an index (see
`store/memory/names.py`).
"""

from django.db import models
from django.utils.translation import gettext_lazy as _

from helix_sessions.models.fields import DocumentField, IdField, VectorField


class Memory(models.Model):
    """A document under a key of a namespace. `searchable` has the words of the value that a search finds,
    sealed where content is encrypted. `dims` is the length of its vectors, 0 without. `ttl`, in seconds, is
    what `expires_at` was made of."""

    memory_id = IdField(primary_key=True, max_length=32)
    namespace = IdField(_("namespace"), max_length=1_500)
    key = IdField(_("key"))
    value = DocumentField(_("value"))
    searchable = models.TextField(default="")
    dims = models.BigIntegerField(default=0)
    ttl = models.FloatField(null=True)
    created_at = models.DateTimeField(_("created at"))
    updated_at = models.DateTimeField(_("updated at"))
    expires_at = models.DateTimeField(_("expires at"), null=True)

    class Meta:
        verbose_name = _("memory")
        verbose_name_plural = _("memories")
        indexes = [
            models.Index(fields=["namespace"], name="helix_memory_namespace_idx"),
            models.Index(fields=["updated_at"], name="helix_memory_updated_idx"),
            models.Index(
                fields=["expires_at"],
                condition=models.Q(expires_at__isnull=False),
                name="helix_memory_expiry_idx",
            ),
        ]

    def __str__(self) -> str:
        return str(self.key)


class MemoryVector(models.Model):
    """The direction of one text of a memory, as a vector of length 1. Where content is encrypted, `sealed`
    has it and `vector` is null."""

    pk = models.CompositePrimaryKey("memory_id", "number")
    memory_id = IdField(max_length=32)
    number = models.BigIntegerField()
    vector = VectorField(null=True)
    sealed = models.TextField(null=True)  # noqa: DJ001

    def __str__(self) -> str:
        return f"{self.memory_id} vector {self.number}"
