"""Which framework stored a message. Each adapter keeps its framework's own form under a role, and reads no
other's: what it cannot read it refuses, instead of making something up.

A plain message, a role and a text, is everybody's: the HTTP API, the inbox and the context write such ones.
"""

from collections.abc import Callable, Iterable, KeysView, Mapping
from typing import Any

from helix_sessions.content import documents
from helix_sessions.exceptions import FrameworkMismatch, SessionNotFound
from helix_sessions.messages.tool_ledger import calls_in, results_in
from helix_sessions.store import SessionStore

NAMES = {
    "google_adk": "Google's ADK",
    "langgraph": "LangGraph",
    "openai_agents": "the OpenAI Agents SDK",
    "pydantic_ai": "pydantic-ai",
}

_LANGGRAPH_ITEMS = ({"json"}, {"type", "data"})
"""The keys of an item as the LangGraph adapter stores it."""

_LANGGRAPH_FIRST_FORM = frozenset("jstzb")
"""Some of these are the keys of an item in its first stored form."""

_LOOKED_AT = 3
"""So many of the last messages are looked at before something is written to a session that was not read."""


def framework_of(message: Mapping[str, Any]) -> str | None:
    """The framework in whose form a message is; `None` if it is in nobody's."""
    if isinstance(message.get("lc"), dict):
        return "langgraph"
    said, item = message.get("message"), message.get("item")
    if isinstance(said, dict) and "parts" in said:
        return "pydantic_ai"
    if "content" in message:
        return None
    if isinstance(message.get("event"), dict):
        return "google_adk"
    if isinstance(item, dict):
        return "langgraph" if _is_of_langgraph(item.keys()) else "openai_agents"
    return None


def _is_of_langgraph(keys: KeysView[str]) -> bool:
    return bool(keys) and (keys in _LANGGRAPH_ITEMS or keys <= _LANGGRAPH_FIRST_FORM)


def is_text(message: Mapping[str, Any]) -> bool:
    """Whether a message in nobody's form is somebody's words, and neither calls nor answers."""
    return isinstance(message.get("content"), str) and message["role"] != "tool" and not calls_in(message)


def is_no_call(message: Mapping[str, Any]) -> bool:
    """Whether a message in nobody's form calls nothing; it may be the result of a call."""
    if message["role"] == "tool":
        return isinstance(message.get("tool_call_id"), str)
    return "content" in message and not calls_in(message) and not results_in(message)


def is_any(message: Mapping[str, Any]) -> bool:
    """For an adapter that leaves messages in nobody's form alone."""
    return True


def refuse_others(
    session_id: str,
    messages: Iterable[Mapping[str, Any]],
    own: str,
    plain: Callable[[Mapping[str, Any]], bool] = is_text,
) -> None:
    """Raise `FrameworkMismatch` unless each message is in the adapter's own form, or plain enough for it."""
    for message in messages:
        found = framework_of(message)
        if found is None and not plain(message):
            raise FrameworkMismatch(
                f"Session {session_id!r} has a message that {NAMES[own]} cannot read: a tool call, a tool's "
                "result or content in parts that it did not store itself."
            )
        if found not in (None, own):
            raise FrameworkMismatch(
                f"Session {session_id!r} has messages of {NAMES[str(found)]}; {NAMES[own]} cannot read them."
            )


def refuse_session_of_others(
    store: SessionStore,
    session_id: str,
    own: str,
    plain: Callable[[Mapping[str, Any]], bool] = is_text,
) -> None:
    """`refuse_others` of the last messages of a session, if there is one: before it is written unread."""
    try:
        page = store.get_message_texts(session_id, limit=_LOOKED_AT, newest_first=True)
    except SessionNotFound:
        return
    refuse_others(session_id, documents.load_all(page.texts), own, plain)
