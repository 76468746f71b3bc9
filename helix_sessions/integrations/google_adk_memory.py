"""The memory of Google's Agent Development Kit: `Runner(..., memory_service=DjangoMemoryService())`.

Each event that says something is a memory of its app and user, in the rows of `MemoryStore`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from asgiref.sync import sync_to_async

from helix_sessions.integrations.extras import needed_from
from helix_sessions.integrations.google_adk_values import to_json
from helix_sessions.memory import MemoryStore
from helix_sessions.messages import words
from helix_sessions.store.engine.ids import new_id
from helix_sessions.store.memory import vectors
from helix_sessions.store.memory.operations import MAX_OPERATIONS
from helix_sessions.types import Memory

with needed_from("google-adk"):
    from google.adk.events import Event
    from google.adk.memory import BaseMemoryService
    from google.adk.memory.base_memory_service import SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.adk.sessions import Session
    from google.genai.types import Content

Namespace = tuple[str, ...]

_FOUND = 10
_WORDS = 16
"""So many words of a query are looked for, each by itself."""
_OF_EACH_WORD = 50
_DELETED = {"deleted": True}
"""What stays of a deleted memory, so that a session that is added again does not bring it back."""


def _namespace(app_name: str, user_id: str) -> Namespace:
    return ("google_adk", app_name, user_id)


class DjangoMemoryService(BaseMemoryService):
    """ADK's memories by app and user. `namespace` says where those of an app and a user are; give one that
    begins with `("owner", <key as text>)` if they belong to users of the project.

    A search finds the memories that share the most words with the query, or, where the store has an embedder,
    those that are nearest to it.
    """

    def __init__(
        self,
        *,
        store: MemoryStore | None = None,
        namespace: Callable[[str, str], Namespace] = _namespace,
    ) -> None:
        self._store = MemoryStore() if store is None else store
        self._namespace = namespace

    async def add_session_to_memory(self, session: Session) -> None:
        """Keep what was said in a session; again and again changes nothing."""
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, events=session.events, session_id=session.id
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Keep events that say something. `custom_metadata["ttl"]` is in seconds."""
        found = {
            event.id or new_id(): _value(
                event.content, event.author, _time(event.timestamp), session_id, custom_metadata
            )
            for event in events
            if event.content and event.content.parts
        }
        await sync_to_async(self._put_undeleted)(self._namespace(app_name, user_id), found, custom_metadata)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Keep memories as they are, also one that was deleted."""
        found = {
            entry.id or new_id(): _value(
                entry.content,
                entry.author,
                entry.timestamp,
                None,
                {**(custom_metadata or {}), **entry.custom_metadata},
            )
            for entry in memories
        }
        await sync_to_async(self._put)(self._namespace(app_name, user_id), found, custom_metadata)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """The memories that fit a query best."""
        found = await sync_to_async(self._search)(self._namespace(app_name, user_id), query)
        return SearchMemoryResponse(memories=[_entry(memory) for memory in found])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Forget a memory. A session that is added again does not bring it back."""
        if memory_id:
            namespace = self._namespace(app_name, user_id)
            await sync_to_async(self._store.put)(namespace, memory_id, _DELETED, index=False)

    def _put_undeleted(
        self, namespace: Namespace, found: Mapping[str, dict[str, Any]], metadata: Mapping[str, object] | None
    ) -> None:
        known = self._batch([{"op": "get", "namespace": namespace, "key": key} for key in found])
        gone = {memory.key for memory in known if memory is not None and memory.value == _DELETED}
        self._put(namespace, {key: value for key, value in found.items() if key not in gone}, metadata)

    def _put(
        self, namespace: Namespace, found: Mapping[str, dict[str, Any]], metadata: Mapping[str, object] | None
    ) -> None:
        same = {"op": "put", "namespace": namespace, "ttl": (metadata or {}).get("ttl"), "index": ["text"]}
        self._batch([{**same, "key": key, "value": value} for key, value in found.items()])

    def _batch(self, operations: list[dict[str, Any]]) -> list[Any]:
        """The answers of as many operations as there are, in several batches."""
        firsts = range(0, len(operations), MAX_OPERATIONS)
        batches = [operations[first : first + MAX_OPERATIONS] for first in firsts]
        return [answer for batch in batches for answer in self._store.batch(batch)]

    def _search(self, namespace: Namespace, query: str) -> list[Memory]:
        if vectors.embedder(self._store._embed) is not None:
            return self._store.search(namespace, query=query, limit=_FOUND)
        wanted = list(dict.fromkeys(words.words_of(query)))[:_WORDS]
        by_word = self._store.batch(
            {"op": "search", "prefix": namespace, "query": word, "limit": _OF_EACH_WORD} for word in wanted
        )
        return _with_most_words(by_word)


def _with_most_words(by_word: Iterable[list[Memory]]) -> list[Memory]:
    """The memories that most searches found; among equals, those that fit better."""
    found: dict[str, Memory] = {}
    scores: dict[str, tuple[int, float]] = {}
    for memories in by_word:
        for memory in memories:
            count, score = scores.get(memory.key, (0, 0.0))
            found[memory.key] = memory
            scores[memory.key] = count + 1, score + (memory.score or 0.0)
    best = sorted(found, key=lambda key: scores[key], reverse=True)
    return [found[key] for key in best[:_FOUND]]


def _value(
    content: Content, author: str | None, timestamp: str | None, session_id: str | None, metadata: Any
) -> dict[str, Any]:
    text = "\n".join(part.text for part in content.parts or [] if part.text)
    value = {
        "text": text,
        "content": to_json(content, exclude_none=True),
        "author": author,
        "timestamp": timestamp,
        "session_id": session_id,
        "custom_metadata": to_json(dict(metadata or {})),
    }
    return {name: kept for name, kept in value.items() if kept}


def _time(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).isoformat()


def _entry(memory: Memory) -> MemoryEntry:
    value = memory.value
    return MemoryEntry(
        id=memory.key,
        content=Content.model_validate(value["content"]),
        author=value.get("author"),
        timestamp=value.get("timestamp"),
        custom_metadata=value.get("custom_metadata", {}),
    )
