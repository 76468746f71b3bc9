"""The base of every view: authorization, body, preconditions.

The permission and throttle classes of the project come first. Its versioning, renderers, parsers,
negotiation, metadata and exception handler are for its own views: here they are ours.
"""

from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial
from typing import Any, TypeVar

from django.http import HttpResponse
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.metadata import SimpleMetadata
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import JSONParser
from rest_framework.permissions import SAFE_METHODS, AllowAny, IsAuthenticated
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from helix_sessions.api import audit, bodies, conditions, fences, private_state
from helix_sessions.api.exceptions import handle
from helix_sessions.api.pagination import page_response
from helix_sessions.api.policy import CREATING_VERBS, policy, refusal
from helix_sessions.api.responses import etag, json_response
from helix_sessions.api.scoping import store_for
from helix_sessions.api.serializers.fields import Input
from helix_sessions.api.serializers.pages import NoQuery
from helix_sessions.api.throttles import ScopeThrottle
from helix_sessions.store import SessionStore
from helix_sessions.types import Page, SessionHead, SessionState

T = TypeVar("T")

VERSION = "v1"
"""Every address is there with this prefix too. A change that would break clients gets another."""

VERSIONED = f"{VERSION}-"
"""How the names of those addresses begin."""


class View(APIView):
    """Closed to anonymous users, regardless of the project's defaults."""

    permission_classes = [IsAuthenticated]
    throttle_classes = [ScopeThrottle]
    parser_classes = [JSONParser]
    renderer_classes = [JSONRenderer]
    content_negotiation_class = DefaultContentNegotiation
    metadata_class = SimpleMetadata
    versioning_class = None
    follows_project = True
    """Whether the project's own permission and throttle classes are asked first."""
    rate_limit: dict[str, str] = {}
    creates_sessions = False
    max_body_bytes: int | None = None
    """The largest body this view reads, where it is less than the setting allows."""

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Handle the request, and record it."""
        return audit.watched(self, request, partial(super().dispatch, request, *args, **kwargs))

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Let the project's rules and ours be asked, then the policy."""
        super().initial(request, *args, **kwargs)
        handler = getattr(self, str(request.method).lower(), None)
        if request.method != "OPTIONS" and handler is not None:
            self.check_policy(request, getattr(handler, "verb", ""), kwargs.get("session_id"))

    def check_policy(self, request: Request, verb: str, session_id: str | None) -> None:
        """Refuse what the policy does not allow. A session of others is unknown, not refused."""
        session = None
        if session_id is not None:
            session = SimpleLazyObject(lambda: self.store.get_session_head(session_id))
        if policy().may(request, verb, session):
            return
        if session_id is not None and verb not in CREATING_VERBS:
            self.store.get_session_head(session_id)
        raise PermissionDenied(refusal(verb))

    def get_permissions(self) -> list[Any]:
        """Ask the project's classes first."""
        project: Sequence[Any] = api_settings.DEFAULT_PERMISSION_CLASSES if self.follows_project else []
        asked = [kind for kind in project if kind is not AllowAny]
        return [kind() for kind in (*asked, *self.permission_classes)]

    def get_throttles(self) -> list[Any]:
        """Ask the project's classes first."""
        project: Sequence[Any] = api_settings.DEFAULT_THROTTLE_CLASSES if self.follows_project else []
        return [kind() for kind in (*project, *self.throttle_classes)]

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Say what is left of the rate that this request counted against."""
        response = super().finalize_response(request, response, *args, **kwargs)
        for name, value in self.rate_limit.items():
            response[name] = value
        return response

    def get_exception_handler(self) -> Callable[..., Any]:
        return handle

    def rate_scope(self, request: Request) -> str:
        """The scope whose rate this request counts against."""
        if request.method in SAFE_METHODS:
            return "read"
        return "create" if self.creates_sessions else "write"

    @cached_property
    def store(self) -> SessionStore:
        """The store as this request may use it; with `Helix-Fence`, as the holder of that lease."""
        lease = fences.lease_of(self.request, self.kwargs.get("session_id"))
        return store_for(self.request, lease)

    @cached_property
    def body(self) -> bytes:
        """The body of the request."""
        return bodies.read(self.request, self.max_body_bytes)

    def json(self, *allowed: str) -> Any:
        """The body as a JSON value."""
        return bodies.parse(self.request, self.body, allowed or (bodies.JSON_TYPE,))

    def input(self, kind: type[Input]) -> dict[str, Any]:
        """The body as the arguments of a call, without omitted keys."""
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
        """Check `If-Match` against the session, for a call that takes no version."""
        expected = self.expected_version(session_id)
        if expected is not None:
            self.store.check_session_version(session_id, expected)

    def tagged(self, session_id: str, read: Callable[[SessionHead], Any]) -> HttpResponse:
        """The result of `read`, with the version of the session before it; a 304 if the caller has that
        version."""
        head = self.store.get_session_head(session_id)
        unchanged = self.not_modified(etag(head.version))
        if unchanged is not None:
            return unchanged
        found = self.visible(read(head))
        if isinstance(found, Page):
            return page_response(self.request, found, version=head.version)
        return json_response(found, version=head.version)

    def state(self, session_id: str) -> HttpResponse:
        """The session as it is, or a 304."""
        unchanged = self.unchanged(session_id)
        if unchanged is not None:
            return unchanged
        return self.shown(self.store.load_state(session_id))

    def shown(self, state: SessionState, **options: Any) -> HttpResponse:
        """A state, as this user may see it."""
        return json_response(self.visible(state), version=state.version, **options)

    def visible(self, value: T) -> T:
        """What this user may see of a value of the store."""
        return private_state.without(value, private_state.keys_hidden_from(self.request.user))

    def unchanged(self, session_id: str) -> HttpResponse | None:
        """A 304, if the caller has this version already. No document is read for it."""
        if not conditions.asks_not_modified(self.request):
            return None
        return self.not_modified(etag(self.store.get_session_head(session_id).version))

    def address(self, name: str, *ids: str) -> str:
        """The absolute address of this name, with the version in it if the request names one."""
        match = self.request.resolver_match
        if match is not None and (match.url_name or "").startswith(VERSIONED):
            name = f"{VERSIONED}{name}"
        return self.request.build_absolute_uri(reverse(f"helix_sessions:{name}", args=ids))

    def location(self, session_id: str) -> dict[str, str]:
        """Return the header that says where a new session is."""
        return {"Location": self.address("session", session_id)}

    def not_modified(self, tag: str) -> HttpResponse | None:
        if conditions.is_current(self.request, tag):
            return HttpResponse(status=304, headers={"ETag": tag})
        return None


@cache
def _made(kind: type[Input]) -> Input:
    """A cached serializer: creating one copies all its fields, and validation does not change it."""
    return kind()


def checked(kind: type[Input], data: Any) -> dict[str, Any]:
    """Data of this shape, or a `ValidationError` that names what is wrong."""
    if data is None:
        raise ValidationError({"body": ["This must be an object."]})
    return dict(_made(kind).run_validation(data))


def risen(expected: int | None, by: int | bool = 1) -> int | None:
    """The version after a call that does not return it, if the one before is known."""
    return None if expected is None else expected + int(by)
