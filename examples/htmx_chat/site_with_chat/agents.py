"""The agent. Without OPENAI_API_KEY a script stands in for the model."""

import asyncio
import os

from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel


async def script(messages, info):
    asked = [part.content for part in messages[-1].parts if part.part_kind == "user-prompt"]
    for word in f"You asked: {' '.join(asked)} I would take the ferry, and stay for a week.".split(" "):
        yield f"{word} "
        await asyncio.sleep(0.02)


guide = Agent(
    "openai:gpt-5-mini" if os.environ.get("OPENAI_API_KEY") else FunctionModel(stream_function=script),
    name="guide",
    instructions="You are a travel guide. Be brief.",
)
