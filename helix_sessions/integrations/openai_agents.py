"""The memory of the OpenAI Agents SDK: `Runner.run(agent, "Hello", session=DjangoSession("thread-1"))`.

An item that is a message is stored as it is. Any other (a tool call, its output, reasoning …) is stored under
`item` of a message whose role, and the ids of its call, say what it is to readers of the transcript.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, cast

from asgiref.sync import sync_to_async

from helix_sessions.content import documents
from helix_sessions.exceptions import (
    FrameworkMismatch,
    InvalidInput,
    SessionExists,
    SessionNotFound,
    StaleState,
)
from helix_sessions.integrations import forms
from helix_sessions.integrations.extras import needed_from
from helix_sessions.messages.tool_ledger import calls_in, results_in
from helix_sessions.messages.tool_outputs import as_text
from helix_sessions.store import SessionStore
from helix_sessions.types import JSON

with needed_from("openai-agents"):
    from agents.items import TResponseInputItem
    from agents.memory import SessionSettings

AGENT_TYPE = "openai_agents"

_OF_AN_ITEM = {"role", "content", "type", "id", "status", "phase"}
"""The keys of items that are messages."""

P = ParamSpec("P")
T = TypeVar("T")


class DjangoSession:
    """The SDK's `Session` protocol on one of our sessions, which the first item creates.

    `fields` are those of `create_session`: `owner`, `user_id`, `tags`, `metadata`, `expires_at` …
    Two sessions with one id are one session, in whichever processes they are. What another agent said is
    read as items, text, calls and results; other forms are refused as `FrameworkMismatch`. A call that is
    cancelled ends when its write is decided.
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

    @property
    def _key(self) -> str:
        """The id of the session that is read and written."""
        return self.session_id

    def _get(self, limit: int | None) -> list[TResponseInputItem]:
        if limit == 0:
            return []
        try:
            page = self._store.get_messages(self._key, limit=limit, newest_first=limit is not None)
        except SessionNotFound:
            return []
        messages = page.messages if limit is None else page.messages[::-1]
        items = self._items(messages)
        return items if limit is None else items[-limit:]

    def _items(self, messages: Sequence[dict[str, JSON]]) -> list[TResponseInputItem]:
        forms.refuse_others(self._key, messages, AGENT_TYPE, _is_readable)
        foreign = self._is_foreign(messages)
        return [item for message in messages for item in items_of(message, is_foreign=foreign)]

    def _is_foreign(self, messages: Sequence[dict[str, JSON]]) -> bool:
        """Whether messages that say more than an item were said by another agent."""
        if all("item" in message or message.keys() <= _OF_AN_ITEM for message in messages):
            return False
        return bool(self._store.get_session_head(self._key).agent_type != self._fields["agent_type"])

    def _look(self) -> None:
        if not self._is_ours:
            forms.refuse_session_of_others(self._store, self._key, AGENT_TYPE)
            self._is_ours = True

    def _add(self, messages: list[dict[str, JSON]]) -> None:
        self._look()
        while messages:
            try:
                self._store.append_messages(self._key, messages)
                return
            except SessionNotFound:
                self._create()

    def _create(self) -> None:
        try:
            self._store.create_session(self._key, **self._fields)
        except SessionExists:
            self._store.get_session_head(self._key)  # raises if it is another owner's

    def _pop(self) -> TResponseInputItem | None:
        while True:
            try:
                last = self._store.get_message_texts(self._key, limit=1, newest_first=True)
                if not last.texts:
                    return None
                self._look()
                items = self._items([documents.load(last.texts[0])])
                if len(items) > 1:
                    raise FrameworkMismatch(
                        f"The last message of session {self._key!r} is several items: it was said by "
                        "another agent, and cannot be taken apart."
                    )
                self._store.truncate_messages(self._key, last.total - 1, expected_version=last.version)
            except SessionNotFound:
                return None
            except StaleState:
                continue  # another writer wrote in between, so what was read may not be the last item
            return items[0]

    def _clear(self) -> None:
        self._look()
        try:
            self._store.truncate_messages(self._key, 0)
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
    """Whether a reader knows an item that is a message as one of no framework in particular."""
    if {"item", "items"} & given.keys() or forms.framework_of(given) is not None or "content" not in given:
        return False
    return not calls_in(given) and not results_in(given)


def _is_readable(message: Mapping[str, Any]) -> bool:
    return "items" in message or forms.is_shared(message) or _can_stay(dict(message))


def items_of(message: Mapping[str, JSON], *, is_foreign: bool) -> list[TResponseInputItem]:
    """The items a message stands for. A message that `is_foreign` may say more than an item of its kind."""
    if "items" in message or "item" in message:
        return cast(list[TResponseInputItem], message.get("items") or [message["item"]])
    if not is_foreign and _can_stay(dict(message)):
        return [cast(TResponseInputItem, message)]
    shared = forms.shared(message)
    if shared is None:
        if forms.framework_of(message) is None and _can_stay(dict(message)):  # content in parts of the SDK
            said = {"role": message["role"], "content": message["content"]}
            return [cast(TResponseInputItem, said)]
        raise FrameworkMismatch("The OpenAI Agents SDK cannot read a message: it is in no form it knows.")
    if shared["role"] == "tool":
        output = as_text(shared["content"])
        return [{"type": "function_call_output", "call_id": shared["tool_call_id"], "output": output}]
    items: list[Any] = []
    if shared["content"] or not shared["tool_calls"]:
        items.append({"role": shared["role"], "content": shared["content"]})
    for call in shared["tool_calls"]:
        arguments = as_text(call["arguments"])
        items.append(
            {"type": "function_call", "call_id": call["id"], "name": call["name"], "arguments": arguments}
        )
    return items


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
