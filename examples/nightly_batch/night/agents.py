"""An agent with a typed answer. Without OPENAI_API_KEY a script stands in; its provider is busy at times."""

import os
from typing import Literal

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models.function import FunctionModel


class Verdict(BaseModel):
    category: Literal["refund", "delivery", "praise"]
    urgent: bool


_refused = set()


def script(messages, info):
    text = messages[-1].parts[-1].content
    if "7" in text and text not in _refused:
        _refused.add(text)
        raise ModelHTTPError(429, "script", {"error": "slow down"})
    category = "delivery" if "parcel" in text else "refund" if "broken" in text else "praise"
    answer = {"category": category, "urgent": category == "refund"}
    return ModelResponse([ToolCallPart(info.output_tools[0].name, answer)])


classifier = Agent(
    "openai:gpt-5-nano" if os.environ.get("OPENAI_API_KEY") else FunctionModel(script),
    name="classifier",
    instructions="Classify the letter of a customer.",
    output_type=Verdict,
)
