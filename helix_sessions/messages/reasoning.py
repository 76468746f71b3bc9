"""Provider-native reasoning in messages, which no other model may be given: thinking with its signatures,
encrypted or redacted thoughts, and references to what a provider keeps of them.

Known are the shapes of Anthropic (`thinking` and `redacted_thinking` blocks), OpenAI (`reasoning` items with
`encrypted_content`), Gemini (`thought` parts, thought signatures of any part), Bedrock, the chat formats with
a `reasoning_content` beside the content, and the messages of our adapters (`item`, `message`, `event`, `lc`).
Arguments of calls are data of the conversation and are never looked at.
"""

from collections.abc import Iterable
from typing import Any, Final

_REASONING = frozenset(
    (
        *("thinking", "redacted_thinking", "reasoning", "reasoning_text", "reasoning_content"),
        *("reasoning.text", "reasoning.summary", "reasoning.encrypted", "item_reference"),
    )
)
"""Types of blocks and items that are reasoning, or refer to it."""

_NATIVE = frozenset(
    (
        *("signature", "thought_signature", "thoughtSignature"),
        *("__gemini_function_call_thought_signatures__", "encrypted_content", "encryptedContent"),
        *("encrypted_index", "reasoning_encrypted_content"),
        *("reasoningEncryptedContent", "reasoning_opaque", "redactedContent", "redactedData"),
        *("reasoning", "reasoning_content", "reasoningContent", "reasoning_details", "reasoning_items"),
        *("thinking", "thinking_blocks"),
    )
)
"""Keys under which reasoning, its signature or its encrypted form stands beside something else."""

_DATA = frozenset(("arguments", "args", "input", "output", "response", "result", "metadata", "usage", "text"))
"""Keys of what was said, called or returned."""

_GONE: Final = object()


def for_model(messages: Iterable[dict[str, Any]], model: str | None) -> list[dict[str, Any]]:
    """What a model may be given of these messages: those of other models, and those that name none, without
    their native reasoning. `None` asks for the messages as they are stored.

    Each message is treated by itself, so what follows it never changes what is seen of it.
    """
    if model is None:
        return list(messages)
    seen = (message if _is_of(message, model) else without_reasoning(message) for message in messages)
    return [message for message in seen if message is not None]


def without_reasoning(message: dict[str, Any]) -> dict[str, Any] | None:
    """The message without native reasoning; the same object if it has none, `None` if it has nothing else."""
    if message.get("role") != "assistant":
        return message
    content = message.get("content")
    kept = _clean({**message, "content": None} if isinstance(content, dict) else message)
    if kept is _GONE:
        return None
    if isinstance(content, dict):  # a structured answer: its keys are the agent's own
        kept = {**kept, "content": content}
    item = kept.get("item")
    if isinstance(item, dict) and "id" in item:  # an id of the provider's, which has the reasoning behind it
        kept = {**kept, "item": {key: value for key, value in item.items() if key != "id"}}
    if kept == message:
        return message
    return kept if _says_something(kept) else None


def _is_of(message: dict[str, Any], model: str) -> bool:
    return message.get("model") == model


def _clean(value: Any) -> Any:
    """The value without what is native in it; `_GONE` if that is all there was."""
    if isinstance(value, list):
        return [kept for inner in value if (kept := _clean(inner)) is not _GONE]
    if not isinstance(value, dict):
        return value
    if _is_reasoning(value):
        return _GONE
    kept = {
        key: left
        for key, inner in value.items()
        if key not in _NATIVE and (left := inner if key in _DATA else _clean(inner)) is not _GONE
    }
    return kept if kept or not value else _GONE


def _is_reasoning(block: dict[str, Any]) -> bool:
    kind = block.get("type")
    return (
        (isinstance(kind, str) and kind in _REASONING)
        or (kind == "compaction" and "encrypted_content" in block)
        or block.get("part_kind") == "thinking"
        or block.get("thought") is True
    )


def _says_something(message: dict[str, Any]) -> bool:
    return any(
        (
            message.get("content"),
            message.get("tool_calls"),
            message.get("item"),
            message.get("parts"),
            _parts_of(message.get("message")),
            _parts_of(_inner(message.get("event"), "content")),
        )
    )


def _parts_of(value: Any) -> Any:
    return _inner(value, "parts")


def _inner(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None
