"""The boundary of the store: every public operation passes through it.

An operation is a function of a `Store`. As a method of `SessionStore` it is a span of the session's trace,
and errors of the driver are translated: `StoreUnavailable` or `SessionBusy` where it is known that nothing
was written. A commit without an answer stays Django's `OperationalError`, because its outcome is unknown.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from django.db import DatabaseError, connections

from helix_sessions.exceptions import SessionNotFound
from helix_sessions.store.engine import moves, tracing
from helix_sessions.store.engine.connection import let_go_if_broken, outage
from helix_sessions.types import UNSET

F = TypeVar("F", bound=Callable[..., Any])


def operation(function: F, *, traced: bool = True) -> F:
    """Make a public method of a function whose first argument is the store.

    `traced=False` is for calls that are no piece of work with an end, such as a subscription.
    """
    name = function.__name__
    names_session = traced and _first_argument(function) in ("session_id", "source_id", "lease")

    @wraps(function)
    def call(store: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if not (traced and tracing.is_on()):
                return function(store, *args, **kwargs)
            session_id = _session_id(args, kwargs) if names_session else None
            with tracing.span(name, store.using, session_id):
                return function(store, *args, **kwargs)
        except SessionNotFound as error:
            moves.explain_absence(connections[store.using], error, getattr(store, "_owner", UNSET))
            raise
        except DatabaseError as error:
            connection = connections[store.using]
            let_go_if_broken(connection)
            translated = outage(connection, error)
            if translated is None:
                raise
            raise translated from error

    return cast(F, call)


def _first_argument(function: Callable[..., Any]) -> str | None:
    return next(iter([*inspect.signature(function).parameters][1:]), None)


def _session_id(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    named = (kwargs[name] for name in ("session_id", "source_id", "lease") if name in kwargs)
    found = args[0] if args else next(named, None)
    return getattr(found, "session_id", found)  # a lease names its session
