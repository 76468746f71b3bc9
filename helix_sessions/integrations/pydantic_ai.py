"""The message history of pydantic-ai: loaded for a run, saved after it, in an ordinary session.

history = DjangoHistory("chat-1")
result = agent.run_sync("Hello", message_history=history.load())
history.save(result.new_messages())
"""

from collections.abc import Sequence
from typing import Any

from asgiref.sync import sync_to_async

from helix_sessions.content import documents
from helix_sessions.exceptions import SessionExists, SessionNotFound
from helix_sessions.integrations import forms
from helix_sessions.integrations.extras import needed_from
from helix_sessions.integrations.pydantic_ai_memory import memory_toolset as memory_toolset
from helix_sessions.store import SessionStore
from helix_sessions.types import JSON

with needed_from("pydantic-ai"):
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

    from helix_sessions.agents.pydantic_ai.messages import history as model_messages

AGENT_TYPE = "pydantic_ai"
_TOOL_PARTS = ("tool-return", "retry-prompt")


class DjangoHistory:
    """The messages of one session, which the first save creates.

    `fields` are those of `create_session`: `owner`, `user_id`, `tags`, `metadata`, `expires_at` … A save
    after a load is refused with `StaleState` when another writer has written meanwhile. What another
    agent said is read too: text, calls and results; other forms are refused as `FrameworkMismatch`.
    """

    def __init__(
        self,
        session_id: str,
        *,
        store: SessionStore | None = None,
        agent_type: str = AGENT_TYPE,
        **fields: Any,
    ) -> None:
        self.session_id = session_id
        self._store = SessionStore() if store is None else store
        self._fields = {"agent_type": agent_type, **fields}
        self._version: int | None = None
        """The version that was loaded or saved; 0 when there was no session."""

    def load(self, limit: int | None = None) -> list[ModelMessage]:
        """The messages, oldest first, or the latest `limit` of them."""
        try:
            page = self._store.get_message_texts(self.session_id, limit=limit, newest_first=limit is not None)
        except SessionNotFound:
            self._version = 0
            return []
        texts = page.texts if limit is None else page.texts[::-1]
        messages = documents.load_all(texts)
        forms.refuse_others(self.session_id, messages, AGENT_TYPE)
        self._version = page.version
        return model_messages(messages)

    def save(self, messages: Sequence[ModelMessage]) -> int:
        """Add what a run came to (`result.new_messages()`); returns how many messages there are now."""
        said = [
            _message(found) for found in ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
        ]
        if self._version is None:
            forms.refuse_session_of_others(self._store, self.session_id, AGENT_TYPE)
        if not self._version:
            self._create()
        added = self._store.append_messages(self.session_id, said, expected_version=self._version)
        self._version = added.version
        return added.message_count

    async def aload(self, limit: int | None = None) -> list[ModelMessage]:
        """`load`, to be awaited."""
        return await sync_to_async(self.load)(limit)

    async def asave(self, messages: Sequence[ModelMessage]) -> int:
        """`save`, to be awaited."""
        return await sync_to_async(self.save)(messages)

    def _create(self) -> None:
        try:
            created = self._store.create_session(self.session_id, **self._fields)
        except SessionExists:
            head = self._store.get_session_head(self.session_id)  # raises if it is another owner's
            if self._version is None:
                return
            if head.message_count:  # an empty one holds nothing that the run did not know
                self._store.check_session_version(self.session_id, 0)
            self._version = head.version
        else:
            self._version = created.version


def _message(found: dict[str, JSON]) -> dict[str, JSON]:
    """A message of the transcript: what pydantic-ai writes, under a role."""
    kinds = [part.get("part_kind") for part in found["parts"]]
    role = "user"
    if found["kind"] == "response":
        role = "assistant"
    elif any(kind in _TOOL_PARTS for kind in kinds) and "user-prompt" not in kinds:
        role = "tool"
    elif kinds and set(kinds) == {"system-prompt"}:
        role = "system"
    return {"role": role, "message": found}
