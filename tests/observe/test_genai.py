"""The loop as GenAI tools see it: one trace for a session, whatever process runs it, and no content."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from asgiref.sync import async_to_sync
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

from helix_sessions.exceptions import ContextOverflow
from helix_sessions.messages.telemetry import model_and_provider, semantic_message
from helix_sessions.runtime import (
    AgentDefinition,
    SessionRunner,
    SessionRuntime,
    ToolResult,
    TurnOutcome,
    telemetry,
)
from helix_sessions.store import SessionStore
from helix_sessions.store.engine import tracing

pytestmark = pytest.mark.django_db(transaction=True)

USAGE = {"input_tokens": 7, "output_tokens": 3, "cache_read_tokens": 2, "reasoning_tokens": 1}


class Agent:
    """Calls a tool, then says that it is done."""

    client_tools: tuple[str, ...] = ()
    approval_tools: tuple[str, ...] = ()

    def __init__(self, error: Exception | None = None, tools: Any = None) -> None:
        self.error = error
        self.tools = {"look": lambda arguments, turn: "swordfish seen"} if tools is None else tools

    def run_turn(self, turn: Any) -> TurnOutcome:
        if self.error is not None:
            raise self.error
        said: dict[str, Any] = {"role": "assistant", "content": "swordfish", "model": "openai:gpt-5"}
        if turn.context.messages[-1]["role"] == "user":
            call = {"id": "c1", "name": "look", "arguments": {"at": "swordfish"}}
            said = {**said, "tool_calls": [{**call, "id": f"c{n}"} for n in range(len(self.tools))]}
        return TurnOutcome(said, usage=USAGE)


@dataclass
class Received:
    spans: Callable[[], tuple[ReadableSpan, ...]]
    reader: InMemoryMetricReader

    def of_loop(self) -> list[ReadableSpan]:
        return [span for span in self.spans() if "gen_ai.operation.name" in (span.attributes or {})]

    def points(self, name: str) -> list[Any]:
        data: Any = self.reader.get_metrics_data()
        found = [metric for r in data.resource_metrics for s in r.scope_metrics for metric in s.metrics]
        return [point for metric in found if metric.name == name for point in metric.data.data_points]


def provide(sampler: Any = None) -> tuple[TracerProvider, MeterProvider, Received]:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider(sampler=sampler)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, MeterProvider([reader]), Received(exporter.get_finished_spans, reader)


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Received:
    provider, meters, found = provide()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: meters)
    tracing._carriers.clear()
    return found


def ask(store: SessionStore, agent: Any, session: str = "s") -> str:
    store.ensure_session(session, agent_type="support")
    store.admit_input(session, "Where is the swordfish?", resume=False)
    return SessionRunner(agent, store=store).run(session).kind


def test_a_run_is_told_in_the_words_of_the_conventions(store: SessionStore, received: Received) -> None:
    assert ask(store, Agent()) == "completed"
    spans = {span.name: span for span in received.of_loop()}
    assert sorted(span.name for span in received.of_loop()) == [
        *("chat gpt-5", "chat gpt-5", "execute_tool look", "invoke_agent support"),
    ]
    run, chat, tool = spans["invoke_agent support"], spans["chat gpt-5"], spans["execute_tool look"]
    common = {"gen_ai.agent.name": "support", "gen_ai.conversation.id": "s"}
    assert run.attributes == {
        **common,
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "unknown",
        "gen_ai.usage.input_tokens": 14,
        "gen_ai.usage.output_tokens": 6,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.reasoning.output_tokens": 2,
        "helix_sessions.outcome": "completed",
        "helix_sessions.run_id": store.list_runs("s").items[0].run_id,
    }
    assert chat.attributes == {
        **common,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.response.model": "gpt-5",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 2,
        "gen_ai.usage.reasoning.output_tokens": 1,
    }
    assert tool.attributes == {
        **common,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "c0",
        "gen_ai.tool.type": "function",
    }
    assert chat.kind is trace.SpanKind.CLIENT
    for span in (chat, tool):
        assert span.parent is not None
        assert run.context is not None
        assert span.parent.span_id == run.context.span_id
        assert span.instrumentation_scope is not None
        assert span.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.41.0"
    assert "swordfish" not in "".join(span.to_json() for span in received.spans())


def test_a_run_with_a_model_of_its_own_names_it(store: SessionStore, received: Received) -> None:
    SessionRuntime().create(AgentDefinition(name="support", model="anthropic:claude-5"), session_id="s")
    assert ask(store, Agent()) == "completed"
    [run] = [span for span in received.of_loop() if span.name == "invoke_agent support"]
    assert run.attributes is not None
    assert run.attributes["gen_ai.provider.name"] == "anthropic"
    assert run.attributes["gen_ai.request.model"] == "claude-5"


def test_metrics(store: SessionStore, received: Received) -> None:
    ask(store, Agent())
    tokens = {
        point.attributes["gen_ai.token.type"]: point.sum
        for point in received.points("gen_ai.client.token.usage")
    }
    assert tokens == {"input": 14, "output": 6}
    counts = {
        point.attributes["gen_ai.operation.name"]: point.count
        for point in received.points("gen_ai.client.operation.duration")
    }
    assert counts == {"chat": 2, "execute_tool": 1, "invoke_agent": 1}
    attributes = [dict(p.attributes) for p in received.points("gen_ai.client.operation.duration")]
    assert not [found for found in attributes if "s" in found.values()]


def test_errors_are_told_by_their_type(store: SessionStore, received: Received) -> None:
    errors = {"ZeroDivisionError": ZeroDivisionError("swordfish"), "context_overflow": ContextOverflow()}
    for kind, error in errors.items():
        before = len(received.of_loop())
        assert ask(store, Agent(error)) == "failed"
        chat, run = received.of_loop()[before:]
        assert (chat.attributes or {})["error.type"] == kind
        assert not chat.status.is_ok
        assert (run.attributes or {})["error.type"]
        assert not chat.events
    assert "swordfish" not in "".join(span.to_json() for span in received.spans())

    def broken(arguments: Any, turn: Any) -> Any:
        raise KeyError("swordfish")

    assert ask(store, Agent(tools={"look": broken})) == "completed"
    [tool] = [span for span in received.of_loop() if span.name == "execute_tool look"]
    assert (tool.attributes or {})["error.type"] == "KeyError"


def test_content_where_it_is_asked_for(store: SessionStore, received: Received, settings: Any) -> None:
    settings.HELIX_SESSIONS = {"TRACE_CONTENT": True}
    tools = {"look": lambda arguments, turn: ToolResult({"found": "swordfish"})}
    ask(store, Agent(tools=tools))
    chats = [span.attributes or {} for span in received.of_loop() if span.name.startswith("chat")]
    [tool] = [span.attributes or {} for span in received.of_loop() if span.name.startswith("execute_tool")]
    asked = {"role": "user", "parts": [{"type": "text", "content": "Where is the swordfish?"}]}
    assert json.loads(str(chats[0]["gen_ai.input.messages"])) == [asked]
    said = json.loads(str(chats[0]["gen_ai.output.messages"]))
    assert [part["type"] for part in said[0]["parts"]] == ["text", "tool_call"]
    assert json.loads(str(chats[1]["gen_ai.input.messages"]))[-1] == {
        "role": "tool",
        "parts": [{"type": "tool_call_response", "id": "c0", "response": {"found": "swordfish"}}],
    }
    assert json.loads(str(tool["gen_ai.tool.call.arguments"])) == {"at": "swordfish"}
    assert json.loads(str(tool["gen_ai.tool.call.result"])) == {"found": "swordfish"}


def test_tools_in_threads_and_async_code(store: SessionStore, received: Received) -> None:
    async def look(arguments: Any, turn: Any) -> str:
        await asyncio.sleep(0)
        return "seen"

    def inside(arguments: Any, turn: Any) -> str:
        turn._store.load_state(turn.session_id)
        return "seen"

    def later(arguments: Any, turn: Any) -> Any:
        return look(arguments, turn)

    for tools in ({"look": look}, {"look": later}, {"look": inside, "other": look}):
        before = len(received.of_loop())
        assert ask(store, Agent(tools=tools)) == "completed"
        spans = received.of_loop()[before:]
        [run] = [span for span in spans if span.name.startswith("invoke_agent")]
        assert len([span for span in spans if span.name.startswith("execute_tool")]) == len(tools)
        assert {span.parent.span_id for span in spans if span is not run and span.parent} == {
            run.context.span_id if run.context else None
        }


def test_a_session_without_a_trace_has_the_same_one_everywhere(
    store: SessionStore, run_processes: Callable[..., list[Any]]
) -> None:
    """Sessions that were created before anybody traced: two processes run them, one after the other."""
    store.create_session("s", agent_type="support")
    assert store.load_state("s").tracing_context is None
    store.create_session("t", agent_type="support")
    found = [run_processes(1, run_elsewhere, key)[0] for key in ("s", "s", "t")]
    for one in found:
        assert isinstance(one, dict), one
        assert one["kind"] == "completed"
        assert len(one["traces"]) == 1
    first, second, other = found
    assert first["traces"] == second["traces"] != other["traces"]
    assert first["process"] != second["process"]
    assert first["names"] == second["names"]


def test_an_async_runner_in_the_same_trace(store: SessionStore, received: Received) -> None:
    store.create_session("s", agent_type="support")
    trace_id = received.spans()[0].context
    for _ in range(2):
        tracing._carriers.clear()  # as another process would
        store.admit_input("s", "Where?", resume=False)
        tracing._carriers.clear()
        assert async_to_sync(SessionRunner(Agent(), store=store).arun)("s").kind == "completed"
    runs = [span for span in received.of_loop() if span.name == "invoke_agent support"]
    assert trace_id is not None
    assert [span.context.trace_id for span in runs if span.context] == [trace_id.trace_id] * 2
    assert {span.context.trace_id for span in received.spans() if span.context} == {trace_id.trace_id}


def test_a_trace_that_was_given_goes_on_elsewhere(
    store: SessionStore, received: Received, run_processes: Callable[..., list[Any]]
) -> None:
    ask(store, Agent())
    here = {span.context.trace_id for span in received.spans() if span.context}
    [there] = run_processes(1, run_elsewhere, "s")
    assert there["traces"] == list(here)


def run_elsewhere(index: int, session: str) -> dict[str, Any]:
    """In a process of its own: a run, and what was traced of it."""
    import os

    provider, meters, received = provide()
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(meters)
    kind = ask(SessionStore(), Agent(), session)
    spans = received.spans()
    return {
        "kind": kind,
        "process": os.getpid(),
        "traces": list({span.context.trace_id for span in spans if span.context}),
        "names": sorted(span.name for span in received.of_loop()),
    }


def test_inside_another_trace_a_run_links_to_it(store: SessionStore, received: Received) -> None:
    store.create_session("s", agent_type="support")
    with trace.get_tracer_provider().get_tracer("app").start_as_current_span("a request") as request:
        ask(store, Agent())
    [run] = [span for span in received.of_loop() if span.name == "invoke_agent support"]
    assert run.context is not None
    assert run.context.trace_id != request.get_span_context().trace_id
    assert [link.context.span_id for link in run.links] == [request.get_span_context().span_id]


def test_a_sampler_decides_for_the_derived_trace(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_session("s", agent_type="support")
    provider, _, found = provide(ParentBased(ALWAYS_OFF))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    tracing._carriers.clear()
    assert ask(store, Agent()) == "completed"
    assert found.spans() == ()


def test_without_a_provider_nothing_happens(store: SessionStore) -> None:
    assert not telemetry.is_on()
    assert ask(store, Agent()) == "completed"
    call: Callable[[], Any] = list
    assert telemetry.around(lambda: pytest.fail("opened"), call) is call


def test_names_of_models_and_providers() -> None:
    rows = {
        "openai:gpt-5": ("gpt-5", "openai"),
        "anthropic/claude-5": ("claude-5", "anthropic"),
        "google-vertex:gemini-3": ("gemini-3", "gcp.vertex_ai"),
        "claude-5": ("claude-5", "anthropic"),
        "llama:70b": ("llama:70b", "unknown"),
        None: (None, "unknown"),
    }
    for model, wanted in rows.items():
        assert model_and_provider(model) == wanted, model


def test_no_reasoning_in_content() -> None:
    block = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    message = {"role": "assistant", "content": [block, {"type": "text", "text": "yes"}]}
    assert semantic_message(message)["parts"] == [{"type": "text", "content": "yes"}]
    result = {"type": "tool_result", "tool_use_id": "1", "content": "seen"}
    assert semantic_message({"role": "user", "content": [result, "and"]})["parts"] == [
        {"type": "tool_call_response", "id": "1", "response": "seen"},
        {"type": "text", "content": "and"},
    ]
