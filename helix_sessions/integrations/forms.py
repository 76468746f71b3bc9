"""Which framework stored a message. Each adapter keeps its framework's own form under a role, and reads no
other's: what it cannot read it refuses, instead of making something up.

The shape of a transcript is common to all: text, calls and their results, as the HTTP API, the inbox and the
agents under our loop write them. Each adapter reads it as its framework has it.
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

_LANGGRAPH_ITEMS = ({"json"}, {"type", "data"}, {"type", "parts"})
"""The keys of an item as the LangGraph adapter stores it."""

_LANGGRAPH_FIRST_FORM = frozenset("jstzb")
"""Some of these are the keys of an item in its first stored form."""

_TEXTS = ("text", "input_text", "output_text")
_NO_TEXTS = ("tool_use", "thinking", "redacted_thinking", "reasoning")
"""Types of blocks that are calls, or that only their own model reads."""

_LOOKED_AT = 3
"""So many of the last messages are looked at before something is written to a session that was not read."""


def framework_of(message: Mapping[str, Any]) -> str | None:
    """The framework in whose form a message is; `None` if it is in none of them."""
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


def shared(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """A message in the common shape: a role, `content` of text or of a tool's result,
    `tool_calls`. A framework's own form beside it is left out. `None` if it is in no such shape."""
    role, content = message["role"], message.get("content")
    calls, native = calls_in(message), message.get("lc")
    if "content" not in message and not calls:
        return None
    if role == "tool":
        if not isinstance(message.get("tool_call_id"), str):
            return None
        native = native if isinstance(native, dict) else {}
        name = message.get("tool_name") or native.get("name") or ""
        is_error = bool(message.get("is_error")) or native.get("status") == "error"
        return {
            "role": role,
            "tool_call_id": message["tool_call_id"],
            "tool_name": name,
            "content": content,
            "is_error": is_error,
        }
    text = _text(content)
    if text is None or results_in(message):
        return None
    return {"role": role, "content": text, "tool_calls": calls}


def _text(content: Any) -> str | None:
    """The text of a content; `None` if it has parts that are neither text nor calls."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return None
    texts = []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind in _TEXTS and isinstance(block.get("text"), str):
            texts.append(block["text"])
        elif kind not in _NO_TEXTS:
            return None
    return "".join(texts)


def is_any(message: Mapping[str, Any]) -> bool:
    """For an adapter that leaves messages without a framework's form alone."""
    return True


def is_shared(message: Mapping[str, Any]) -> bool:
    """Whether a message is in the common shape."""
    return shared(message) is not None


def refuse_others(
    session_id: str,
    messages: Iterable[Mapping[str, Any]],
    own: str,
    readable: Callable[[Mapping[str, Any]], bool] = is_shared,
) -> None:
    """Raise `FrameworkMismatch` unless each message is in the adapter's own form, or one it can read."""
    for message in messages:
        found = framework_of(message)
        if found == own or readable(message):
            continue
        if found is None:
            raise FrameworkMismatch(
                f"Session {session_id!r} has a message that {NAMES[own]} cannot read: its content is neither "
                "text, nor calls, nor the result of one."
            )
        raise FrameworkMismatch(
            f"Session {session_id!r} has messages of {NAMES[found]}; {NAMES[own]} cannot read them."
        )


def refuse_session_of_others(store: SessionStore, session_id: str, own: str) -> None:
    """Raise `FrameworkMismatch` if one of the last messages of a session, if there is one, is in the form of
    another framework: before it is written unread."""
    try:
        page = store.get_message_texts(session_id, limit=_LOOKED_AT, newest_first=True)
    except SessionNotFound:
        return
    nobodys = [message for message in documents.load_all(page.texts) if framework_of(message) is not None]
    refuse_others(session_id, nobodys, own, lambda message: False)
