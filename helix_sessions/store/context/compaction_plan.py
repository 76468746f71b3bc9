"""Which messages a compaction summarizes, which it keeps as text, and the message it leaves. Pure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from helix_sessions.content import documents
from helix_sessions.messages.reasoning import without_reasoning
from helix_sessions.messages.tool_ledger import OpenCalls, calls_in, results_in
from helix_sessions.messages.tool_outputs import as_text as output_text
from helix_sessions.messages.tool_outputs import map_outputs
from helix_sessions.types import CompactionPolicy, ModelContext


class PlacedMessage(NamedTuple):
    """A message with its position. An update of the context is not folded: it stays visible as long as it has
    something new."""

    position: int
    seq: int
    message: dict[str, Any]
    is_update: bool = False


class Fold(NamedTuple):
    """What a compaction replaces: `older` by the summary, `recent` by its text."""

    older: list[PlacedMessage]
    recent: list[PlacedMessage]


def fold(lines: Sequence[PlacedMessage], policy: CompactionPolicy) -> Fold | None:
    """Split the messages without separating a call from its result; `None` if there is nothing older to fold.

    The end of the transcript from an open call on is not folded, because its result is still to come. A
    user's message at the very end waits for an answer, so it is never summarized, unless nothing at all is
    kept.
    """
    groups = whole_groups(prepared(lines, policy))
    room = policy.keep_recent
    start = len(groups)
    last = True
    while start > 0:
        messages = messages_of(groups[start - 1])
        size = _size(messages, policy)
        asked = last and policy.keep_recent > 0 and [m.get("role") for m in messages] == ["user"]
        if size > room and not asked:
            break
        room -= size
        start -= 1
        last = last and not messages
    older = [line for group in groups[:start] for line in group]
    if not messages_of(older):
        return None
    return Fold(older, [line for group in groups[start:] for line in group])


def _size(messages: list[dict[str, Any]], policy: CompactionPolicy) -> int:
    """Their size in tokens, each at least one."""
    if not messages:
        return 0
    return max(len(messages), policy.estimate(ModelContext(baseline="", messages=messages)))


def whole_groups(lines: Sequence[PlacedMessage]) -> list[list[PlacedMessage]]:
    """The shortest groups that have the results of all their calls; what follows the last is not complete
    yet."""
    groups: list[list[PlacedMessage]] = []
    group: list[PlacedMessage] = []
    calls: OpenCalls[None] = OpenCalls()
    for line in lines:
        group.append(line)
        if not line.is_update:
            calls.follow(line.message, lambda *_: None)
        if not calls:
            groups.append(group)
            group = []
    return groups


def prepared(lines: Sequence[PlacedMessage], policy: CompactionPolicy) -> list[PlacedMessage]:
    """The lines as a compaction reads them, each in its place: without native reasoning, long results of
    tools cut, and results before the newest `keep_results` tokens of them as one line each. One that has
    nothing to say has an empty message."""
    room, found = policy.keep_results, []
    for line in reversed(lines):
        message = {} if line.is_update else without_reasoning(line.message) or {}
        if message.get("role") == "tool" or results_in(message):
            cut = map_outputs(message, lambda content: _cut(content, policy.tool_output_chars))
            room -= _size([cut], policy)
            message = cut if room >= 0 else map_outputs(message, _left_out)
        found.append(line._replace(message=message))
    return found[::-1]


def messages_of(lines: Sequence[PlacedMessage]) -> list[dict[str, Any]]:
    """The messages of prepared lines."""
    return [line.message for line in lines if line.message]


def compaction_message(summary: str, recent: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that replaces what was folded."""
    content = f"Summary of the conversation so far:\n\n{summary}"
    if recent:
        content += "\n\nThe latest messages, word for word:\n\n" + "\n\n".join(map(as_text, recent))
    return {"role": "user", "kind": "compaction", "content": content}


def as_text(message: dict[str, Any]) -> str:
    """A message as plain text, in any provider's format."""
    who = message.get("tool_name") or message["role"]
    lines = [_content_text(message["content"] if "content" in message else _framework_content(message))]
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


def _framework_content(message: dict[str, Any]) -> Any:
    """What was said in a message as an adapter stored it."""
    for path in (("message", "parts"), ("event", "content", "parts"), ("item", "content"), ("item",)):
        found: Any = message
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        if found:
            return found if isinstance(found, list | str) else [found]
    return None


def _block_text(block: Any) -> str:
    if isinstance(block, dict):
        if block.get("type") in ("tool_use", "function_call"):
            return ""  # told as a call
        if block.get("type") == "tool_result":
            return _content_text(block.get("content"))
        for key in ("text", "content"):
            if isinstance(block.get(key), str):
                return str(block[key])
    return block if isinstance(block, str) else documents.write(block)


def _cut(value: Any, characters: int) -> Any:
    """A value whose text is longer becomes the beginning of its text."""
    text = output_text(value)
    if len(text) <= characters:
        return value
    return f"{text[:characters]}\n[{len(text) - characters} more characters]"


def _left_out(value: Any) -> Any:
    """The line that stands for an old result, unless the result is shorter."""
    text = output_text(value)
    line = f"[A result of {len(text):,} characters, left out here.]"
    return value if len(text) <= len(line) else line
