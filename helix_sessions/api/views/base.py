"""What every view shares: who may, what was sent, what it is conditional on."""

from collections.abc import Callable
from functools import cache, cached_property, partial
from typing import Any

from django.http import HttpResponse
from django.urls import reverse
from rest_framework.exceptions import ValidationError
from rest_framework.parsers import JSONParser
from rest_framework.permissions import SAFE_METHODS, IsAuthenticated
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from helix_sessions.api import audit, bodies, conditions
from helix_sessions.api.exceptions import handle
from helix_sessions.api.pagination import page_response
from helix_sessions.api.responses import etag, json_response
from helix_sessions.api.scoping import store_for
from helix_sessions.api.serializers.fields import Input
from helix_sessions.api.serializers.pages import NoQuery
from helix_sessions.api.throttles import ScopeThrottle
from helix_sessions.store import SessionStore
from helix_sessions.types import Page, SessionHead


class View(APIView):
    """Closed to anonymous users, whatever the project's defaults are."""

    permission_classes = [IsAuthenticated]
    throttle_classes = [ScopeThrottle]
    parser_classes = [JSONParser]
    renderer_classes = [JSONRenderer]
    creates_sessions = False
    max_body_bytes: int | None = None
    """The largest body this view reads, where it is less than the setting allows."""

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Answer, and tell of it."""
        return audit.watched(self, request, partial(super().dispatch, request, *args, **kwargs))

    def get_exception_handler(self) -> Callable[..., Any]:
        return handle

    def throttle_scope(self, request: Request) -> str:
        """The scope whose rate this request counts against."""
        if request.method in SAFE_METHODS:
            return "read"
        return "create" if self.creates_sessions else "write"

    @cached_property
    def store(self) -> SessionStore:
        """The store as this request may use it."""
        return store_for(self.request)

    @cached_property
    def body(self) -> bytes:
        """The body of the request."""
        return bodies.read(self.request, self.max_body_bytes)

    def json(self, *allowed: str) -> Any:
        """The body as a JSON value."""
        return bodies.parse(self.request, self.body, allowed or (bodies.JSON_TYPE,))

    def input(self, kind: type[Input]) -> dict[str, Any]:
        """The body as the arguments of a call; what was left out is left out."""
        return checked(kind, self.json())

    def query(self, kind: type[Input] = NoQuery, *, besides: tuple[str, ...] = ()) -> dict[str, Any]:
        """The query parameters as the arguments of a call. `besides` are read elsewhere."""
        given = self.request.query_params
        lists = {name for name, field in _made(kind).fields.items() if hasattr(field, "child")}
        values = {
            name: given.getlist(name) if name in lists else given[name]
            for name in given
            if name not in besides
        }
        if any("\x00" in value for name in given for value in given.getlist(name)):
            raise ValidationError({"query": ["Null characters are not allowed."]})
        return checked(kind, values)

    def expected_version(self, session_id: str) -> int | None:
        """The version of `If-Match`."""
        return conditions.expected_version(self.request, self.store, session_id)

    def check_version(self, session_id: str) -> None:
        """Hold `If-Match` against the session, for a call that takes no version itself."""
        expected = self.expected_version(session_id)
        if expected is not None:
            self.store.check_session_version(session_id, expected)

    def tagged(self, session_id: str, read: Callable[[SessionHead], Any]) -> HttpResponse:
        """What `read` gives, with the version the session had before it; a 304 if the caller has that."""
        head = self.store.get_session_head(session_id)
        unchanged = self.not_modified(etag(head.version))
        if unchanged is not None:
            return unchanged
        found = read(head)
        if isinstance(found, Page):
            return page_response(self.request, found, version=head.version)
        return json_response(found, version=head.version)

    def state(self, session_id: str) -> HttpResponse:
        """The session as it is, or a 304."""
        unchanged = self.unchanged(session_id)
        if unchanged is not None:
            return unchanged
        state = self.store.load_state(session_id)
        return json_response(state, version=state.version)

    def unchanged(self, session_id: str) -> HttpResponse | None:
        """A 304, if the caller has this version already. No document is read for it."""
        if not conditions.asks_not_modified(self.request):
            return None
        return self.not_modified(etag(self.store.get_session_head(session_id).version))

    def location(self, session_id: str) -> dict[str, str]:
        """Return the header that says where a new session is."""
        path = reverse("helix_sessions:session", args=[session_id])
        return {"Location": self.request.build_absolute_uri(path)}

    def not_modified(self, tag: str) -> HttpResponse | None:
        if conditions.is_current(self.request, tag):
            return HttpResponse(status=304, headers={"ETag": tag})
        return None


@cache
def _made(kind: type[Input]) -> Input:
    """A serializer to be used again: making one copies all its fields, checking with one changes nothing."""
    return kind()


def checked(kind: type[Input], data: Any) -> dict[str, Any]:
    """Data of this shape, or a `ValidationError` that names what is wrong."""
    if data is None:
        raise ValidationError({"body": ["This must be an object."]})
    return dict(_made(kind).run_validation(data))


def risen(expected: int | None, by: int | bool = 1) -> int | None:
    """The version after a call that does not return it: known when the one before is."""
    return None if expected is None else expected + int(by)
