"""The table of operations on memories."""

from helix_sessions.store.engine.operation import operation
from helix_sessions.store.memory import memories
from helix_sessions.store.memory.scope import MemoryScope


class MemoryStore(MemoryScope):
    """What agents remember across sessions. Stateless and cheap to make; safe to share between threads.

    `embed` turns a list of texts into vectors, for searches by meaning; without it `EMBEDDER` does, and
    without that searches go by words. `owned_by` (a user or its key) confines the store to the namespaces
    that begin with `("owner", <key as text>)`.
    """

    put = operation(memories.put)
    get = operation(memories.get)
    delete = operation(memories.delete)
    search = operation(memories.search)
    list_namespaces = operation(memories.list_namespaces)
    batch = operation(memories.batch)
