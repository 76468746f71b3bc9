"""LangGraph's checkpoints in ordinary sessions: `graph.compile(checkpointer=DjangoSaver())`."""

from helix_sessions.integrations.langgraph.saver import DjangoSaver

__all__ = ["DjangoSaver"]
