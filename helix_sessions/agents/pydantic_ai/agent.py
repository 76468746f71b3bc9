"""A turn of a pydantic-ai agent, and a call of one of its tools."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart
from pydantic_ai.tools import DeferredToolResults, ToolApproved, ToolDefinition
from pydantic_ai.toolsets import ExternalToolset
from pydantic_core import to_jsonable_python

from helix_sessions.agents.event_loop import THREADS, on_lasting_loop
from helix_sessions.agents.pydantic_ai import messages
from helix_sessions.agents.pydantic_ai.barriers import Place, place_of
from helix_sessions.agents.pydantic_ai.errors import translated
from helix_sessions.agents.pydantic_ai.fragments import Fragments, can_stream
from helix_sessions.agents.pydantic_ai.refusals import refuse
from helix_sessions.agents.pydantic_ai.seam import Handed, Seam
from helix_sessions.messages.tool_ledger import calls_in
from helix_sessions.runtime.agents import EveryTool
from helix_sessions.runtime.loop.stops import Stopped
from helix_sessions.runtime.outcomes import APPROVAL, CLIENT_TOOL, CallResult, FrameworkOutcome, words
from helix_sessions.runtime.turn_context import TurnContext
from helix_sessions.types import Spawn

OUTPUT_INVALID = "output_invalid"
USAGE_LIMIT = "usage_limit_exceeded"
RETRIES_EXCEEDED = "tool_retries_exceeded"

_OUTPUT_RETRIES_EXCEEDED = "Exceeded maximum output retries"
"""How pydantic-ai begins to say that a run has asked for its output often enough."""
_TOOL_RETRIES_EXCEEDED = "exceeded max retries count"
"""How it says so of a tool."""


class PydanticAgent:
    """What our loop asks of an agent, answered by pydantic-ai."""

    def __init__(
        self,
        agent: Any,
        *,
        subagents: Mapping[str, str] | None = None,
        deps: Callable[[TurnContext], Any] | None = None,
    ) -> None:
        self.agent = agent
        self.name: str | None = agent.name
        self.subagents = dict(subagents or {})
        refuse(agent, subagents=self.subagents, makes_deps=deps is not None)
        self._deps = deps
        self.tools = EveryTool(self._call)

    def prompt_of(self, prompt: Any) -> Any:
        return messages.prompt_of(prompt)

    async def run_turn(self, turn: TurnContext) -> FrameworkOutcome:
        """Ask the model once."""
        return await on_lasting_loop(self._turn, turn)

    async def _call(self, arguments: Any, turn: TurnContext) -> CallResult | Spawn:
        """Execute the call that the turn is about."""

        async def call(turn: TurnContext) -> CallResult | Spawn:
            async with place_of(turn.session_id) as place:
                return await self._execute(arguments, turn, place)

        return await on_lasting_loop(call, turn)

    async def _turn(self, turn: TurnContext) -> FrameworkOutcome:
        said, run_id = turn.context.messages, turn.run.run_id
        exceeded = messages.retries_exceeded(said, run_id)
        if exceeded is not None:
            return FrameworkOutcome(message=None, error=exceeded, error_code=RETRIES_EXCEEDED)
        history = await self._history(turn)
        seam = Seam(retries=messages.tool_retries(said, run_id))
        response: ModelResponse | None = None
        try:
            with Agent.using_thread_executor(THREADS):
                async with self._iter(turn, history, seam) as run:
                    run.ctx.state.output_retries_used = messages.output_retries(said, run_id)
                    node = await run.next(run.next_node)
                    await self._stream(turn, run, node)
                    node = await run.next(node)
                    response = _response(run, node)
                    return await self._outcome(turn, run, node, response, seam)
        except (UnexpectedModelBehavior, UsageLimitExceeded) as error:
            return _failed(turn, error, response)
        except Exception as error:
            raise translated(error) from error

    async def _outcome(
        self, turn: TurnContext, run: Any, node: Any, response: ModelResponse, seam: Seam
    ) -> FrameworkOutcome:
        """What the response comes to, once pydantic-ai has looked at its calls and its output."""
        known = len(run.all_messages())
        kinds: dict[str, str] = {}
        final, output = False, None
        parts: Sequence[Any] = ()
        try:
            if Agent.is_call_tools_node(node):
                node = await run.next(node)
        except Handed as handed:
            kinds = {call.tool_call_id: APPROVAL for call in handed.requests.approvals}
            deferred = (call.tool_call_id for call in handed.requests.calls)
            kinds.update((call_id, CLIENT_TOOL) for call_id in deferred if call_id not in seam.held)
            parts = _parts(run.all_messages()[known:])
        else:
            if Agent.is_end_node(node):
                final, output = True, to_jsonable_python(node.data.output, fallback=str)
                parts = _parts(run.all_messages()[known:])
            else:
                parts = node.request.parts
        message = _message(turn, response)
        retries, most = run.ctx.state.output_retries_used, run.ctx.deps.max_output_retries
        if retries:
            message[messages.OUTPUT_RETRIES] = retries
        invalid = not final and retries > most
        return FrameworkOutcome(
            message=message,
            usage=_usage(response),
            output=output,
            kinds=kinds,
            replies=messages.replies(parts, response),
            final=final,
            error=f"{_OUTPUT_RETRIES_EXCEEDED} ({most})." if invalid else None,
            error_code=OUTPUT_INVALID if invalid else None,
        )

    async def _stream(self, turn: TurnContext, run: Any, node: Any) -> None:
        """Publish what the model says while it says it, where the model can be asked for that."""
        if not (Agent.is_model_request_node(node) and can_stream(run.ctx.deps.model)):
            return
        fragments = Fragments()
        stream: Any
        async with node.stream(run.ctx) as stream:
            async for event in stream:
                if turn.interrupted():
                    raise Stopped
                fragment = fragments.of(event)
                if fragment is not None:
                    await turn.publish_fragment(fragment)

    async def _execute(self, arguments: Any, turn: TurnContext, place: Place) -> CallResult | Spawn:
        """One call, as if the response had made no other. Its arguments are those that are to be executed,
        which a person may have changed."""
        call_id, name = str(turn.tool_call_id), str(turn.tool_name)
        history = await self._history(turn, before=call_id)
        call = ToolCallPart(name, arguments, call_id)
        history.append(ModelResponse(parts=[call]))
        retries = messages.tool_retries(turn.context.messages, turn.run.run_id)
        seam = Seam(place=place, retries=retries)
        approved = DeferredToolResults(approvals={call_id: ToolApproved()}) if turn.approved else None
        with Agent.using_thread_executor(THREADS):
            async with self._iter(turn, history, seam, deferred_tool_results=approved) as run:
                try:
                    node = await run.next(run.next_node)
                    node = await run.next(node)
                except Handed as handed:
                    if seam.spawn is not None:
                        return seam.spawn
                    return CallResult(waits=APPROVAL if handed.requests.approvals else CLIENT_TOOL)
                except UnexpectedModelBehavior as error:
                    if _TOOL_RETRIES_EXCEEDED not in str(error):
                        raise
                    content, native = messages.exceeded(call, error)
                    return CallResult(content=content, is_error=True, native=native)
                parts = [*node.request.parts, *messages.enqueued_parts(seam.enqueued)]
        content, is_error, native = messages.tool_result(parts)
        return CallResult(content=content, is_error=is_error, native=native, writes=seam.writes)

    def _iter(self, turn: TurnContext, history: list[ModelMessage], seam: Seam, **more: Any) -> Any:
        model = turn.definition.model or None
        texts = dict.fromkeys((turn.context.baseline, turn.definition.system_prompt))
        return self.agent.iter(
            message_history=history,
            model=model,
            instructions=[_instruction(text) for text in texts if text] or None,
            deps=None if self._deps is None else self._deps(turn),
            usage=messages.run_usage(history, turn.run.run_id),
            toolsets=[self._subagent_tools()] if self.subagents else None,
            capabilities=[seam],
            conversation_id=turn.session_id,
            infer_name=False,
            **more,
        )

    async def _history(self, turn: TurnContext, before: str | None = None) -> list[ModelMessage]:
        """What was said; `before` the message that makes a call, if it is there already."""
        said: Sequence[Mapping[str, Any]] = turn.context.messages
        for number in range(len(said) - 1, -1, -1):
            if before is not None and before in [call["id"] for call in calls_in(said[number])]:
                said = said[:number]
                break
        history = messages.history(said)
        deps = None if self._deps is None else self._deps(turn)
        prompts = await self.agent.system_prompt_parts(
            deps=deps, model=turn.definition.model or None, message_history=history
        )
        if prompts:
            first = history[0] if history and isinstance(history[0], ModelRequest) else None
            opening = ModelRequest(parts=[*prompts, *(first.parts if first else ())])
            history[: 1 if first else 0] = [opening if first is None else replace(first, parts=opening.parts)]
        if before is None and (not history or isinstance(history[-1], ModelResponse)):
            history.append(ModelRequest(parts=[]))  # the model is asked once more, about nothing new
        return history

    def _subagent_tools(self) -> ExternalToolset[Any]:
        schema = {
            "type": "object",
            "properties": {"prompt": {"type": "string", "description": "The task, with all that it needs."}},
            "required": ["prompt"],
        }
        return ExternalToolset(
            [
                ToolDefinition(
                    name=name,
                    description=f"Give a task to the agent {agent_type!r}, and get its answer.",
                    parameters_json_schema=schema,
                )
                for name, agent_type in self.subagents.items()
            ],
            id="helix_sessions_subagents",
        )


def _instruction(text: str) -> Callable[[], str]:
    """A function, because pydantic-ai puts those of a run after all that the agent has."""

    def instruction() -> str:
        return text

    return instruction


def _response(run: Any, node: Any) -> ModelResponse:
    """What the model said, whether pydantic-ai takes it or asks again at once."""
    if Agent.is_call_tools_node(node):
        return node.model_response
    return next(message for message in reversed(run.all_messages()) if isinstance(message, ModelResponse))


def _parts(said: Sequence[ModelMessage]) -> list[Any]:
    return [part for message in said if isinstance(message, ModelRequest) for part in message.parts]


def _message(turn: TurnContext, response: ModelResponse) -> dict[str, Any]:
    message = messages.assistant_message(replace(response, run_id=turn.run.run_id))
    if turn.definition.model is None and response.model_name:
        message["model"] = response.model_name
    if response.finish_reason:
        message["finish_reason"] = response.finish_reason
    return message


def _failed(turn: TurnContext, error: Exception, response: ModelResponse | None) -> FrameworkOutcome:
    code = USAGE_LIMIT if isinstance(error, UsageLimitExceeded) else None
    if str(error).startswith(_OUTPUT_RETRIES_EXCEEDED):
        code = OUTPUT_INVALID
    elif _TOOL_RETRIES_EXCEEDED in str(error):
        code = RETRIES_EXCEEDED
    return FrameworkOutcome(
        message=None if response is None else _message(turn, response),
        usage=None if response is None else _usage(response),
        error=words(error),
        error_code=code,
    )


def _usage(response: ModelResponse) -> dict[str, Any]:
    """What a response used; its cost by genai-prices where the provider gives none."""
    used = response.usage
    usage: dict[str, Any] = {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cache_read_tokens": used.cache_read_tokens,
        "cache_write_tokens": used.cache_write_tokens,
        "reasoning_tokens": getattr(used, "output_reasoning_tokens", 0)
        or used.details.get("reasoning_tokens", 0),
    }
    cost = getattr(used, "cost", None)
    if cost is None:
        try:
            cost = response.cost().total_price
        except (AssertionError, LookupError, ValueError):
            return usage  # the price of this model is unknown
    return {**usage, "cost": float(cost)}
