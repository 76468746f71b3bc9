"""Which sessions a user reaches: their own, and with a permission those of all users. `policy` says what for.

`view_all_sessions` allows reading, `manage_all_sessions` and `drive_any_session` reading and writing. For a
user without them, the session of another user does not exist, in every call.
"""

from typing import Any, cast

from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from helix_sessions.api.permissions import holds_any
from helix_sessions.conf import conf
from helix_sessions.exceptions import SessionNotFound
from helix_sessions.store import SessionStore
from helix_sessions.types import Lease

VIEW_ALL = "helix_sessions.view_all_sessions"
MANAGE_ALL = "helix_sessions.manage_all_sessions"
DRIVE = "helix_sessions.drive_session"
DRIVE_ANY = "helix_sessions.drive_any_session"


def may_view_all(user: Any) -> bool:
    return holds_any(user, VIEW_ALL) or may_manage_all(user)


def may_manage_all(user: Any) -> bool:
    return holds_any(user, MANAGE_ALL, DRIVE_ANY)


class _WideningStore:
    """Try the user's own sessions first. Only for an id that is not among them the permissions are checked,
    and the call is tried on all sessions; a refused call has written nothing, so it can be retried."""

    def __init__(self, user: Any, *, writing: bool, lease: Lease | None = None) -> None:
        self._user = user
        self._writing = writing
        self._own = SessionStore(conf.API_DATABASE, owned_by=user)
        self._all = SessionStore(conf.API_DATABASE)
        if lease is not None:
            self._own, self._all = self._own.fenced(lease), self._all.fenced(lease)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._own, name)

        def widening(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(*args, **kwargs)
            except SessionNotFound:
                if self._writing and not may_manage_all(self._user):
                    self._say_if_only_seen(kwargs.get("session_id", next(iter(args), None)))
                    raise
                if not may_view_all(self._user):
                    raise
            return getattr(self._all, name)(*args, **kwargs)

        return widening

    def _say_if_only_seen(self, session_id: Any) -> None:
        """A user who may see a session gets 403 instead of 404."""
        if isinstance(session_id, str) and may_view_all(self._user) and self._all.session_exists(session_id):
            raise PermissionDenied


def store_for(request: Request, lease: Lease | None = None) -> SessionStore:
    """The store as this request may use it. Every call in it names its session. With a lease, writes to the
    session of the lease are fenced by it."""
    writing = request.method not in SAFE_METHODS
    return cast(SessionStore, _WideningStore(request.user, writing=writing, lease=lease))


def store_of(request: Request, session_id: str) -> SessionStore:
    """A store that has this session, for calls that do not raise when it is unknown."""
    store_for(request).get_session_head(session_id)
    own = SessionStore(conf.API_DATABASE, owned_by=request.user)
    return own if own.session_exists(session_id) else SessionStore(conf.API_DATABASE)


def listing_store(request: Request) -> SessionStore:
    """The store whose sessions this user may list."""
    if may_view_all(request.user):
        return SessionStore(conf.API_DATABASE)
    return SessionStore(conf.API_DATABASE, owned_by=request.user)


def changing_store(request: Request) -> SessionStore:
    """The store all of whose sessions this user may change."""
    if may_manage_all(request.user):
        return SessionStore(conf.API_DATABASE)
    return SessionStore(conf.API_DATABASE, owned_by=request.user)
