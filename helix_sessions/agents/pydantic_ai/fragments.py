"""What a model says while it says it, as fragments."""

import json
from typing import Any

from pydantic_ai.messages import (
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import Model
from pydantic_ai.models.function import FunctionModel


class Fragments:
    """The fragments of one response: `{"text"}`, `{"thinking"}`, or a piece of the arguments of a call."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[str, str]] = {}

    def of(self, event: Any) -> dict[str, Any] | None:
        """The fragment of an event; `None` if it says nothing."""
        if isinstance(event, PartStartEvent):
            part: Any = event.part
            if isinstance(part, ToolCallPart):
                self._calls[event.index] = part.tool_call_id, part.tool_name
                return self._piece(event.index, part.args)
            return _said(part, part.content) if isinstance(part, TextPart | ThinkingPart) else None
        if isinstance(event, PartDeltaEvent):
            delta: Any = event.delta
            if isinstance(delta, ToolCallPartDelta):
                return self._piece(event.index, delta.args_delta) if delta.args_delta else None
            if isinstance(delta, TextPartDelta | ThinkingPartDelta):
                return _said(delta, delta.content_delta)
        return None

    def _piece(self, index: int, args: Any) -> dict[str, Any] | None:
        if index not in self._calls:
            return None
        call_id, name = self._calls[index]
        text = args if isinstance(args, str) else "" if args is None else json.dumps(args, ensure_ascii=False)
        return {"tool_call_id": call_id, "tool_name": name, "arguments": text}


def _said(part: Any, content: str | None) -> dict[str, Any] | None:
    if not content:
        return None
    return {"thinking" if isinstance(part, ThinkingPart | ThinkingPartDelta) else "text": content}


def can_stream(model: Any) -> bool:
    """Whether a model can be asked for a stream."""
    while hasattr(model, "wrapped"):
        model = model.wrapped
    if isinstance(model, FunctionModel):
        return model.stream_function is not None
    if isinstance(getattr(model, "models", None), list | tuple):
        return all(map(can_stream, model.models))
    return isinstance(model, Model) and type(model).request_stream is not Model.request_stream
