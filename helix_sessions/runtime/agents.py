"""The agents that settings name."""

from functools import lru_cache
from typing import Any

from django.utils.module_loading import import_string

from helix_sessions.conf import conf
from helix_sessions.exceptions import NotConfigured


def agent_for(agent_type: str) -> Any | None:
    """The agent that `HELIX_SESSIONS["AGENTS"]` names for a type of session, if it names one."""
    agents = conf.AGENTS
    named = agents.get(agent_type, agents.get("*"))
    return None if named is None else _agent(named) if isinstance(named, str) else named


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
