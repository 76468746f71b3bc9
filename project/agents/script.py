"""A model that follows a script: it reads what was said, decides, and types word by word."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import sync_to_async
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

_WORD_SECONDS = 0.035
_THINK_SECONDS = 0.6

_WORDS = re.compile(r"\S+\s*|\s+")


def _pace() -> float:
    """`HELIX_DEMO_PACE`: 2 types twice as fast, 0.5 half as fast."""
    return float(os.environ.get("HELIX_DEMO_PACE") or 1)


@dataclass(frozen=True, slots=True)
class Answered:
    """A tool call since the last prompt, and what came back."""

    tool: str
    arguments: dict[str, Any]
    content: Any
    is_error: bool

    @property
    def text(self) -> str:
        """What came back, as text."""
        return self.content if isinstance(self.content, str) else json.dumps(self.content)


@dataclass(frozen=True, slots=True)
class Heard:
    """What the model knows when it is asked."""

    prompt: str
    earlier: Sequence[str]
    """The prompts before."""
    answers: Sequence[Answered]
    """The calls since the prompt that were answered, in order."""

    def of(self, tool: str) -> list[Answered]:
        """The answers of one tool."""
        return [answer for answer in self.answers if answer.tool == tool]


@dataclass(frozen=True, slots=True)
class Line:
    """What the model says next, and the tools it calls."""

    text: str = ""
    calls: Sequence[tuple[str, dict[str, Any]]] = field(default=())


Play = Callable[[Heard], Line]
"""A script: it may raise what a provider would."""


def scripted(play: Play) -> FunctionModel:
    """A model that says what the play says."""

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        heard = _heard(messages)
        await asyncio.sleep(_THINK_SECONDS / _pace())
        line = await sync_to_async(play, thread_sensitive=False)(heard)
        for word in _WORDS.findall(line.text):
            yield word
            await asyncio.sleep(_WORD_SECONDS / _pace())
        for index, (tool, arguments) in enumerate(line.calls):
            call_id = f"call_{len(messages)}_{index}"
            yield {index: DeltaToolCall(tool, json.dumps(arguments), tool_call_id=call_id)}
        if not (line.text or line.calls):
            yield "…"

    return FunctionModel(stream_function=stream, model_name="script")


def _heard(messages: list[ModelMessage]) -> Heard:
    prompts: list[str] = []
    calls: dict[str, ToolCallPart] = {}
    answers: list[Answered] = []
    for message in messages:
        for part in message.parts:
            if isinstance(message, ModelResponse):
                if isinstance(part, ToolCallPart):
                    calls[part.tool_call_id] = part
            elif isinstance(part, UserPromptPart):
                prompts.append(part.content if isinstance(part.content, str) else _texts(part.content))
                answers = []
            elif isinstance(part, ToolReturnPart | RetryPromptPart) and part.tool_call_id in calls:
                call = calls[part.tool_call_id]
                failed = isinstance(part, RetryPromptPart) or part.outcome != "success"
                content = part.model_response() if isinstance(part, RetryPromptPart) else part.content
                answers.append(Answered(call.tool_name, call.args_as_dict(), content, failed))
    return Heard(prompts[-1] if prompts else "", prompts[:-1], answers)


def _texts(content: Sequence[Any]) -> str:
    return " ".join(item if isinstance(item, str) else getattr(item, "content", "") or "" for item in content)
