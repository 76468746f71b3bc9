"""OpenTelemetry spans of the store's calls, where it is installed and a provider is set; otherwise nothing.

A session is one trace: calls that no span surrounds, in any process, are children of the `traceparent` in its
`tracing_context`. A session that is created without a context gets the one it is created in. Spans name
calls, sessions and error codes, never content.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from django.db import connections

from helix_sessions import documents
from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.store.unit import read_row

try:
    from opentelemetry import propagate, trace
except ImportError:
    trace = None  # type: ignore[assignment]

T = TypeVar("T", bound=type)
Carrier = dict[str, str]

_NO_SPAN = frozenset(("subscribe", "detach", "project_messages", "query_sessions", "query_runs"))
"""Calls that are no piece of work with an end."""

_MOST = 4096
_carriers: dict[tuple[str, str], Carrier] = {}
"""The traces of the sessions this process worked on last. A session keeps its trace."""


def follow(store: T) -> T:
    """Let each call of a store be a span."""
    if trace is not None:
        for name, call in inspect.getmembers(store, inspect.isfunction):
            if not name.startswith("_") and name not in _NO_SPAN:
                setattr(store, name, _traced(name, call))
    return store


def is_on() -> bool:
    """Whether anybody receives spans."""
    return trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def current() -> Carrier | None:
    """The trace around this call, as a session keeps it."""
    if not is_on():
        return None
    carrier: Carrier = {}
    propagate.inject(carrier)
    return carrier or None


def _traced(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    first = next(iter([*inspect.signature(call).parameters][1:]), "")

    @wraps(call)
    def traced(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_on():
            return call(self, *args, **kwargs)
        session_id = None
        if first in ("session_id", "source_id"):
            session_id = args[0] if args else kwargs.get(first)
        with _span(name, self.using, session_id) as span:
            try:
                return call(self, *args, **kwargs)
            except HelixSessionsError as error:
                span.set_status(trace.StatusCode.ERROR, error.code)
                raise
            except Exception as error:
                span.set_status(trace.StatusCode.ERROR, type(error).__name__)
                raise

    return traced


def _span(name: str, using: str, session_id: Any) -> Any:
    known = isinstance(session_id, str)
    around = trace.get_current_span().get_span_context().is_valid
    carrier = _carrier(using, session_id) if known and not around else {}
    return trace.get_tracer("helix_sessions").start_as_current_span(
        f"helix_sessions.{name}",
        context=propagate.extract(carrier) if carrier else None,
        attributes={"helix_sessions.session_id": session_id} if known else {},
        record_exception=False,  # an error may quote what was sent
        set_status_on_exception=False,
    )


def _carrier(using: str, session_id: str) -> Carrier:
    key = (using, session_id)
    if key not in _carriers:
        try:
            text = read_row(connections[using], session_id, ("tracing_context",)).tracing_context
        except Exception:  # the call itself says what is wrong
            return {}
        context = None if text is None else documents.load(text)
        _carriers[key] = _strings(context)
        if len(_carriers) > _MOST:
            del _carriers[next(iter(_carriers))]
    return _carriers[key]


def _strings(context: Any) -> Carrier:
    if not isinstance(context, dict):
        return {}
    return {str(name): value for name, value in context.items() if isinstance(value, str)}
