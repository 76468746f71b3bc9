"""Spans and metrics of the loop in the words of OpenTelemetry's semantic conventions for generative AI.

A run of an agent is `invoke_agent`, a call of the model `chat`, a call of a tool `execute_tool`. All runs of
a session, in any process, are spans of the session's one trace. The conventions are those of version
1.41.0, the last release before they moved to a repository of their own; another version is a decision.
Content is left out unless `TRACE_CONTENT` is set. Without a provider nothing happens.
"""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, Self

from helix_sessions.conf import conf
from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.messages.telemetry import as_attribute, model_and_provider, semantic_message, token_counts
from helix_sessions.store.engine import tracing
from helix_sessions.types import ModelContext

try:
    from opentelemetry import metrics, trace
except ImportError:  # the extra `tracing`
    metrics = trace = None  # type: ignore[assignment]

CONVENTIONS = "1.41.0"
"""The version of the semantic conventions."""

SCHEMA_URL = f"https://opentelemetry.io/schemas/{CONVENTIONS}"

_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = tuple(4**power for power in range(14))
"""The buckets that the conventions advise."""


def is_on() -> bool:
    """Whether an exporter receives spans or metrics."""
    return tracing.is_on() or _receives_metrics()


class Operation:
    """One thing that takes time: a span, and its duration as a metric. As a context manager it is current
    inside, and an exception ends it with its type."""

    def __init__(
        self, name: str, subject: str | None, attributes: Mapping[str, Any], parent: Any = None
    ) -> None:
        self.attributes = {"gen_ai.operation.name": name, **_given(attributes)}
        self._name = name
        self._started = time.perf_counter()
        self._error: str | None = None
        self._current: AbstractContextManager[Any] = nullcontext()
        self.span = self._start(subject, parent) if tracing.is_on() else None

    def _start(self, subject: str | None, parent: Any) -> Any:
        around = trace.get_current_span().get_span_context()
        own = None if parent is None else trace.get_current_span(parent).get_span_context()
        is_elsewhere = around.is_valid and own is not None and around.trace_id != own.trace_id
        return trace.get_tracer("helix_sessions", schema_url=SCHEMA_URL).start_span(
            f"{self._name} {subject}" if subject else self._name,
            context=parent,
            kind=trace.SpanKind.CLIENT if self._name == "chat" else trace.SpanKind.INTERNAL,
            attributes=self.attributes,
            links=[trace.Link(around)] if is_elsewhere else None,
        )

    def current(self) -> AbstractContextManager[Any]:
        """Make it the parent of what begins inside, in this thread or task."""
        if self.span is None:
            return nullcontext()
        return trace.use_span(
            self.span, end_on_exit=False, record_exception=False, set_status_on_exception=False
        )

    def set(self, attributes: Mapping[str, Any]) -> None:
        """Add attributes; `None` is left out."""
        if self.span is not None:
            self.span.set_attributes(_given(attributes))

    def fail(self, error: BaseException | str) -> None:
        """It went wrong: the code of one of our errors, the type of another. Never its message, which may
        quote what was said."""
        if isinstance(error, str):
            self._error = error
        else:
            self._error = error.code if isinstance(error, HelixSessionsError) else type(error).__qualname__
        if self.span is not None:
            self.span.set_attribute("error.type", self._error)
            self.span.set_status(trace.StatusCode.ERROR, self._error)

    def end(self) -> None:
        """It is over."""
        if self.span is not None:
            self.span.end()
        if _receives_metrics():
            _, durations = _instruments(metrics.get_meter_provider())
            error = {} if self._error is None else {"error.type": self._error}
            durations.record(time.perf_counter() - self._started, {**self._labels(), **error})

    def _labels(self) -> dict[str, Any]:
        """What a metric is told apart by: nothing that has as many values as there are sessions or calls."""
        names = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.agent.name")
        return {
            name: self.attributes[name] for name in (*names, "gen_ai.tool.name") if name in self.attributes
        }

    def ended(self, result: Any) -> Any:
        """Note what it came to; returns it."""
        return result

    def __enter__(self) -> Self:
        self._current = self.current()
        self._current.__enter__()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self._current.__exit__(None, None, None)
        if error is not None:
            self.fail(error)
        self.end()


class AgentSpan(Operation):
    """A run of an agent, `invoke_agent`."""

    def __init__(
        self,
        using: str,
        session_id: str,
        agent_name: str,
        *,
        run_id: str | None = None,
        model: str | None = None,
    ) -> None:
        self.session_id, self.agent_name = session_id, agent_name
        name, provider = model_and_provider(model)
        attributes = {
            "gen_ai.agent.name": agent_name,
            "gen_ai.conversation.id": session_id,
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": name,
            "helix_sessions.run_id": run_id,
        }
        parent = tracing.session_trace(using, session_id) if tracing.is_on() else None
        super().__init__("invoke_agent", agent_name, attributes, parent)

    @property
    def context(self) -> Any:
        """The parent of its calls, in any thread."""
        return None if self.span is None else trace.set_span_in_context(self.span)

    def finish(self, kind: str, *, usage: Any = None, error: Any = None) -> None:
        """How the run ended, and what it used."""
        self.set({"helix_sessions.outcome": kind, **token_counts(usage)})
        if kind == "failed":
            code = error.get("code") if isinstance(error, Mapping) else None
            self.fail(str(code or "failed"))


class ChatSpan(Operation):
    """A call of the model, `chat`."""

    def __init__(
        self, agent: AgentSpan, *, model: str | None = None, context: ModelContext | None = None
    ) -> None:
        name, provider = model_and_provider(model)
        attributes: dict[str, Any] = {
            "gen_ai.agent.name": agent.agent_name,
            "gen_ai.conversation.id": agent.session_id,
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": name,
        }
        if context is not None and conf.TRACE_CONTENT:
            attributes["gen_ai.input.messages"] = as_attribute(map(semantic_message, context.messages))
            if context.baseline:
                told = [{"type": "text", "content": context.baseline}]
                attributes["gen_ai.system_instructions"] = as_attribute(told)
        super().__init__("chat", name, attributes, agent.context)

    def ended(self, result: Any) -> Any:
        """Note the answer of `run_turn`."""
        message = getattr(result, "message", None)
        said = message if isinstance(message, dict) else {}
        self.finish(usage=getattr(result, "usage", None), message=message, response_model=said.get("model"))
        return result

    def finish(
        self,
        *,
        usage: Any = None,
        message: Any = None,
        response_model: str | None = None,
        finish_reason: str | None = None,
    ) -> None:
        """What the model used, which one it was, why it stopped, and with `TRACE_CONTENT` what it said."""
        counts = token_counts(usage)
        name, provider = model_and_provider(response_model)
        self.set({"gen_ai.response.model": name, **counts})
        if "gen_ai.request.model" not in self.attributes and name is not None:
            self.attributes |= {"gen_ai.provider.name": provider, "gen_ai.request.model": name}
            self.set({"gen_ai.provider.name": provider})
            if self.span is not None:
                self.span.update_name(f"chat {name}")
        if finish_reason is not None:
            self.set({"gen_ai.response.finish_reasons": [finish_reason]})
        if message is not None and conf.TRACE_CONTENT:
            said = {**semantic_message(message), "finish_reason": finish_reason or "stop"}
            self.set({"gen_ai.output.messages": as_attribute([said])})
        if _receives_metrics():
            tokens, _ = _instruments(metrics.get_meter_provider())
            for kind in ("input", "output"):
                used = counts.get(f"gen_ai.usage.{kind}_tokens")
                if used:
                    tokens.record(used, {**self._labels(), "gen_ai.token.type": kind})


class ToolSpan(Operation):
    """A call of a tool, `execute_tool`."""

    def __init__(self, agent: AgentSpan, *, name: str, call_id: str, arguments: Any = None) -> None:
        attributes = {
            "gen_ai.agent.name": agent.agent_name,
            "gen_ai.conversation.id": agent.session_id,
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.arguments": as_attribute(arguments) if conf.TRACE_CONTENT else None,
        }
        super().__init__("execute_tool", name, attributes, agent.context)

    def ended(self, result: Any) -> Any:
        """Note what the tool returned, with `TRACE_CONTENT`."""
        if conf.TRACE_CONTENT:
            self.set({"gen_ai.tool.call.result": as_attribute(getattr(result, "content", result))})
        return result


def agent_span(
    using: str, session_id: str, agent_name: str, *, run_id: str | None = None, model: Any = None
) -> AgentSpan:
    """A span around a run: `with agent_span(store.using, session_id, agent_type) as agent:`. The first of a
    session in a process reads the session's trace, so it is made where the database may be asked."""
    name = model if isinstance(model, str) else None
    return AgentSpan(using, session_id, agent_name, run_id=run_id, model=name)


def chat_span(agent: AgentSpan, *, model: str | None = None, context: ModelContext | None = None) -> ChatSpan:
    """A span around a call of the model."""
    return ChatSpan(agent, model=model, context=context)


def tool_span(agent: AgentSpan, *, name: str, call_id: str, arguments: Any = None) -> ToolSpan:
    """A span around a call of a tool."""
    return ToolSpan(agent, name=name, call_id=call_id, arguments=arguments)


def around(opens: Callable[[], Operation], function: Callable[[], Any]) -> Callable[[], Any]:
    """A call of the agent's code with a span around it, whether it is async, plain, or plain and returns
    something to await. `opens` is called when the call begins, in its thread."""
    if not is_on():
        return function
    if inspect.iscoroutinefunction(function):

        async def awaited() -> Any:
            with opens() as operation:
                return operation.ended(await function())

        return awaited

    def called() -> Any:
        operation = opens()
        try:
            with operation.current():
                answer = function()
        except BaseException as error:
            operation.fail(error)
            operation.end()
            raise
        if inspect.isawaitable(answer):
            return _awaited(operation, answer)
        operation.ended(answer)
        operation.end()
        return answer

    return called


async def _awaited(operation: Operation, answer: Any) -> Any:
    with operation:
        return operation.ended(await answer)


def _given(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


def _receives_metrics() -> bool:
    if metrics is None:
        return False
    provider = metrics.get_meter_provider()
    return type(provider).__name__ not in ("_ProxyMeterProvider", "NoOpMeterProvider")


@lru_cache(maxsize=4)
def _instruments(provider: Any) -> Sequence[Any]:
    meter = provider.get_meter("helix_sessions", schema_url=SCHEMA_URL)
    tokens = meter.create_histogram(
        "gen_ai.client.token.usage",
        unit="{token}",
        description="Number of input and output tokens used.",
        explicit_bucket_boundaries_advisory=_TOKENS,
    )
    durations = meter.create_histogram(
        "gen_ai.client.operation.duration",
        unit="s",
        description="GenAI operation duration.",
        explicit_bucket_boundaries_advisory=_SECONDS,
    )
    return tokens, durations
