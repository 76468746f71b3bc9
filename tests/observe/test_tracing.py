"""One trace for a session, whoever works on it, and no content in it."""

import pytest

pytest.importorskip("opentelemetry.sdk")

from asgiref.sync import async_to_sync
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from helix_sessions.exceptions import SessionNotFound
from helix_sessions.store import AsyncSessionStore
from helix_sessions.store.engine import tracing
from tests.rows import each

pytestmark = pytest.mark.django_db


@pytest.fixture
def spans(monkeypatch):
    """What was traced."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    tracing._carriers.clear()
    yield exporter.get_finished_spans
    tracing._carriers.clear()


def test_every_call_is_a_span(store, spans):
    store.create_session("s", agent_type="a")
    store.append_messages("s", [{"role": "user", "content": "swordfish"}])
    assert [span.name for span in spans()] == [
        "helix_sessions.create_session",
        "helix_sessions.append_messages",
    ]
    assert spans()[1].attributes == {"helix_sessions.session_id": "s"}
    assert "swordfish" not in "".join(span.to_json() for span in spans())


def test_a_session_is_one_trace(store, spans):
    store.create_session("s", agent_type="a")
    store.create_session("t", agent_type="a")
    for key in ("s", "t", "s"):
        tracing._carriers.clear()  # as another process would
        store.increment_step_count(key)
    traces = [span.context.trace_id for span in spans()]
    assert traces[0] == traces[2] == traces[4] != traces[1] == traces[3]


def test_a_trace_that_was_given(store, spans):
    given = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    store.create_session("s", agent_type="a", tracing_context=given)
    store.increment_step_count("s")
    assert spans()[-1].context.trace_id == 0x0AF7651916CD43DD8448EB211C80319C
    assert store.load_state("s").tracing_context == given


def test_inside_a_span_it_is_a_child(store, spans):
    store.create_session("s", agent_type="a")
    with trace.get_tracer_provider().get_tracer("app").start_as_current_span("work") as work:
        store.increment_step_count("s")
    [call] = [span for span in spans() if span.name.endswith("increment_step_count")]
    assert call.parent.span_id == work.get_span_context().span_id


def test_an_error_is_told_by_its_code(store, spans):
    with pytest.raises(SessionNotFound):
        store.load_state("swordfish-unknown")
    [span] = spans()
    assert (span.status.is_ok, span.status.description) == (False, "session_not_found")
    assert not span.events


@each("given", ["text", [1], {"traceparent": 5}, {"traceparent": "nonsense"}])
def test_a_context_that_is_none(given, store, spans):
    store.create_session("s", agent_type="a", tracing_context=given)
    assert store.increment_step_count("s") == 1


def test_without_a_provider_nothing_happens(store):
    store.create_session("s", agent_type="a")
    assert store.load_state("s").tracing_context is None


@pytest.mark.django_db(transaction=True)
def test_async_calls_too(spans):
    async_to_sync(AsyncSessionStore().create_session)("s", agent_type="a")
    assert [span.name for span in spans()] == ["helix_sessions.create_session"]
