"""The store: every decision, and the only place that opens transactions.

`SessionStore` is the contract in one class, made of one noun per file. `AsyncSessionStore` has the same
calls, awaitable.
"""

from helix_sessions.store.aio import AsyncSessionStore
from helix_sessions.store.session_store import SessionStore

__all__ = ["AsyncSessionStore", "SessionStore"]
