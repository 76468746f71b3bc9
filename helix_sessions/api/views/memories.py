"""Memories across sessions: found, kept, forgotten."""

from functools import cached_property

from django.http import HttpResponse
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from helix_sessions.api import examples, scoping
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.pagination import page_response
from helix_sessions.api.responses import json_response, no_content
from helix_sessions.api.schema import Query, listing, operation
from helix_sessions.api.serializers.memories import MemoriesQuery, MemoryInput, MemoryQuery
from helix_sessions.api.views.base import View
from helix_sessions.conf import conf
from helix_sessions.exceptions import ForeignNamespace
from helix_sessions.memory import MemoryStore
from helix_sessions.store.engine import cursors
from helix_sessions.store.memory.names import owner_namespace
from helix_sessions.types import Memory, Page

_LISTING = "memories"


class MemoriesView(View):
    @cached_property
    def memories(self) -> MemoryStore:
        """The memories this request may use: the user's own, or with a permission those of all users."""
        reads = self.request.method in SAFE_METHODS
        user = self.request.user
        is_free = scoping.may_view_all(user) if reads else scoping.may_manage_all(user)
        return MemoryStore(conf.API_DATABASE, owned_by=None if is_free else user)

    @property
    def _own(self) -> list[str]:
        """Where the memories of the user are."""
        return list(owner_namespace(self.request.user))

    def _refuse_foreign(self, namespace: list[str]) -> None:
        """Say that a namespace is another user's, whether something is there or not."""
        home = self.memories._home
        if tuple(namespace[: len(home)]) != home:
            raise ForeignNamespace

    @listing(
        "search_memories",
        tag="memories",
        response=Page[Memory],
        example=examples.MEMORY,
        query=[
            Query("prefix", "How namespaces begin, a JSON list of strings; the user's own without it."),
            Query("query", "Words that all must be found, or what the meaning should be near to."),
        ],
        etag=False,
    )
    def get(self, request: Request) -> HttpResponse:
        """Search memories, best first; without a query the newest first."""
        given = self.query(MemoriesQuery)
        prefix = given.get("prefix", self._own)
        self._refuse_foreign(prefix)
        [offset] = cursors.decode(_LISTING, given["cursor"], int) if "cursor" in given else [0]
        limit = given["limit"]
        found = self.memories.search(prefix, query=given.get("query"), limit=limit + 1, offset=offset)
        more = cursors.encode(_LISTING, offset + limit) if len(found) > limit else None
        return page_response(request, Page(items=found[:limit], next_cursor=more))

    @operation(
        "put_memory",
        tag="memories",
        request=MemoryInput,
        sent={"namespace": ["owner", "7"], "key": "tea", "value": {"text": "Likes green tea."}},
        response=Memory,
        status=201,
        example=examples.MEMORY,
        etag=False,
    )
    @idempotent
    def post(self, request: Request) -> HttpResponse:
        """Keep a document under a key of a namespace, in the place of the one before."""
        given = self.input(MemoryInput)
        namespace, key = given.pop("namespace", self._own), given.pop("key")
        self.memories.put(namespace, key, given.pop("value"), **given)
        return json_response(self.memories.get(namespace, key), status=201)

    @operation(
        "delete_memory",
        tag="memories",
        status=204,
        etag=False,
        query=[
            Query("namespace", "A JSON list of strings; the user's own without it."),
            Query("key", "The key of the memory."),
        ],
    )
    def delete(self, request: Request) -> HttpResponse:
        """Forget the memory under a key of a namespace, if there is one."""
        given = self.query(MemoryQuery)
        namespace = given.get("namespace", self._own)
        self._refuse_foreign(namespace)
        self.memories.delete(namespace, given["key"])
        return no_content()
