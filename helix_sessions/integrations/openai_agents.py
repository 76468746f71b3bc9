"""The memory of the OpenAI Agents SDK: `Runner.run(agent, "Hello", session=DjangoSession("thread-1"))`.

An item that is a message is stored as it is. Any other (a tool call, its output, reasoning …) is stored under
`item` of a message whose role, and the ids of its call, say what it is to whoever reads the transcript.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ParamSpec, TypeVar, cast

from asgiref.sync import sync_to_async

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidInput, SessionExists, SessionNotFound, StaleState
from helix_sessions.integrations import forms
from helix_sessions.integrations.extras import needed_from
from helix_sessions.store import SessionStore
from helix_sessions.types import JSON

with needed_from("openai-agents"):
    from agents.items import TResponseInputItem
    from agents.memory import SessionSettings

AGENT_TYPE = "openai_agents"

P = ParamSpec("P")
T = TypeVar("T")


class DjangoSession:
    """The SDK's `Session` protocol on one of our sessions, which the first item creates.

    `fields` are those of `create_session`: `owner`, `user_id`, `tags`, `metadata`, `expires_at` …
    Two sessions with one id are one session, in whichever processes they are. One that another framework's
    adapter wrote is refused as `FrameworkMismatch`. A call that is cancelled ends when its write is decided.
    """

    session_id: str
    session_settings: SessionSettings | None
    """The settings of reads; a dict, when assigned, becomes one."""

    def __init__(
        self,
        session_id: str,
        *,
        store: SessionStore | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        agent_type: str = AGENT_TYPE,
        **fields: Any,
    ) -> None:
        self.session_id = session_id
        self.session_settings = _settings(session_settings) or SessionSettings()
        self._store = SessionStore() if store is None else store
        self._fields = {"agent_type": agent_type, **fields}
        self._is_ours = False
        """Whether the session was looked at, and can be read."""
        self._is_closed = False

    def close(self) -> None:
        """Refuse any further use of this object. What is stored stays; nothing else is to be closed."""
        self._is_closed = True

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The history, oldest first, or the latest `limit` items of it. A negative limit means all."""
        settings = _settings(self.session_settings)
        if limit is None and settings is not None:
            limit = settings.limit
        return await self._awaited(self._get, None if limit is not None and limit < 0 else limit)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add to the end of the history: all items or, if one cannot be stored, none."""
        await self._awaited(self._add, [message_of(item) for item in items])

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the latest item away. Of several callers each gets another one."""
        return await self._awaited(self._pop)

    async def clear_session(self) -> None:
        """Empty the history. The session and its log stay."""
        await self._awaited(self._clear)

    async def _awaited(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a call made in Django's thread for synchronous work. If the caller is cancelled, it
        is told so when the call has ended, because the call cannot be stopped."""
        if self._is_closed:
            raise RuntimeError(f"{type(self).__name__} is closed")
        return await outcome_of(sync_to_async(call)(*args, **kwargs))

    def _get(self, limit: int | None) -> list[TResponseInputItem]:
        if limit == 0:
            return []
        try:
            page = self._store.get_messages(self.session_id, limit=limit, newest_first=limit is not None)
        except SessionNotFound:
            return []
        self._refuse_others(page.messages)
        items = [item_of(message) for message in page.messages]
        return items if limit is None else items[::-1]

    def _refuse_others(self, messages: list[Any]) -> None:
        forms.refuse_others(self.session_id, messages, AGENT_TYPE, forms.is_no_call)
        self._is_ours = True

    def _look(self) -> None:
        if not self._is_ours:
            forms.refuse_session_of_others(self._store, self.session_id, AGENT_TYPE, forms.is_no_call)
            self._is_ours = True

    def _add(self, messages: list[dict[str, JSON]]) -> None:
        self._look()
        while messages:
            try:
                self._store.append_messages(self.session_id, messages)
                return
            except SessionNotFound:
                self._create()

    def _create(self) -> None:
        try:
            self._store.create_session(self.session_id, **self._fields)
        except SessionExists:
            self._store.get_session_head(self.session_id)  # raises if it is another owner's

    def _pop(self) -> TResponseInputItem | None:
        while True:
            try:
                last = self._store.get_message_texts(self.session_id, limit=1, newest_first=True)
                if not last.texts:
                    return None
                message = documents.load(last.texts[0])
                self._refuse_others([message])
                self._store.truncate_messages(self.session_id, last.total - 1, expected_version=last.version)
            except SessionNotFound:
                return None
            except StaleState:
                continue  # somebody else wrote in between, so what was read may not be the last item
            return item_of(message)

    def _clear(self) -> None:
        self._look()
        try:
            self._store.truncate_messages(self.session_id, 0)
        except SessionNotFound:
            return


def message_of(item: Any) -> dict[str, JSON]:
    """An item as a message of the transcript."""
    if not isinstance(item, Mapping):
        raise InvalidInput(f"An item must be an object, not {type(item).__name__}.")
    given = dict(item)
    kind, role = given.get("type"), given.get("role")
    if role in ("user", "assistant", "system") and _can_stay(given):
        return given
    if isinstance(kind, str) and kind.endswith(("_output", "_response")):
        return {"role": "tool", "tool_call_id": given.get("call_id"), "item": given}
    if kind == "function_call":
        return {"role": "assistant", "tool_name": given.get("name"), "item": given}
    if role in ("system", "developer"):
        return {"role": "system", "item": given}
    return {"role": role if role in ("user", "tool") else "assistant", "item": given}


def _can_stay(given: dict[str, JSON]) -> bool:
    """Whether an item that is a message is known as one of nobody's in particular when it is read again."""
    return "item" not in given and forms.framework_of(given) is None and forms.is_no_call(given)


def item_of(message: dict[str, JSON]) -> TResponseInputItem:
    """The item a message stands for. A tool message of somebody else's is the output of its call."""
    if "item" in message:
        return cast(TResponseInputItem, message["item"])
    if message["role"] == "tool":
        output = message.get("content")
        return {
            "type": "function_call_output",
            "call_id": message.get("tool_call_id", ""),
            "output": output if isinstance(output, str) else documents.write(output),
        }
    return cast(TResponseInputItem, message)


async def outcome_of(write: Coroutine[Any, Any, T]) -> T:
    """What a write came to. A cancellation meanwhile reaches the caller when that is decided."""
    task = asyncio.ensure_future(write)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    if cancelled is not None:
        task.cancelled() or task.exception()  # seen, so that the event loop does not report it
        raise cancelled
    return task.result()


def _settings(given: SessionSettings | dict[str, Any] | None) -> SessionSettings | None:
    if not isinstance(given, dict):
        return given
    unknown = given.keys() - {field.name for field in dataclasses.fields(SessionSettings)}
    if unknown:
        raise TypeError(f"Unknown session settings: {', '.join(sorted(map(str, unknown)))}")
    return SessionSettings(**given)
