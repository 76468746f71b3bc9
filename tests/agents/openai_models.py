"""A model of the OpenAI Agents SDK that says what it is told to, and agents that settings name."""

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agents import Agent, ModelResponse, Usage, function_tool, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from helix_sessions.agents import current_turn

set_tracing_disabled(True)


def text(said: str) -> ResponseOutputMessage:
    piece = ResponseOutputText(type="output_text", text=said, annotations=[])
    return ResponseOutputMessage(
        id="m", type="message", role="assistant", status="completed", content=[piece]
    )


def call(name: str, call_id: str = "call-1", arguments: str = "{}") -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(type="function_call", call_id=call_id, name=name, arguments=arguments)


class Script(Model):
    """Each request is answered by the next line: items, an exception, or a function of the input."""

    def __init__(self, *lines: Any, streams: bool = False) -> None:
        self.lines = list(lines)
        self.streams = streams
        self.inputs: list[Any] = []
        self.instructions: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        self.inputs.append(input)
        self.instructions.append(system_instructions)
        line = self.lines.pop(0)
        if callable(line):
            line = line(input)
        if isinstance(line, Exception):
            raise line
        used = Usage(requests=1, input_tokens=10, output_tokens=3, total_tokens=13)
        return ModelResponse(output=list(line), usage=used, response_id=None)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        if not self.streams:
            raise NotImplementedError
        found = await self.get_response(args[0], args[1])
        number = 0
        for item in found.output:
            for piece in getattr(item, "content", []):
                for word in piece.text.split(" "):
                    number += 1
                    yield ResponseTextDeltaEvent(
                        type="response.output_text.delta",
                        content_index=0,
                        output_index=0,
                        item_id="m",
                        delta=f"{word} ",
                        sequence_number=number,
                        logprobs=[],
                    )
        response = Response(
            id="r",
            created_at=0,
            model="m",
            object="response",
            output=found.output,
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=number + 1)


def note(line: str) -> None:
    with Path(current_turn().state.user_id or "").open("a") as file:
        file.write(f"{line}\n")


class ClerkModel(Script):
    """Calls both tools for a prompt, then says what they returned."""

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = [item["output"] for item in input if item.get("type") == "function_call_output"]
        if outputs:
            self.lines = [[text(" and ".join(outputs))]]
        else:
            note(f"asked {os.getpid()}")
            self.lines = [[call("look", "c-look"), call("refund", "c-refund", '{"order": 7}')]]
        return await super().get_response(system_instructions, input)


@function_tool
def look() -> str:
    """Look."""
    note("looked")
    deadline = time.monotonic() + 60
    path = f"{current_turn().state.user_id}.go"
    while "hang" in str(current_turn().context.messages[0]) and not Path(path).exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return "seen"


@function_tool(needs_approval=True)
def refund(order: int) -> str:
    """Refund an order."""
    note(f"refunded {order}")
    return f"refunded {order}"


clerk = Agent(name="sdk-clerk", model=ClerkModel(), tools=[look, refund])
