"""OpenTelemetry spans of the store's operations, where a provider is set; otherwise nothing.

A session is one trace: calls that no span surrounds, in any process, are children of the `traceparent` in its
`tracing_context`. A session that is created without a context gets the one it is created in; for one that has
none, every process derives the same trace from its id. Spans name calls, sessions and error codes, never
content.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from django.db import connections

from helix_sessions.content import documents
from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.store.engine.session_rows import read_row

try:
    from opentelemetry import propagate, trace
except ImportError:
    trace = None  # type: ignore[assignment]

Carrier = dict[str, str]

_MOST_CARRIERS = 4096
_carriers: dict[tuple[str, str], Carrier] = {}
"""The traces of the sessions this process worked on last. A session keeps its trace."""


def is_on() -> bool:
    """Whether spans are received."""
    return trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def current() -> Carrier | None:
    """The trace around this call, as a session keeps it."""
    if not is_on():
        return None
    carrier: Carrier = {}
    propagate.inject(carrier)
    return carrier or None


@contextmanager
def span(name: str, using: str, session_id: Any) -> Iterator[None]:
    """A span around one operation; an error ends it with its code."""
    with _start(name, using, session_id) as started:
        try:
            yield
        except HelixSessionsError as error:
            started.set_status(trace.StatusCode.ERROR, error.code)
            raise
        except Exception as error:
            started.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise


def _start(name: str, using: str, session_id: Any) -> Any:
    known = isinstance(session_id, str)
    around = trace.get_current_span().get_span_context().is_valid
    return trace.get_tracer("helix_sessions").start_as_current_span(
        f"helix_sessions.{name}",
        context=session_trace(using, session_id) if known and not around else None,
        attributes={"helix_sessions.session_id": session_id} if known else {},
        record_exception=False,  # an error may quote what was sent
        set_status_on_exception=False,
    )


def session_trace(using: str, session_id: str) -> Any:
    """The trace of a session, as a parent of spans; `None` if there is no session."""
    carrier = _carrier(using, session_id)
    if carrier is None:
        return None
    stored = propagate.extract(carrier) if carrier else None
    if stored is not None and trace.get_current_span(stored).get_span_context().is_valid:
        return stored
    return _derived(session_id)


def _derived(session_id: str) -> Any:
    """The same trace in every process; whether it is sampled is decided as for a span without a parent."""
    digest = sha256(f"helix_sessions:{session_id}".encode()).digest()
    trace_id, span_id = int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big")
    sampler = getattr(trace.get_tracer_provider(), "sampler", None)
    sampled = sampler is None or sampler.should_sample(None, trace_id, "session").decision.is_sampled()
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if sampled else trace.TraceFlags.DEFAULT)
    parent = trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(trace.NonRecordingSpan(parent))


def _carrier(using: str, session_id: str) -> Carrier | None:
    key = (using, session_id)
    if key not in _carriers:
        try:
            text = read_row(connections[using], session_id, ("tracing_context",)).tracing_context
        except Exception:  # the call itself says what is wrong
            return None
        context = None if text is None else documents.load(text)
        _carriers[key] = _strings(context)
        if len(_carriers) > _MOST_CARRIERS:
            del _carriers[next(iter(_carriers))]
    return _carriers[key]


def _strings(context: Any) -> Carrier:
    if not isinstance(context, dict):
        return {}
    return {str(name): value for name, value in context.items() if isinstance(value, str)}
