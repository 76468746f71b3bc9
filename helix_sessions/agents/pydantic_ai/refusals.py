"""What of pydantic-ai cannot hold under a durable loop, said when the agent is named."""

from collections.abc import Collection, Iterator
from typing import Any

from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.toolsets import FunctionToolset

from helix_sessions.exceptions import NotConfigured

_OTHER_ENGINES = "pydantic_ai.durable_exec"


def refuse(agent: Any, *, subagents: Collection[str], makes_deps: bool) -> None:
    """Raise `NotConfigured` with the first reason, if there is one."""
    for reason in _reasons(agent, subagents, makes_deps):
        name = f"The pydantic-ai agent {agent.name!r}" if agent.name else "A pydantic-ai agent"
        raise NotConfigured(f"{name} cannot be driven: {reason}")


def _reasons(agent: Any, subagents: Collection[str], makes_deps: bool) -> Iterator[str]:
    if not makes_deps and agent.deps_type not in (object, type(None)):
        yield (
            f"it has deps of the type {_name(agent.deps_type)}, which another process cannot have. Make "
            "them in each one, durable(agent, deps=<function of the turn>), or let tools use current_turn()."
        )
    capabilities: list[Any] = []
    agent.root_capability.apply(capabilities.append)
    for found in (agent, *capabilities):
        if isinstance(found, HandleDeferredToolCalls):
            yield (
                "it answers deferred calls itself (HandleDeferredToolCalls), and here the session waits for "
                "their answers. Use ToolOptions or tool rules."
            )
        if any(base.__module__.startswith(_OTHER_ENGINES) for base in type(found).__mro__):
            yield f"another engine makes it durable ({_name(type(found))}), and two cannot drive one run."
    for tool in set(subagents) & _function_tools(agent):
        yield f"it has a tool {tool!r}, which cannot be a sub-agent's too."


def _function_tools(agent: Any) -> set[str]:
    """The tools that are known without a run."""
    found: set[str] = set()

    def look(toolset: Any) -> None:
        if isinstance(toolset, FunctionToolset):
            found.update(toolset.tools)

    for toolset in agent.toolsets:
        toolset.apply(look)
    return found


def _name(of: Any) -> str:
    return getattr(of, "__name__", str(of))
