"""Agents of the OpenAI Agents SDK under our loop: one turn is one response with calls, and our loop executes
their function tools. Handoffs, hosted tools and tools of MCP servers are the SDK's, inside the turn."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from helix_sessions.agents import provider_errors
from helix_sessions.agents.event_loop import on_lasting_loop
from helix_sessions.exceptions import ContextOverflow, NotConfigured, TransientError
from helix_sessions.integrations.extras import check_version, needed_from
from helix_sessions.integrations.openai_agents import items_of
from helix_sessions.runtime.loop.stops import Stopped
from helix_sessions.runtime.outcomes import APPROVAL, CLIENT_TOOL, FrameworkOutcome, words
from helix_sessions.runtime.turn_context import TurnContext

check_version("openai-agents", "0.19.0")
with needed_from("openai-agents"):
    from agents import Agent, FunctionTool, Handoff, RunConfig, RunContextWrapper, Runner
    from agents.exceptions import ModelBehaviorError
    from agents.items import ToolApprovalItem
    from agents.tool_context import ToolContext
    from openai import APIConnectionError, APIStatusError
    from pydantic_core import to_jsonable_python

_MOST_HANDOFFS = 10


class OpenAIAgent:
    """What our loop asks of an agent, answered by the SDK."""

    def __init__(
        self,
        agent: Any,
        *,
        subagents: Mapping[str, str] | None = None,
        deps: Callable[[TurnContext], Any] | None = None,
    ) -> None:
        self.name: str = agent.name
        self.subagents = dict(subagents or {})
        self._agents = _reachable(agent)
        self._root = agent
        self._deps = deps
        for known in self._agents.values():
            if known.tool_use_behavior != "run_llm_again":
                raise NotConfigured(
                    f"The agent {known.name!r} cannot be driven: its tool_use_behavior ends a run at a tool, "
                    "and here the model is told of every result."
                )
        self._tools = {
            tool.name: tool
            for known in self._agents.values()
            for tool in known.tools
            if isinstance(tool, FunctionTool)
        }
        self.tools = dict.fromkeys(self._tools, self._call)

    async def run_turn(self, turn: TurnContext) -> FrameworkOutcome:
        """Ask the model once; a handoff asks the next agent's."""
        return await on_lasting_loop(self._turn, turn)

    async def _turn(self, turn: TurnContext) -> FrameworkOutcome:
        agent = self._held(turn)
        try:
            result = await self._asked(turn, agent)
        except ModelBehaviorError as error:
            return FrameworkOutcome(message=None, error=words(error), error_code="output_invalid")
        except (APIStatusError, APIConnectionError) as error:
            raise _translated(error) from error
        items = [item for item in result.new_items if not isinstance(item, ToolApprovalItem)]
        for item in items:
            if item.type == "handoff_output_item":
                handed = {"from": item.source_agent.name, "to": item.target_agent.name}
                await turn.emit("handoff", handed)
        open_calls = [item.raw_item for item in result.interruptions]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(_text(item) for item in items),
            "items": [to_jsonable_python(item.to_input_item()) for item in items],
            "agent": result.last_agent.name,
        }
        if open_calls:
            message["tool_calls"] = [
                {"id": call.call_id, "name": call.name, "arguments": _arguments(call.arguments)}
                for call in open_calls
            ]
        output = None if open_calls else to_jsonable_python(result.final_output, fallback=str)
        return FrameworkOutcome(
            message=message,
            usage=_usage(result.context_wrapper.usage),
            output=output,
            kinds={call.call_id: kind for call in open_calls if (kind := await self._kind(turn, call))},
            final=not open_calls,
        )

    async def _asked(self, turn: TurnContext, agent: Any) -> Any:
        """The SDK's own run, up to the calls; streamed where the model can be."""
        options: dict[str, Any] = {
            "input": _input(turn.context.messages),
            "context": None if self._deps is None else self._deps(turn),
            "max_turns": _MOST_HANDOFFS,
            "run_config": RunConfig(model=turn.definition.model or None, group_id=turn.session_id),
        }
        result = Runner.run_streamed(agent, **options)
        calls: dict[str, Any] = {}
        try:
            async for event in result.stream_events():
                if turn.interrupted():
                    result.cancel()
                    raise Stopped
                fragment = _fragment(event, calls)
                if fragment is not None:
                    await turn.publish_fragment(fragment)
        except NotImplementedError:  # a model that cannot stream
            return await Runner.run(agent, **options)
        return result

    async def _call(self, arguments: Any, turn: TurnContext) -> Any:
        """Execute one function tool."""
        tool = self._tools[str(turn.tool_name)]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)

        async def call(turn: TurnContext) -> Any:
            context = ToolContext(
                None if self._deps is None else self._deps(turn),
                tool_name=tool.name,
                tool_call_id=str(turn.tool_call_id),
                tool_arguments=text,
            )
            return to_jsonable_python(await tool.on_invoke_tool(context, text), fallback=str)

        return await on_lasting_loop(call, turn)

    async def _kind(self, turn: TurnContext, call: Any) -> str | None:
        """Whether the tool itself asks for an approval of this call."""
        tool = self._tools.get(call.name)
        if tool is None:
            return CLIENT_TOOL
        asks: Any = tool.needs_approval
        if callable(asks):
            context: Any = RunContextWrapper(None if self._deps is None else self._deps(turn))
            asks = asks(context, _arguments(call.arguments), call.call_id)
            asks = await asks if inspect.isawaitable(asks) else asks
        return APPROVAL if asks else None

    def _held(self, turn: TurnContext) -> Any:
        """The agent that has the conversation, with all that it may hand over to; none executes a tool."""
        name = next((m["agent"] for m in reversed(turn.context.messages) if "agent" in m), self.name)
        texts = dict.fromkeys((turn.context.baseline, turn.definition.system_prompt))
        extra = "\n\n".join(text for text in texts if text)
        copies: dict[int, Any] = {}

        def copy(agent: Any) -> Any:
            if id(agent) not in copies:
                clone = copies[id(agent)] = agent.clone()
                clone.tools = [*map(_waiting, agent.tools), *map(self._subagent, self.subagents)]
                clone.handoffs = [handed(each) for each in agent.handoffs]
                clone.instructions = _followed_by(agent.instructions, extra)
            return copies[id(agent)]

        def handed(target: Any) -> Any:
            if not isinstance(target, Handoff):
                return copy(target)

            async def invoke(context: Any, arguments: str) -> Any:
                return copy(await target.on_invoke_handoff(context, arguments))

            return replace(target, on_invoke_handoff=invoke)

        return copy(self._agents.get(name, self._root))

    def _subagent(self, name: str) -> FunctionTool:
        async def never(context: Any, arguments: str) -> str:
            raise NotImplementedError

        schema = {
            "type": "object",
            "properties": {"prompt": {"type": "string"}},
            "required": ["prompt"],
            "additionalProperties": False,
        }
        about = f"Give a task to the agent {self.subagents[name]!r}, and get its answer."
        return FunctionTool(
            name=name, description=about, params_json_schema=schema, on_invoke_tool=never, needs_approval=True
        )


def _reachable(agent: Any, known: dict[str, Any] | None = None) -> dict[str, Any]:
    """The agents that may take over, by name."""
    known = {} if known is None else known
    if agent.name not in known:
        known[agent.name] = agent
        for target in agent.handoffs:
            inner = target if isinstance(target, Agent) else getattr(target, "_agent_ref", lambda: None)()
            if inner is not None:
                _reachable(inner, known)
    return known


def _waiting(tool: Any) -> Any:
    """The tool as the SDK leaves it to us: every call of it interrupts its run."""
    return replace(tool, needs_approval=True) if isinstance(tool, FunctionTool) else tool


def _followed_by(instructions: Any, extra: str) -> Any:
    if not extra:
        return instructions
    if not callable(instructions):
        return f"{instructions}\n\n{extra}" if instructions else extra

    async def both(context: Any, agent: Any) -> str:
        said = instructions(context, agent)
        return f"{await said if inspect.isawaitable(said) else said}\n\n{extra}"

    return both


def _input(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Messages of the transcript as items of the SDK."""
    return [item for message in messages for item in items_of(message, is_foreign=True)]


def _text(item: Any) -> str:
    if item.type != "message_output_item":
        return ""
    return "".join(getattr(piece, "text", "") for piece in item.raw_item.content)


def _arguments(text: str) -> Any:
    try:
        return json.loads(text) if text else {}
    except ValueError:
        return text


def _fragment(event: Any, calls: dict[str, Any]) -> dict[str, Any] | None:
    """What an event of the stream says; `calls` are those that were begun, by the id of their item."""
    data: Any = getattr(event, "data", None)
    kind = getattr(data, "type", "")
    if kind == "response.output_text.delta":
        return {"text": data.delta}
    if kind in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
        return {"thinking": data.delta}
    if kind == "response.output_item.added" and data.item.type == "function_call":
        calls[data.item.id] = data.item
    if kind == "response.function_call_arguments.delta" and data.item_id in calls:
        call = calls[data.item_id]
        return {"tool_call_id": call.call_id, "tool_name": call.name, "arguments": data.delta}
    return None


def _usage(used: Any) -> dict[str, Any]:
    return {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cache_read_tokens": used.input_tokens_details.cached_tokens or 0,
        "reasoning_tokens": used.output_tokens_details.reasoning_tokens or 0,
    }


def _translated(error: APIStatusError | APIConnectionError) -> Exception:
    if isinstance(error, APIStatusError):
        if provider_errors.says_too_long(str(error.body)) and error.status_code in (400, 413):
            return ContextOverflow(words(error))
        if not provider_errors.is_transient_status(error.status_code):
            return error
    return TransientError(words(error), retry_after=provider_errors.retry_after(error))
