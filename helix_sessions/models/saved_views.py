"""Views of the session list that operators have saved."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from helix_sessions.models.databases import OwnerKey, go_with_owner
from helix_sessions.models.fields import IdField


class SavedView(models.Model):
    """Filters, search and order of the session list under a name. It goes with its operator. A user who may
    see sessions may open it by its id."""

    view_id = IdField(primary_key=True, max_length=36)
    owner = OwnerKey(settings.AUTH_USER_MODEL, on_delete=go_with_owner, db_index=False)
    name = models.CharField(_("name"), max_length=80)
    query = models.TextField(_("query string"))
    created_at = models.DateTimeField(_("created at"))

    class Meta:
        verbose_name = _("saved view")
        verbose_name_plural = _("saved views")
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="helix_saved_view_name")]

    def __str__(self) -> str:
        return self.name
