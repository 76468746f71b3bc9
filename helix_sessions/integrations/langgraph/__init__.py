"""LangGraph's checkpoints in ordinary sessions: `graph.compile(checkpointer=DjangoSaver())`."""

from helix_sessions.integrations.langgraph.importer import import_threads
from helix_sessions.integrations.langgraph.saver import DjangoSaver
from helix_sessions.integrations.langgraph_store import DjangoStore

__all__ = ["DjangoSaver", "DjangoStore", "import_threads"]
