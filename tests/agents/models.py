"""Models that say what a test tells them to, in pydantic-ai's own test models."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


class Script:
    """Each request is answered by the next line: a text, parts, a response, an exception, or a function of
    the messages and the request's parameters. What was asked is kept."""

    def __init__(self, *lines: Any) -> None:
        self.lines = list(lines)
        self.asked: list[list[ModelMessage]] = []
        self.infos: list[AgentInfo] = []

    def says(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.asked.append(list(messages))
        self.infos.append(info)
        line = self.lines.pop(0)
        if callable(line) and not isinstance(line, type):
            line = line(messages, info)
        if isinstance(line, Exception):
            raise line
        if isinstance(line, ModelResponse):
            return line
        parts = [TextPart(line)] if isinstance(line, str) else list(line)
        return ModelResponse(parts=parts)

    @property
    def model(self) -> FunctionModel:
        return FunctionModel(self.says)

    def text(self, number: int = -1) -> str:
        """All that the model was given in a request, as text."""
        return repr(self.asked[number])


def call(tool: str, call_id: str = "call-1", /, **arguments: Any) -> ToolCallPart:
    return ToolCallPart(tool, arguments, call_id)


def streaming(*pieces: Any) -> FunctionModel:
    """A model that streams these pieces, in pydantic-ai's own form."""

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for piece in pieces:
            yield piece

    return FunctionModel(stream_function=stream)


def kinds(messages: Sequence[Any]) -> list[tuple[str, ...]]:
    """The kinds of the parts of each message."""
    return [tuple(part.part_kind for part in message.parts) for message in messages]


def last_user(messages: Sequence[Any]) -> str:
    found = [
        part.content for message in messages for part in message.parts if part.part_kind == "user-prompt"
    ]
    return str(found[-1])


Line = Callable[..., Any]
