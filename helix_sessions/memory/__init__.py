"""Memory across sessions: documents in namespaces, found by key, by words and by meaning."""

from helix_sessions.memory.aio import AsyncMemoryStore
from helix_sessions.memory.memory_store import MemoryStore

__all__ = ["AsyncMemoryStore", "MemoryStore"]
