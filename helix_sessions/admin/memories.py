"""Memories across sessions: found and read, and deleted by those who may."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from helix_sessions.admin import decryption, documents, widgets
from helix_sessions.admin.lists import FOUND_BY_EACH, ConsoleList
from helix_sessions.content import encryption
from helix_sessions.content.documents import write
from helix_sessions.exceptions import ContentUnreadable, HelixSessionsError
from helix_sessions.memory import MemoryStore
from helix_sessions.models import Memory
from helix_sessions.models.fields import beginning_of, size_of
from helix_sessions.store.memory import memories, names, operations, rows


class MemoryAdmin(ConsoleList):
    """What agents remember. They write it; an operator may delete it."""

    list_display = ("key_shown", "place", "brief", "updated", "expires")
    list_display_links = ("key_shown",)
    ordering = ("-updated_at", "memory_id")
    search_fields = ("key",)
    search_help_text = _("Words of a memory, or the beginning of a namespace, such as owner/7.")
    fields = ("place", "key_shown", "document", "created_at", "updated_at", "expires_at")
    readonly_fields = fields

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Those who may delete memories."""
        return bool(request.user.has_perm("helix_sessions.delete_memory"))

    def get_queryset(self, request: HttpRequest) -> Any:
        """What has not expired, with the beginnings of the values: they may be large."""
        found = super().get_queryset(request).filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()))
        beginning = beginning_of("value", documents.CHARACTERS_SHOWN)
        columns = ("namespace", "key", "created_at", "updated_at", "expires_at")
        return found.only(*columns).annotate(text=beginning, size=size_of("value"))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By words, never by meaning: a page asks no model. By namespace too."""
        term = search_term.strip()
        if not term:
            return queryset, False
        found = _found_by_words(request, term)
        try:
            bounds = names.bounds(names.namespace([part for part in term.split("/") if part]))
        except HelixSessionsError:
            bounds = None
        within = Q(namespace__gte=bounds[0], namespace__lt=bounds[1]) if bounds else Q(pk__in=())
        return queryset.filter(Q(pk__in=found) | within), False

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Through the store."""
        MemoryStore().delete(names.parts_of(obj.namespace), obj.key)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        """The same of several."""
        for memory in queryset:
            self.delete_model(request, memory)

    @admin.display(description=_("Key"))
    def key_shown(self, memory: Memory) -> str:
        """The key."""
        return str(memory.key)

    @admin.display(description=_("Namespace"))
    def place(self, memory: Memory) -> str:
        """Its parts."""
        return " / ".join(names.parts_of(memory.namespace))

    @admin.display(description=_("Value"))
    def brief(self, memory: Any) -> SafeString:
        """Its first words."""
        return format_html("<code>{}</code>", _shown(memory).brief)

    @admin.display(description=_("Value"))
    def document(self, memory: Any) -> SafeString:
        """The value without its secrets."""
        context = {"shown": _shown(memory), "is_open": True}
        page = render_to_string("admin/helix_sessions/includes/document.html", context)
        return format_html('<div class="hx">{}</div>', page)

    @admin.display(description=_("Updated"))
    def updated(self, memory: Memory) -> SafeString:
        """How long ago."""
        return widgets.when(memory.updated_at)

    @admin.display(description=_("Expires"))
    def expires(self, memory: Memory) -> SafeString | str:
        """When it goes."""
        return "-" if memory.expires_at is None else widgets.deadline(memory.expires_at)


def _shown(memory: Any) -> documents.Preview:
    text, size = memory.text, memory.size
    if text.startswith(encryption.SEALED):
        try:
            text = encryption.open_text(rows.place(memory.memory_id, "value"), text)
        except ContentUnreadable as error:
            text = write(decryption.note(error))
        size = len(text)
        text = text[: documents.CHARACTERS_SHOWN]
    return documents.shown_beginning(text, size)


def _found_by_words(request: HttpRequest, term: str) -> list[str]:
    store = MemoryStore()
    try:
        [found] = memories.apply(store, [operations.search((), query=term, limit=FOUND_BY_EACH)], None)
    except HelixSessionsError as error:
        messages.warning(request, str(error))
        return []
    return [names.memory_id(memory.namespace, memory.key) for memory in found]
