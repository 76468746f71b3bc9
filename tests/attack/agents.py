"""Agents that a test's settings name."""

from types import SimpleNamespace

from helix_sessions.runtime.scripted import ScriptedAgent

lenient = ScriptedAgent()
lenient.tool_options = {"refund": SimpleNamespace(approval="participant")}
