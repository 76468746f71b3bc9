"""Compiled graphs of LangGraph under our loop."""

from helix_sessions.agents.langgraph.graph_agent import GraphAgent

__all__ = ["GraphAgent"]
