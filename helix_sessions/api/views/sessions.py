"""Sessions: list, create, read, delete, branch, describe."""

from typing import Any

from django.http import HttpResponse
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request

from helix_sessions.api import conditions, examples, scoping
from helix_sessions.api.exceptions import PreconditionFailed
from helix_sessions.api.filters import SessionFilter, narrowed, queries
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.outputs import Attached, Metadata, Root, Version
from helix_sessions.api.pagination import page_response
from helix_sessions.api.policy import check_new_session
from helix_sessions.api.responses import json_response, no_content
from helix_sessions.api.schema import listing, operation
from helix_sessions.api.serializers.pages import PageQuery
from helix_sessions.api.serializers.sessions import (
    AttachInput,
    CloneInput,
    DescriptionInput,
    NewSessionInput,
    SessionInput,
)
from helix_sessions.api.views.base import View
from helix_sessions.conf import conf
from helix_sessions.exceptions import SessionExists, SessionNotFound
from helix_sessions.store import SessionStore
from helix_sessions.store.engine import inputs
from helix_sessions.types import Page, SessionState, SessionSummary


class RootView(View):
    @operation(
        "get_root",
        tag="sessions",
        response=Root,
        etag=False,
        example={"sessions": "/api/sessions/"},
    )
    def get(self, request: Request) -> HttpResponse:
        """Where to begin."""
        self.query()
        return json_response(Root(sessions=self.address("sessions")))


class CreatingView(View):
    """A view that creates sessions."""

    creates_sessions = True

    def create(self, session_id: str | None, given: dict[str, Any]) -> SessionState:
        """Create a session of the user, or of another user with the permission for all sessions."""
        check_new_session(self.request.user, given.get("agent_type"), given)
        owner = inputs.owner_key(given.pop("owner", None))
        me = inputs.owner_key(self.request.user)
        if owner in (None, me):
            return self.store.create_session(session_id, owner=me, **given)
        if not scoping.may_manage_all(self.request.user):
            raise PermissionDenied
        return SessionStore(conf.API_DATABASE).create_session(session_id, owner=owner, **given)

    def created(self, state: SessionState) -> HttpResponse:
        return self.shown(state, status=201, headers=self.location(state.session_id))


class SessionsView(CreatingView):
    @listing(
        "list_sessions",
        tag="sessions",
        response=Page[SessionSummary],
        example=examples.SUMMARY,
        query=queries(SessionFilter),
        etag=False,
    )
    def get(self, request: Request) -> HttpResponse:
        """List the sessions this user may see, newest first."""
        page = self.query(PageQuery, besides=tuple(SessionFilter.base_filters))
        store = scoping.listing_store(request)
        rows = narrowed(SessionFilter, request.query_params, store.query_sessions())
        return page_response(request, store.page_of_sessions(rows, **page))

    @operation(
        "create_session",
        tag="sessions",
        request=NewSessionInput,
        sent={"session_id": examples.SESSION_ID, **examples.NEW_SESSION},
        response=SessionState,
        status=201,
        example=examples.STATE,
        located=True,
    )
    @idempotent
    def post(self, request: Request) -> HttpResponse:
        """Create a session; 409 when there is one with its id."""
        given = self.input(NewSessionInput)
        return self.created(self.create(given.pop("session_id", None), given))


class SessionView(CreatingView):
    def rate_scope(self, request: Request) -> str:
        return "write" if request.method in ("DELETE", "PATCH") else super().rate_scope(request)

    @operation("get_session", tag="sessions", response=SessionState, example=examples.STATE)
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """Read a session."""
        self.query()
        return self.state(session_id)

    @operation(
        "ensure_session",
        tag="sessions",
        request=SessionInput,
        sent=examples.NEW_SESSION,
        response=SessionState,
        status=201,
        example=examples.STATE,
        also={200: SessionState},
        located=True,
    )
    def put(self, request: Request, session_id: str) -> HttpResponse:
        """Create the session with this id, or find it: 201 when it is new, 200 and untouched when it is not.

        With `If-None-Match: *` an existing one is 412. An id of another user's session is 409.
        """
        given = self.input(SessionInput)
        try:
            return self.created(self.create(session_id, given))
        except SessionExists as taken:
            if conditions.creates_only(request):
                raise PreconditionFailed("There is a session with this id already.") from None
            try:
                state = self.store.load_state(session_id)
            except SessionNotFound:
                raise taken from None
        return self.shown(state)

    @operation(
        "update_session",
        tag="sessions",
        request=DescriptionInput,
        sent={"title": "A lost parcel", "tags": ["vip"]},
        response=SessionState,
        example=examples.STATE,
        if_match=True,
    )
    def patch(self, request: Request, session_id: str) -> HttpResponse:
        """Change what describes a session: title, tags, user, keys of the metadata."""
        given = self.input(DescriptionInput)
        self.store.update_session(session_id, **given, expected_version=self.expected_version(session_id))
        return self.shown(self.store.load_state(session_id))

    @operation("delete_session", tag="sessions", status=204, etag=False, if_match=True)
    def delete(self, request: Request, session_id: str) -> HttpResponse:
        """Delete a session, all that belongs to it, and its tree of sub-sessions."""
        store = scoping.store_of(request, session_id)
        store.delete_session(session_id, expected_version=self.expected_version(session_id))
        return no_content()


class CloneView(CreatingView):
    @operation(
        "clone_session",
        tag="sessions",
        request=CloneInput,
        sent={"new_id": "support-4711-b", "checkpoint_id": examples.CHECKPOINT_ID},
        response=SessionState,
        status=201,
        example={
            **examples.STATE,
            "session_id": "support-4711-b",
            "version": 1,
            "forked_from": [examples.SESSION_ID, examples.CHECKPOINT_ID],
        },
        if_match=True,
        located=True,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Branch off a new session, from now or from a checkpoint. The source does not change."""
        given = self.input(CloneInput)
        self.check_version(session_id)
        return self.created(self.store.clone_session(session_id, given.pop("new_id", None), **given))


class MetadataView(View):
    @operation(
        "get_metadata",
        tag="sessions",
        response=Metadata,
        example={"metadata": {"tier": "gold"}, "version": 2},
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """Read the metadata."""
        self.query()
        unchanged = self.unchanged(session_id)
        if unchanged is not None:
            return unchanged
        metadata, version = self.store.get_metadata(session_id)
        return json_response(Metadata(metadata=metadata, version=version), version=version)

    @operation(
        "patch_metadata",
        tag="sessions",
        request={"application/json": {"type": "object", "additionalProperties": {}}},
        sent={"tier": "gold", "trial": None},
        response=Version,
        example={"version": 3},
        if_match=True,
    )
    def patch(self, request: Request, session_id: str) -> HttpResponse:
        """Set keys of the metadata; a null removes its key."""
        patch = self.json()
        version = self.store.patch_metadata(
            session_id, patch, expected_version=self.expected_version(session_id)
        )
        return json_response(Version(version=version), version=version)


class AttachView(CreatingView):
    @operation(
        "attach",
        tag="events",
        request=AttachInput,
        sent={"agent_type": "support"},
        response=Attached,
        example={"head_seq": 5},
        etag=False,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """The number of the last event; a session that does not exist is created."""
        return json_response(Attached(head_seq=self.store.attach(session_id, **self.input(AttachInput))))


class DetachView(View):
    @operation("detach", tag="events", status=204, etag=False)
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Release what the server holds for a session; events stay."""
        self.store.detach(session_id)
        return no_content()
