"""An editor that splits a question, and readers for the parts. Without OPENAI_API_KEY scripts stand in."""

import os
import time

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from helix_sessions.agents import durable

TOPICS = ("market", "rules", "technology")


def edit(messages, info):
    if messages[-1].parts[-1].part_kind == "user-prompt":
        question = messages[-1].parts[-1].content
        return ModelResponse([ToolCallPart("read", {"prompt": f"{topic}: {question}"}) for topic in TOPICS])
    findings = [part.content for part in messages[-1].parts if part.part_kind == "tool-return"]
    return ModelResponse([TextPart("\n".join(f"- {finding}" for finding in findings))])


def answer(messages, info):
    last = messages[-1].parts[-1]
    if last.part_kind == "user-prompt":
        return ModelResponse([ToolCallPart("search", {"query": last.content})])
    return ModelResponse([TextPart(f"{last.content}")])


def model(script):
    return "openai:gpt-5-mini" if os.environ.get("OPENAI_API_KEY") else FunctionModel(script)


reader = Agent(model(answer), name="reader", instructions="Search, then answer in one sentence.")


@reader.tool_plain
def search(query: str) -> str:
    """Search the library."""
    time.sleep(0.2)
    return f"What the library says about {query}"


editor = durable(
    Agent(
        model(edit),
        name="editor",
        instructions="Split the question into parts, ask `read` once for each in one step, then sum up.",
    ),
    subagents={"read": "reader"},
)
