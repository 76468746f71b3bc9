"""Agents that settings name."""

from helix_sessions.agents import ToolOptions
from helix_sessions.runtime.scripted import ScriptedAgent

writer = ScriptedAgent(tool_options={"refund": ToolOptions(approval="participant")})
"""What the policy asks whether a participant may approve a tool."""
