"""Which messages a compaction summarizes, which it keeps as text, and the message it leaves. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

from helix_sessions.content import documents
from helix_sessions.transcripts import calls_in, results_in
from helix_sessions.types import CompactionPolicy, ModelContext


class Line(NamedTuple):
    """A message in its place. One that only told of changes to the context is not folded: it stays visible
    by itself for as long as it says something new."""

    position: int
    seq: int
    message: dict[str, Any]
    is_update: bool = False


class Fold(NamedTuple):
    """What a compaction replaces: `older` by the summary, `recent` by its text."""

    older: list[Line]
    recent: list[Line]


def fold(lines: Sequence[Line], policy: CompactionPolicy) -> Fold | None:
    """Part the messages where no call is parted from its result; `None` if there is nothing older to fold.

    The end of the transcript from a call without a result on is left alone, because the result is still to
    come. A user's message at the very end waits for an answer, so it is never left to a summary, unless
    nothing at all is to be kept.
    """
    groups = whole_groups(lines)
    room = policy.keep_recent
    start = len(groups)
    last = True
    while start > 0:
        messages = trimmed(groups[start - 1], policy)
        size = _size(messages, policy)
        asked = last and policy.keep_recent > 0 and [m.get("role") for m in messages] == ["user"]
        if size > room and not asked:
            break
        room -= size
        start -= 1
        last = last and not messages
    older = [line for group in groups[:start] for line in group]
    if not trimmed(older, policy):
        return None
    return Fold(older, [line for group in groups[start:] for line in group])


def _size(messages: list[dict[str, Any]], policy: CompactionPolicy) -> int:
    """What they take, each at least one token."""
    if not messages:
        return 0
    return max(len(messages), policy.estimate(ModelContext(baseline="", messages=messages)))


def whole_groups(lines: Sequence[Line]) -> list[list[Line]]:
    """The shortest pieces that have every result of their calls; what follows the last is not whole yet."""
    groups: list[list[Line]] = []
    group: list[Line] = []
    open_calls: Counter[str] = Counter()
    for line in lines:
        group.append(line)
        if not line.is_update:
            open_calls.update(call["id"] for call in calls_in(line.message))
            for call_id in results_in(line.message):
                if open_calls[call_id] > 0:
                    open_calls[call_id] -= 1
        if not +open_calls:
            groups.append(group)
            group = []
    return groups


def trimmed(lines: Sequence[Line], policy: CompactionPolicy) -> list[dict[str, Any]]:
    """The messages with long results of tools cut, without updates of the context."""
    return [_trim(line.message, policy.tool_output_chars) for line in lines if not line.is_update]


def compaction_message(summary: str, recent: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that takes the place of what was folded."""
    content = f"Summary of the conversation so far:\n\n{summary}"
    if recent:
        content += "\n\nThe latest messages, word for word:\n\n" + "\n\n".join(map(as_text, recent))
    return {"role": "user", "kind": "compaction", "content": content}


def as_text(message: dict[str, Any]) -> str:
    """A message as a reader would note it down, whatever provider's format it has."""
    who = message.get("tool_name") or message["role"]
    lines = [_content_text(message.get("content"))]
    lines += [f"calls {call['name']} {documents.write(call['arguments'])}" for call in calls_in(message)]
    return f"[{who}] " + "\n".join(line for line in lines if line)


def _content_text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text for text in map(_block_text, content) if text)
    return documents.write(content)


def _block_text(block: Any) -> str:
    if isinstance(block, dict):
        if block.get("type") == "tool_use":
            return ""  # told as a call
        if block.get("type") == "tool_result":
            return _content_text(block.get("content"))
        if isinstance(block.get("text"), str):
            return str(block["text"])
    return block if isinstance(block, str) else documents.write(block)


def _trim(message: dict[str, Any], characters: int) -> dict[str, Any]:
    content = message.get("content")
    if message.get("role") == "tool" and not _has_results(content):
        return {**message, "content": _cut(content, characters)} if "content" in message else message
    if _has_results(content):
        return {**message, "content": [_trim_block(block, characters) for block in content]}
    return message


def _has_results(content: Any) -> TypeGuard[list[Any]]:
    return isinstance(content, list) and any(map(_is_result, content))


def _is_result(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _trim_block(block: Any, characters: int) -> Any:
    if _is_result(block) and "content" in block:
        return {**block, "content": _cut(block["content"], characters)}
    return block


def _cut(value: Any, characters: int) -> Any:
    """A value whose text is longer becomes the beginning of its text."""
    text = value if isinstance(value, str) else documents.write(value)
    if len(text) <= characters:
        return value
    return f"{text[:characters]}\n[{len(text) - characters} more characters]"
