"""Where our loop takes hold of pydantic-ai's: a capability that lets it execute no function tool.

A turn lets pydantic-ai do all of a step but that: it validates arguments, and a call that it would execute is
deferred. When all calls of the response are sorted, `Handed` leaves its loop with them. To execute one call,
the same capability lets it through, and leaves with what the tool asked for instead of a result.
"""

from collections.abc import Mapping
from typing import Any

from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import CallDeferred
from pydantic_ai.tools import DeferredToolRequests, RunContext

from helix_sessions.agents.pydantic_ai.barriers import Place
from helix_sessions.types import Spawn, ToolResult


class Handed(BaseException):
    """The calls of a response are our loop's now. It is no `Exception`, because nothing failed."""

    def __init__(self, requests: DeferredToolRequests | None = None) -> None:
        super().__init__()
        self.requests = requests or DeferredToolRequests()


class Seam(AbstractCapability[Any]):
    """Of one step or one call."""

    def __init__(self, *, place: Place | None = None, retries: Mapping[str, int]) -> None:
        self.place = place
        """Of the call that is executed; `None`: none is."""
        self.retries = dict(retries)
        """How often the run has asked for other arguments so far, by tool."""
        self.held: set[str] = set()
        """The calls that pydantic-ai would have executed."""
        self.spawn: Spawn | None = None
        self.writes: Any = ()
        self.enqueued: list[Any] = []
        """What the tool has put into the conversation."""

    def get_ordering(self) -> CapabilityOrdering | None:
        return CapabilityOrdering(position="outermost")

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[Any]) -> list[Any]:
        ctx.retries.update(self.retries)
        return tool_defs

    async def prepare_output_tools(self, ctx: RunContext[Any], tool_defs: list[Any]) -> list[Any]:
        """Retries of outputs are counted together, in the state of the run."""
        for tool in tool_defs:
            self.retries.pop(tool.name, None)
            ctx.retries.pop(tool.name, None)
        return tool_defs

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: Any, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        await self._hold(call, tool_def)
        self.enqueued = [] if ctx.pending_messages is None else ctx.pending_messages
        result = await handler(args)
        if isinstance(result, Spawn):
            self.spawn = result
            raise Handed
        if isinstance(result, ToolResult):
            self.writes = result.writes
            return result.content
        return result

    async def before_tool_execute(self, ctx: RunContext[Any], *, call: Any, tool_def: Any, args: Any) -> Any:
        """Before the hooks of the agent; which of the two hooks comes first depends on the version."""
        await self._hold(call, tool_def)
        return args

    async def _hold(self, call: Any, tool_def: Any) -> None:
        if self.place is None:
            self.held.add(call.tool_call_id)
            raise CallDeferred
        await self.place.wait(alone=tool_def.sequential)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> None:
        raise Handed(requests)
