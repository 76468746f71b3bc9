"""A pydantic-ai model behind a runner, end to end, with its offline test model."""

import json
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai.direct import model_request
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import ToolDefinition

from helix_sessions.runtime import SessionRunner, TurnContext, TurnOutcome
from helix_sessions.store import SessionStore
from tests.runner.test_activities import run_of, whole

pytestmark = pytest.mark.django_db(transaction=True)


class PydanticAgent:
    """One model request each turn; the runner executes the tools and keeps the conversation."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.tools = {"weather": self.weather}
        self.client_tools: tuple[str, ...] = ()
        self.approval_tools: tuple[str, ...] = ()
        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        self.parameters = ModelRequestParameters(
            function_tools=[ToolDefinition(name="weather", parameters_json_schema=schema)],
            allow_text_output=True,
        )

    async def weather(self, arguments: dict[str, Any], turn: TurnContext) -> dict[str, Any]:
        return {"city": arguments["city"], "sky": "clear"}

    async def run_turn(self, turn: TurnContext) -> TurnOutcome:
        messages = [self.read(message) for message in turn.context.messages]
        response = await model_request(self.model, messages, model_request_parameters=self.parameters)
        usage = {"input_tokens": response.usage.input_tokens, "output_tokens": response.usage.output_tokens}
        return TurnOutcome(self.write(response), usage=usage, output=response.text)

    def read(self, message: dict[str, Any]) -> ModelMessage:
        if message["role"] == "user":
            return ModelRequest(parts=[UserPromptPart(content=message["content"])])
        if message["role"] == "tool":
            name, call_id = message["tool_name"], message["tool_call_id"]
            part = ToolReturnPart(tool_name=name, content=message["content"], tool_call_id=call_id)
            return ModelRequest(parts=[part])
        calls = [
            ToolCallPart(tool_name=call["name"], args=call["arguments"], tool_call_id=call["id"])
            for call in message.get("tool_calls", [])
        ]
        text = [TextPart(content=message["content"])] if message["content"] else []
        return ModelResponse(parts=[*text, *calls])

    def write(self, response: ModelResponse) -> dict[str, Any]:
        calls = [
            {"id": call.tool_call_id, "name": call.tool_name, "arguments": call.args_as_dict()}
            for call in response.tool_calls
        ]
        message = {"role": "assistant", "content": response.text or ""}
        return {**message, "tool_calls": calls} if calls else message


def test_a_conversation_with_a_tool(store: SessionStore) -> None:
    store.ensure_session("s", agent_type="weather")
    store.admit_input("s", "What is the weather?")
    outcome = SessionRunner(PydanticAgent(TestModel(seed=1))).wake("s")
    assert outcome.kind == "completed", outcome.error
    messages = store.get_messages("s").messages
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[2]["content"]["sky"] == "clear"
    assert "clear" in messages[3]["content"]
    assert outcome.output == messages[3]["content"]
    assert run_of(outcome).usage["input_tokens"] > 0
    json.dumps(messages)
    whole(store, "s")
