"""The agent, which is the user's: what a runner asks of it, and where settings say it is."""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

from django.utils.module_loading import import_string

from helix_sessions.conf import conf
from helix_sessions.exceptions import NotConfigured
from helix_sessions.runtime.outcomes import APPROVAL, CLIENT_TOOL
from helix_sessions.runtime.turn_context import TurnContext
from helix_sessions.types import TurnOutcome
from helix_sessions.values.agents import value_of
from helix_sessions.values.tools import ToolOptions

TurnAnswer: TypeAlias = TurnOutcome | Mapping[str, Any] | str
"""What a turn may come to: an outcome, a dict of its fields or of a message, or what the assistant said."""

PYDANTIC_AI = "pydantic-ai"
OPENAI_AGENTS = "openai-agents"
LANGGRAPH = "langgraph"

_FRAMEWORKS = {
    ("pydantic_ai.agent.abstract", "AbstractAgent"): PYDANTIC_AI,
    ("agents.agent", "Agent"): OPENAI_AGENTS,
    ("langgraph.pregel.main", "Pregel"): LANGGRAPH,
}
"""The classes of agents: a framework that the project does not use is not imported to tell."""


class Agent(Protocol):
    """What runs a session. Its methods and tools may be plain or async.

    These are read where an agent has them: `tools`, by name, which the runner executes (`tool(arguments,
    turn)` returns JSON, a `ToolResult` or a `Spawn`); `client_tools`, names whose calls suspend the session
    until a client has answered; `approval_tools`, names whose calls are executed when a person has approved;
    `subagents`, `tool_options`, `retry` and `turn_timeout`.
    """

    def run_turn(self, turn: TurnContext, /) -> TurnAnswer | Awaitable[TurnAnswer]:
        """Ask the model once."""


class NamedAgent(Protocol):
    """An agent of a framework: it has a name."""

    @property
    def name(self) -> str | None:
        """The framework's name for it."""


class Toolbox:
    """The tools of an agent, by name."""

    def __init__(self, agent: Any) -> None:
        self._functions: Mapping[str, Callable[..., Any]] = getattr(agent, "tools", None) or {}
        self._client: Collection[str] = getattr(agent, "client_tools", None) or ()
        self._approval: Collection[str] = getattr(agent, "approval_tools", None) or ()
        self.subagents: Mapping[str, str] = getattr(agent, "subagents", None) or {}
        given: Mapping[str, Any] = getattr(agent, "tool_options", None) or {}
        self._options = {name: value_of(ToolOptions, options) for name, options in given.items()}

    def function(self, name: str) -> Callable[..., Any] | None:
        return self._functions.get(name)

    def options(self, name: str) -> ToolOptions:
        return self._options.get(name) or _PLAIN

    def needs_approval(self, name: str, kind: str | None = None) -> bool:
        """Whether a call of it waits for an approval. `kind`: what a framework says of this very call."""
        said = self.options(name).approval
        return kind == APPROVAL or name in self._approval if said is None else bool(said)

    def is_clients(self, name: str, kind: str | None = None) -> bool:
        """Whether a client answers a call of it. `kind`: what a framework says of this very call."""
        said = self.options(name).client
        if said is None:
            return name in self._client or (kind == CLIENT_TOOL and name not in self.subagents)
        return said

    @property
    def repeatable(self) -> dict[str, int]:
        """The tools that may be executed again after a crash, each with how often."""
        return {name: options.retries for name, options in self._options.items() if options.retries}


_PLAIN = ToolOptions()


class EveryTool(Mapping[str, Callable[..., Any]]):
    """The tools of an agent whose framework says only in a run which there are: one function for all."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._call

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 1


def agent_for(agent_type: str) -> Any | None:
    """The agent that `HELIX_SESSIONS["AGENTS"]` names for a type of session, if it names one."""
    agents = conf.AGENTS
    named = agents.get(agent_type, agents.get("*"))
    return None if named is None else _agent(named) if isinstance(named, str) else named


def is_driven_here(agent_type: str) -> bool:
    """Whether `HELIX_SESSIONS["AGENTS"]` names an agent for a type of session, which is not loaded for it."""
    return agent_type in conf.AGENTS or "*" in conf.AGENTS


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
    if isinstance(found, type) or not is_agent(found):
        if not callable(found):
            raise NotConfigured(f"{path!r} is a {type(found).__name__}, which is no agent.")
        found = found()
    return driven(found)


def framework_of(value: Any) -> str | None:
    """The framework whose agent a value is; `None`: it is of none that we know."""
    if isinstance(value, type):
        return None
    bases = ((base.__module__, base.__name__) for base in type(value).__mro__)
    return next((_FRAMEWORKS[base] for base in bases if base in _FRAMEWORKS), None)


def is_agent(value: Any) -> bool:
    """Whether a runner can drive it: it has `run_turn`, or is an agent of a framework that we know."""
    return hasattr(value, "run_turn") or framework_of(value) is not None


def driven(agent: Any) -> Any:
    """The agent as a runner drives it: with `run_turn`, by itself or made `durable`. What cannot hold under
    our loop is refused here."""
    if hasattr(agent, "run_turn"):
        return agent
    if framework_of(agent) is None:
        raise NotConfigured(f"A {type(agent).__name__} is no agent: it has no run_turn.")
    from helix_sessions.agents import durable

    return durable(agent)
