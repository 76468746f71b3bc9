"""The agent, which is the user's: what a runner asks of it, and where settings say it is."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, Protocol

from django.utils.module_loading import import_string

from helix_sessions.conf import conf
from helix_sessions.exceptions import NotConfigured
from helix_sessions.runtime.turn_context import TurnContext
from helix_sessions.types import TurnOutcome


class Agent(Protocol):
    """What runs a session. Its methods and tools may be plain or async."""

    tools: Mapping[str, Callable[..., Any]]
    """Executed by the runner: `tool(arguments, turn)` returns JSON, or a `ToolResult`."""
    client_tools: Collection[str]
    """Calls of these suspend the session until a client has answered."""
    approval_tools: Collection[str]
    """Calls of these suspend the session until somebody approves, and are executed then."""

    def run_turn(self, turn: TurnContext) -> TurnOutcome | Awaitable[TurnOutcome]:
        """Ask the model once."""


def tools_of(agent: Any) -> Mapping[str, Callable[..., Any]]:
    """An agent without tools need not say so."""
    return getattr(agent, "tools", None) or {}


def client_tools_of(agent: Any) -> Collection[str]:
    return getattr(agent, "client_tools", None) or ()


def approval_tools_of(agent: Any) -> Collection[str]:
    return getattr(agent, "approval_tools", None) or ()


def agent_for(agent_type: str) -> Any | None:
    """The agent that `HELIX_SESSIONS["AGENTS"]` names for a type of session, if it names one."""
    agents = conf.AGENTS
    named = agents.get(agent_type, agents.get("*"))
    return None if named is None else _agent(named) if isinstance(named, str) else named


def configured_agents() -> dict[str, Any]:
    """Every agent that settings name, by agent type; `"*"` is for all types that are not named."""
    return {name: agent for name in conf.AGENTS if (agent := agent_for(name)) is not None}


@lru_cache(maxsize=256)
def _agent(path: str) -> Any:
    """One instance for each path and process."""
    try:
        found = import_string(path)
    except ImportError as error:
        raise NotConfigured(f"The agent {path!r} cannot be imported: {error}") from error
    agent = found if hasattr(found, "run_turn") and not isinstance(found, type) else found()
    if not callable(getattr(agent, "run_turn", None)):
        raise NotConfigured(f"{path!r} is no agent: it has no run_turn.")
    return agent
