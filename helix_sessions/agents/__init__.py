"""Agents people write: agents of frameworks under our loop, what their code asks for while it runs, and how
their tools are executed."""

from helix_sessions.agents.durable import DurableAgent, durable
from helix_sessions.runtime.scripted import ScriptedAgent
from helix_sessions.runtime.turn_context import current_turn
from helix_sessions.values.tools import ToolOptions

__all__ = ["DurableAgent", "ScriptedAgent", "ToolOptions", "current_turn", "durable"]
