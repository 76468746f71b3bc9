"""What a graph's stream tells while it runs: pieces of answers, sub-graphs, and what was used."""

from collections.abc import Iterator
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk

MODES = ["messages", "tasks"]


class Listener:
    """The stream of one step."""

    def __init__(self) -> None:
        self.running: dict[tuple[str, ...], str] = {}
        """The sub-graphs that have begun, with their names."""
        self._calls: dict[tuple[Any, Any], tuple[str, str]] = {}

    def fragments(self, namespace: tuple[str, ...], mode: str, data: Any) -> Iterator[dict[str, Any]]:
        """The pieces that those who read along are shown: of the graph's own answers, not of a sub-graph's,
        which are told when it ends."""
        if mode != "messages" or namespace:
            return
        message = data[0]
        if not isinstance(message, AIMessage | AIMessageChunk):
            return
        for block in message.content_blocks:
            if block["type"] == "text" and block.get("text"):
                yield {"text": block["text"]}
            elif block["type"] == "reasoning" and block.get("reasoning"):
                yield {"thinking": block["reasoning"]}
        for piece in getattr(message, "tool_call_chunks", ()):
            place = (message.id, piece.get("index"))
            if piece.get("id") and piece.get("name"):
                self._calls[place] = (piece["id"], piece["name"])
            if place in self._calls and piece.get("args"):
                call_id, name = self._calls[place]
                yield {"tool_call_id": call_id, "tool_name": name, "arguments": piece["args"]}

    def began(self, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
        """The sub-graphs that are heard of for the first time, the outer ones first."""
        new = [
            namespace[:depth]
            for depth in range(1, len(namespace) + 1)
            if namespace[:depth] not in self.running
        ]
        for each in new:
            self.running[each] = each[-1].partition(":")[0]
        return new


class Usage(BaseCallbackHandler):
    """Adds up what models used, whether or not their answers become messages of the graph."""

    run_inline = True

    def __init__(self) -> None:
        self._of: dict[str, Any] = {}

    def on_llm_end(self, response: Any, **kwargs: Any) -> None:
        for number, message in enumerate(_messages(response)):
            self.add(message, str(message.id or f"{kwargs.get('run_id')}-{number}"))

    def add(self, message: Any, key: str) -> None:
        """Count an answer, once."""
        if getattr(message, "usage_metadata", None):
            self._of[key] = message.usage_metadata

    def total(self) -> dict[str, Any] | None:
        if not self._of:
            return None
        found = list(self._of.values())

        def details(name: str, key: str) -> int:
            return sum((used.get(name) or {}).get(key) or 0 for used in found)

        return {
            "input_tokens": sum(used.get("input_tokens") or 0 for used in found),
            "output_tokens": sum(used.get("output_tokens") or 0 for used in found),
            "cache_read_tokens": details("input_token_details", "cache_read"),
            "cache_write_tokens": details("input_token_details", "cache_creation"),
            "reasoning_tokens": details("output_token_details", "reasoning"),
        }


def _messages(response: Any) -> list[Any]:
    found = [getattr(one, "message", None) for some in response.generations for one in some]
    return [message for message in found if isinstance(message, AIMessage)]
