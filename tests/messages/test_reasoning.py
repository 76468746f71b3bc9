"""Native reasoning stays with the model that made it."""

import json
from typing import Any

from helix_sessions.messages.reasoning import for_model, without_reasoning

SIGNED = "c2lnbmF0dXJl"
"""Stands for a signature or an encrypted thought."""

CALL = {"id": "1", "name": "pay", "arguments": {"signature": "Ada", "thinking": "kept"}}
PYDANTIC = {"kind": "response", "model_name": "m"}


def text(kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": "said"}


MESSAGES: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "Anthropic, thinking": (
        {
            "content": [
                {"type": "thinking", "thinking": "secret", "signature": SIGNED},
                {"type": "redacted_thinking", "data": SIGNED},
                text(),
                {"type": "tool_use", "id": "1", "name": "pay", "input": {"signature": "Ada"}},
            ]
        },
        {
            "content": [
                text(),
                {"type": "tool_use", "id": "1", "name": "pay", "input": {"signature": "Ada"}},
            ]
        },
    ),
    "Anthropic, only thinking": (
        {"content": [{"type": "thinking", "thinking": "secret", "signature": SIGNED}]},
        None,
    ),
    "Anthropic, encrypted search results": (
        {
            "content": [
                {"type": "web_search_tool_result", "content": [{"url": "u", "encrypted_content": SIGNED}]}
            ]
        },
        {"content": [{"type": "web_search_tool_result", "content": [{"url": "u"}]}]},
    ),
    "OpenAI, reasoning item": (
        {
            "item": {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "secret"}],
                "encrypted_content": SIGNED,
            }
        },
        None,
    ),
    "OpenAI, call after reasoning": (
        {
            "tool_name": "pay",
            "item": {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "1",
                "arguments": '{"thinking": "kept"}',
            },
        },
        {
            "tool_name": "pay",
            "item": {"type": "function_call", "call_id": "1", "arguments": '{"thinking": "kept"}'},
        },
    ),
    "OpenAI, blocks": (
        {"content": [{"type": "reasoning", "encrypted_content": SIGNED}, text("output_text")]},
        {"content": [text("output_text")]},
    ),
    "OpenAI, compaction": ({"item": {"type": "compaction", "encrypted_content": SIGNED}}, None),
    "pydantic-ai": (
        {
            "message": {
                **PYDANTIC,
                "parts": [
                    {"part_kind": "thinking", "content": "secret", "signature": SIGNED, "provider_name": "a"},
                    {
                        "part_kind": "tool-call",
                        "tool_name": "pay",
                        "args": CALL["arguments"],
                        "provider_details": {"thought_signature": SIGNED},
                    },
                    {"part_kind": "text", "content": "said", "provider_details": None},
                ],
            }
        },
        {
            "message": {
                **PYDANTIC,
                "parts": [
                    {"part_kind": "tool-call", "tool_name": "pay", "args": CALL["arguments"]},
                    {"part_kind": "text", "content": "said", "provider_details": None},
                ],
            }
        },
    ),
    "pydantic-ai, only thinking": (
        {"message": {**PYDANTIC, "parts": [{"part_kind": "thinking", "content": "secret"}]}},
        None,
    ),
    "Gemini": (
        {
            "parts": [
                {"text": "secret", "thought": True},
                {"functionCall": {"name": "pay", "args": {"signature": "Ada"}}, "thoughtSignature": SIGNED},
            ]
        },
        {"parts": [{"functionCall": {"name": "pay", "args": {"signature": "Ada"}}}]},
    ),
    "Gemini in the ADK": (
        {
            "event": {
                "author": "a",
                "content": {
                    "parts": [
                        {"text": "secret", "thought": True},
                        {"text": "said", "thought_signature": SIGNED},
                    ]
                },
            }
        },
        {"event": {"author": "a", "content": {"parts": [{"text": "said"}]}}},
    ),
    "Gemini through the chat format": (
        {"content": "", "tool_calls": [{**CALL, "extra_content": {"google": {"thought_signature": SIGNED}}}]},
        {"content": "", "tool_calls": [CALL]},
    ),
    "LangChain": (
        {
            "content": "said",
            "lc": {"type": "ai", "additional_kwargs": {"reasoning_content": "secret", "refusal": None}},
        },
        {"content": "said", "lc": {"type": "ai", "additional_kwargs": {"refusal": None}}},
    ),
    "DeepSeek, OpenRouter, Ollama": (
        {
            "content": "said",
            "reasoning_content": "secret",
            "reasoning": "secret",
            "reasoning_details": [{"type": "reasoning.encrypted", "data": SIGNED}],
            "thinking": "secret",
        },
        {"content": "said"},
    ),
    "Bedrock": (
        {
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "secret", "signature": SIGNED}}},
                {"text": "said"},
            ]
        },
        {"content": [{"text": "said"}]},
    ),
    "AI SDK": (
        {
            "content": [
                {
                    "type": "reasoning",
                    "text": "secret",
                    "providerOptions": {"anthropic": {"signature": SIGNED}},
                },
                text(),
            ]
        },
        {"content": [text()]},
    ),
}


def test_another_model_gets_the_rest() -> None:
    for name, (given, kept) in MESSAGES.items():
        message = {"role": "assistant", **given, "model": "one"}
        wanted = [] if kept is None else [{"role": "assistant", **kept, "model": "one"}]
        assert for_model([message], "two") == wanted, name
        seen = json.dumps(for_model([message], "two"))
        assert SIGNED not in seen, name
        assert "secret" not in seen, name


def test_its_own_model_gets_all() -> None:
    for name, (given, _) in MESSAGES.items():
        message = {"role": "assistant", **given, "model": "one"}
        assert for_model([message], "one")[0] is message, name


def test_a_message_without_a_model_belongs_to_none() -> None:
    for name, (given, kept) in MESSAGES.items():
        message = {"role": "assistant", **given}
        wanted = [] if kept is None else [{"role": "assistant", **kept}]
        assert for_model([message], "one") == wanted, name
        assert for_model([message], None) == [message], name


def test_what_has_no_reasoning_is_the_same_object() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "thinking", "thinking": "a user's own"}], "signature": "Ada"},
        {"role": "tool", "tool_call_id": "1", "content": {"signature": "Ada", "reasoning": "kept"}},
        {"role": "system", "content": "reasoning"},
        {"role": "assistant", "content": "said", "tool_calls": [CALL]},
        {"role": "assistant", "content": {"type": "reasoning", "thinking": "a structured answer"}},
        {"role": "assistant", "content": ""},
        {"role": "assistant"},
        {
            "role": "assistant",
            "content": [text()],
            "usage": {"reasoning_tokens": 5},
            "metadata": {"signature": 1},
        },
    ]
    for message in messages:
        assert without_reasoning(message) is message, message
