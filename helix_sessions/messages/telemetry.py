"""Messages, models and usage in the words of OpenTelemetry's semantic conventions for generative AI."""

import json
from collections.abc import Iterable
from typing import Any

from helix_sessions.messages.reasoning import without_reasoning
from helix_sessions.messages.tool_ledger import calls_in, results_in
from helix_sessions.messages.usage import usage_of

UNKNOWN = "unknown"

_PROVIDERS = {
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "grok": "x_ai",
    "groq": "groq",
    "mistral": "mistral_ai",
    "openai": "openai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "perplexity": "perplexity",
    "vertex_ai": "gcp.vertex_ai",
    "xai": "x_ai",
}
"""Providers by the prefix that frameworks write before the name of a model."""

_FAMILIES = (
    *(("gpt-", "openai"), ("o1", "openai"), ("o3", "openai"), ("o4", "openai"), ("claude", "anthropic")),
    *(("gemini", "gcp.gemini"), ("mistral", "mistral_ai"), ("deepseek", "deepseek"), ("grok", "x_ai")),
    ("command-", "cohere"),
)
"""Providers by how the names of their models begin."""

_MORE_TOKENS = {
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}


def model_and_provider(model: str | None) -> tuple[str | None, str]:
    """The name of a model without its prefix, and who provides it: `openai:gpt-5` is `gpt-5` of `openai`."""
    if not isinstance(model, str) or not model:
        return None, UNKNOWN
    prefix, separator, name = model.partition(":" if ":" in model else "/")
    if separator and name and prefix.lower() in _PROVIDERS:
        return name, _PROVIDERS[prefix.lower()]
    family = next((provider for begin, provider in _FAMILIES if model.lower().startswith(begin)), UNKNOWN)
    return model, family


def token_counts(usage: Any) -> dict[str, int]:
    """What a report of usage says, by the names of attributes."""
    if not isinstance(usage, dict):
        return {}
    used = usage_of(usage)
    found = {
        "gen_ai.usage.input_tokens": round(used.input_tokens),
        "gen_ai.usage.output_tokens": round(used.output_tokens),
    }
    for name, attribute in _MORE_TOKENS.items():
        value = usage.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value:
            found[attribute] = value
    return found


def semantic_message(message: Any) -> dict[str, Any]:
    """A message with its role and parts, without native reasoning."""
    if not isinstance(message, dict):
        return {"role": "assistant", "parts": [] if message is None else [_text(message)]}
    said = without_reasoning(message) or {}
    parts: list[dict[str, Any]] = []
    results = results_in(said)
    if results and message.get("role") == "tool":
        parts += [{"type": "tool_call_response", "id": results[0], "response": said.get("content")}]
    else:
        parts += _parts(said.get("content"))
    parts += [
        {"type": "tool_call", "id": call["id"], "name": call["name"], "arguments": call["arguments"]}
        for call in calls_in(said)
    ]
    return {"role": message.get("role", "assistant"), "parts": parts}


def as_attribute(value: Any) -> str:
    """A value as the text of an attribute."""
    if isinstance(value, str):
        return value
    listed = list(value) if isinstance(value, Iterable) and not isinstance(value, dict) else value
    return json.dumps(listed, ensure_ascii=False, separators=(",", ":"), default=repr)


def _parts(content: Any) -> list[dict[str, Any]]:
    if content in (None, "", []):
        return []
    if not isinstance(content, list):
        return [_text(content)]
    return [part for block in content for part in _part(block)]


def _part(block: Any) -> list[dict[str, Any]]:
    if not isinstance(block, dict):
        return [_text(block)]
    if block.get("type") == "tool_use":
        return []  # told as a call
    if block.get("type") == "tool_result":
        return [
            {
                "type": "tool_call_response",
                "id": block.get("tool_use_id"),
                "response": block.get("content"),
            }
        ]
    return [_text(block["text"]) if isinstance(block.get("text"), str) else block]


def _text(value: Any) -> dict[str, Any]:
    return {"type": "text", "content": as_attribute(value)}
