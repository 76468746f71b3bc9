"""Tools by which an agent of pydantic-ai remembers: `Agent(…, toolsets=[memory_toolset()])`."""

from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async

from helix_sessions.agents import current_turn
from helix_sessions.exceptions import HelixSessionsError, InvalidInput
from helix_sessions.integrations.extras import needed_from
from helix_sessions.memory import MemoryStore
from helix_sessions.store.memory.names import owner_namespace

with needed_from("pydantic-ai"):
    from pydantic_ai import ModelRetry, RunContext
    from pydantic_ai.toolsets import FunctionToolset

Namespace = tuple[str, ...]

_FOUND = 10
_NO_TURN = (
    "Outside a turn of a session, memory_toolset needs a namespace: a tuple of texts, or a function of the"
    ' run\'s context, such as lambda ctx: ("owner", str(ctx.deps.user.pk)).'
)
_NO_OWNER = "This session has no owner, so nothing can be remembered beyond it."


def memory_toolset(
    *,
    namespace: Namespace | Callable[[RunContext[Any]], Namespace] | None = None,
    store: MemoryStore | None = None,
) -> FunctionToolset[Any]:
    """The tools `save_memory`, `search_memories` and `delete_memory`, on one namespace.

    `namespace` is a tuple, or a function of the run's context; without it, the memories are those of the
    owner of the session whose turn runs. The model chooses keys and texts, never the namespace: it cannot
    reach what another one holds.
    """
    memories = MemoryStore() if store is None else store

    def place(ctx: RunContext[Any]) -> Namespace:
        if namespace is None:
            return _of_the_owner()
        return namespace(ctx) if callable(namespace) else namespace

    async def save_memory(ctx: RunContext[Any], key: str, value: str | dict[str, Any]) -> str:
        """Remember something beyond this conversation.

        Args:
            ctx: The run.
            key: A short name for it. What was remembered under the same name is replaced.
            value: What to remember.
        """
        kept = {"text": value} if isinstance(value, str) else value
        await _told(memories.put, place(ctx), key, kept)
        return f"Remembered as {key!r}."

    async def search_memories(ctx: RunContext[Any], query: str) -> list[dict[str, Any]]:
        """Find what was remembered earlier.

        Args:
            ctx: The run.
            query: Words that it must contain. An empty query finds the latest memories.
        """
        found = await _told(memories.search, place(ctx), query=query, limit=_FOUND)
        return [{"key": memory.key, "value": memory.value} for memory in found]

    async def delete_memory(ctx: RunContext[Any], key: str) -> str:
        """Forget what was remembered under a name.

        Args:
            ctx: The run.
            key: The name.
        """
        await _told(memories.delete, place(ctx), key)
        return f"Forgot {key!r}."

    return FunctionToolset([save_memory, search_memories, delete_memory], id="helix_memory")


def _of_the_owner() -> Namespace:
    """Where the memories of the owner of the current session are. Without an owner the model is told."""
    try:
        state = current_turn().state
    except LookupError:
        raise InvalidInput(_NO_TURN) from None
    if state.owner_id is None:
        raise ModelRetry(_NO_OWNER)
    return owner_namespace(state.owner_id)


async def _told(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the store; the model is told of what it refuses, and may try again."""
    try:
        return await sync_to_async(call)(*args, **kwargs)
    except HelixSessionsError as error:
        raise ModelRetry(str(error)) from error
