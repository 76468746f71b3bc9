"""Who may: users reach their own sessions, and everybody's with a permission.

`view_all_sessions` lets read, `manage_all_sessions` lets read and write. Anybody else's session is
unknown to a user without them, in every call alike.
"""

from typing import Any, cast

from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from helix_sessions.conf import conf
from helix_sessions.exceptions import SessionNotFound
from helix_sessions.store import SessionStore

VIEW_ALL = "helix_sessions.view_all_sessions"
MANAGE_ALL = "helix_sessions.manage_all_sessions"


def may_view_all(user: Any) -> bool:
    return bool(user.has_perm(VIEW_ALL) or user.has_perm(MANAGE_ALL))


def may_manage_all(user: Any) -> bool:
    return bool(user.has_perm(MANAGE_ALL))


class _WideningStore:
    """The user's own sessions first. Only an id that is not among them costs a look at the permissions,
    and is then tried on all sessions; a refused call has written nothing, so it can be tried again."""

    def __init__(self, user: Any, *, writing: bool) -> None:
        self._user = user
        self._writing = writing
        self._own = SessionStore(conf.API_DATABASE, owned_by=user)
        self._all = SessionStore(conf.API_DATABASE)

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
        """Who may see a session is not told that it does not exist."""
        if isinstance(session_id, str) and may_view_all(self._user) and self._all.session_exists(session_id):
            raise PermissionDenied


def store_for(request: Request) -> SessionStore:
    """The store as this request may use it. Every call in it names its session."""
    writing = request.method not in SAFE_METHODS
    return cast(SessionStore, _WideningStore(request.user, writing=writing))


def store_of(request: Request, session_id: str) -> SessionStore:
    """A store that knows this session, for calls that do not say when it is unknown."""
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
