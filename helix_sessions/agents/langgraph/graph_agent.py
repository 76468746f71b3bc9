"""A compiled graph of LangGraph under our loop.

A turn runs the graph, one super-step after the other, until a model's answer and the results of its calls are
there, or the graph asks something, or ends. Every super-step is a checkpoint in the session.
"""

from collections.abc import Callable, Mapping
from typing import Any

from helix_sessions.agents import provider_errors
from helix_sessions.agents.event_loop import on_lasting_loop
from helix_sessions.exceptions import ContextOverflow, NotConfigured, TransientError
from helix_sessions.integrations.extras import check_version, needed_from
from helix_sessions.runtime.agents import EveryTool
from helix_sessions.runtime.outcomes import FrameworkOutcome, words
from helix_sessions.runtime.turn_context import TurnContext
from helix_sessions.values.tools import ToolOptions

with needed_from("langgraph"):
    from langgraph.errors import GraphRecursionError
    from langgraph.graph.state import CompiledStateGraph

    from helix_sessions.agents.langgraph import interrupts
    from helix_sessions.agents.langgraph.turn import GraphTurn
    from helix_sessions.integrations.langgraph.thread import Heads


class GraphAgent:
    """What our loop asks of an agent, answered by a graph."""

    def __init__(
        self,
        graph: Any,
        *,
        subagents: Mapping[str, str] | None = None,
        tools: Mapping[str, ToolOptions] | None = None,
        deps: Callable[[TurnContext], Any] | None = None,
    ) -> None:
        self.name: str = graph.name
        self.subagents: dict[str, str] = {}
        _refuse(graph, subagents or {}, tools or {}, deps is not None)
        self.tools = EveryTool(interrupts.answered)
        self._graph = graph
        self._deps = deps
        self._heads = Heads()

    async def run_turn(self, turn: TurnContext) -> FrameworkOutcome:
        """Run the graph up to its next answer."""
        if turn.session is not None:
            raise NotConfigured(
                "SendMessage cannot run a graph, whose checkpoints are stored while it runs. Use a runner."
            )
        return await on_lasting_loop(self._turn, turn)

    async def _turn(self, turn: TurnContext) -> FrameworkOutcome:
        context = None if self._deps is None else self._deps(turn)
        try:
            return await GraphTurn(self._graph, turn, self._heads, context).answer()
        except GraphRecursionError as error:
            return FrameworkOutcome(message=None, error=words(error), error_code="recursion_limit")
        except Exception as error:
            raise _translated(error) from error


def _refuse(
    graph: Any, subagents: Mapping[str, str], tools: Mapping[str, ToolOptions], makes_context: bool
) -> None:
    """Raise `NotConfigured` for what cannot hold."""
    name = f"The graph {graph.name!r} cannot be driven"
    check_version("langgraph", "1.0.10")
    if not isinstance(graph, CompiledStateGraph):
        raise NotConfigured(f"{name}: it is a {type(graph).__name__}. Give a compiled StateGraph.")
    if graph.interrupt_before_nodes or graph.interrupt_after_nodes:
        raise NotConfigured(
            f"{name}: it was compiled with interrupt_before or interrupt_after, which ask no question. "
            "Call interrupt() in the node."
        )
    if subagents:
        raise NotConfigured(
            f"{name} with subagents: a graph executes its tools itself. Use sub-graphs, or let another agent "
            "have this one as its sub-agent."
        )
    for tool, options in tools.items():
        if options.approval is True or options.timeout or options.retries or options.keep_output:
            raise NotConfigured(
                f"{name} with these options of {tool!r}: a graph executes its tools itself, and the options "
                "are about what it asks with interrupt(): approval=False or 'participant', client and "
                "response_schema."
            )
    if graph.context_schema is not None and not makes_context:
        raise NotConfigured(
            f"{name}: it has a context_schema. Make the context in each process, durable(graph, "
            "deps=<function of the turn>)."
        )


def _translated(error: Exception) -> Exception:
    """An error of a node as our loop knows it."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        if status in (400, 413) and provider_errors.says_too_long(str(error)):
            return ContextOverflow(words(error))
        if not provider_errors.is_transient_status(status):
            return error
        return TransientError(words(error), retry_after=provider_errors.retry_after(error))
    if provider_errors.is_of_the_network(error) or type(error).__name__ == "APIConnectionError":
        return TransientError(words(error))
    return error
