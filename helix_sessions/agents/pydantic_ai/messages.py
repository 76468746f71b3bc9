"""Messages of the transcript and of pydantic-ai, each as the other has it.

A message of the transcript has the shape of every agent's: a role, `content`, `tool_calls`. Beside them
`message` has what pydantic-ai wrote, so that every part comes back to it exactly. The content of a tool's
result stands once, as `content`, because it may be cut, pruned or kept elsewhere.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RunUsage

from helix_sessions.exceptions import FrameworkMismatch
from helix_sessions.integrations import forms
from helix_sessions.messages.tool_ledger import calls_in, tool_message
from helix_sessions.messages.tool_outputs import as_text

OUTPUT_RETRIES = "output_retries"
"""In an assistant's message: how often the run has asked for another output so far."""

RETRIES_EXCEEDED = "retries_exceeded"
"""In pydantic-ai's form of a result: why the run fails now, its tool having failed too often."""

_FILE_KINDS = {"image": "image-url", "audio": "audio-url", "video": "video-url"}


def history(messages: Sequence[Mapping[str, Any]]) -> list[ModelMessage]:
    """What pydantic-ai makes of messages of the transcript."""
    return ModelMessagesTypeAdapter.validate_python([model_message(message) for message in messages])


def model_message(message: Mapping[str, Any]) -> Any:
    """One message as pydantic-ai has it, or as its JSON."""
    role, native = message["role"], message.get("message")
    if isinstance(native, dict) and "parts" in native:
        return _with_content(native, message) if role == "tool" and "content" in message else native
    found = forms.framework_of(message)
    if found is not None:
        shared = forms.shared(message)
        if shared is None:
            raise FrameworkMismatch(f"pydantic-ai cannot read messages of {forms.NAMES[found]}.")
        message = shared
    content = message.get("content")
    if role == "assistant":
        return ModelResponse(parts=[*_texts(content), *_calls(message)])
    if role == "tool":
        part = ToolReturnPart(
            tool_name=message.get("tool_name") or "",
            content=content,
            tool_call_id=message.get("tool_call_id") or "",
        )
        if message.get("is_error"):
            part.outcome = "failed"
        return ModelRequest(parts=[part])
    if role == "system":
        return ModelRequest(parts=[SystemPromptPart(as_text(content))])
    if isinstance(content, list):
        parts = [{"part_kind": "user-prompt", "content": [_user_content(item) for item in content]}]
        return {"kind": "request", "parts": parts}
    return ModelRequest(parts=[UserPromptPart(as_text(content))])


def assistant_message(response: ModelResponse) -> dict[str, Any]:
    """What a model said, for the transcript."""
    calls = [
        {"id": part.tool_call_id, "name": part.tool_name, "arguments": _arguments(part.args)}
        for part in response.parts
        if isinstance(part, ToolCallPart)
    ]
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = calls
    return {**message, "message": _dumped(response)}


def replies(parts: Sequence[Any], response: ModelResponse) -> list[dict[str, Any]]:
    """What pydantic-ai answers to a response by itself: a tool message for each call that it settled, and
    the rest for the model."""
    calls = {part.tool_call_id: part for part in response.parts if isinstance(part, ToolCallPart)}
    settled: dict[str, list[Any]] = {}
    rest = []
    for part in parts:
        call_id = getattr(part, "tool_call_id", None)
        if call_id in calls and getattr(part, "tool_name", call_id) is not None:
            settled.setdefault(str(call_id), []).append(part)
        else:
            rest.append(part)
    found = [
        {
            **tool_message({"id": call_id, "name": calls[call_id].tool_name}, content, is_error=is_error),
            "message": native,
        }
        for call_id, own in settled.items()
        for content, is_error, native in [tool_result(own)]
    ]
    if rest:
        text = "\n\n".join(map(part_text, rest))
        found.append({"role": "user", "content": text, "message": _dumped(ModelRequest(parts=rest))})
    return found


def tool_result(parts: Sequence[Any]) -> tuple[Any, bool, dict[str, Any]]:
    """The content of the result that these parts are, whether it is an error, and the rest of it."""
    native = _dumped(ModelRequest(parts=list(parts)))
    first, part = parts[0], native["parts"][0]
    if part["part_kind"] == "retry-prompt":
        return part_text(first), True, native
    return part.pop("content"), part.get("outcome", "success") != "success", native


def part_text(part: Any) -> str:
    """What a part says, for those who read along."""
    says = getattr(part, "model_response", None)
    if callable(says):
        return str(says())
    content = getattr(part, "content", "")
    return content if isinstance(content, str) else as_text(_jsonable(content))


def run_usage(messages: Sequence[ModelMessage], run_id: str) -> RunUsage:
    """What a run has used so far, as its responses say."""
    usage = RunUsage()
    for message in messages:
        if isinstance(message, ModelResponse) and message.run_id == run_id:
            usage.incr(message.usage)
            usage.requests += 1
    return usage


def output_retries(messages: Sequence[Mapping[str, Any]], run_id: str) -> int:
    """How often the run has asked for another output so far."""
    for message in reversed(messages):
        native = message.get("message")
        if message["role"] == "assistant" and isinstance(native, dict):
            return int(message.get(OUTPUT_RETRIES, 0)) if native.get("run_id") == run_id else 0
    return 0


def tool_retries(messages: Sequence[Mapping[str, Any]], run_id: str) -> dict[str, int]:
    """How often the run has asked for another call of each tool, since the tool succeeded last."""
    counts: dict[str, int] = {}
    for step in _steps(messages, run_id):
        results = [part for part in map(_first_part, step) if part]
        failed = {part["tool_name"] for part in results if _asks_again(part)}
        for name in {part["tool_name"] for part in results} - failed:
            counts.pop(name, None)
        for name in failed:
            counts[name] = counts.get(name, 0) + 1
    return counts


def retries_exceeded(messages: Sequence[Mapping[str, Any]], run_id: str) -> str | None:
    """Why the run fails now; `None`: it does not."""
    *_, last = [(), *_steps(messages, run_id)]
    found = (dict(message.get("message") or {}).get(RETRIES_EXCEEDED) for message in last)
    return next((str(text) for text in found if text), None)


def exceeded(call: ToolCallPart, error: Exception) -> tuple[str, dict[str, Any]]:
    """The result of a call whose tool may not ask for another one any more."""
    text = str(error.__cause__ or error)
    part = ToolReturnPart(tool_name=call.tool_name, content=text, tool_call_id=call.tool_call_id)
    part.outcome = "failed"
    native = _dumped(ModelRequest(parts=[part]))
    del native["parts"][0]["content"]
    return text, {**native, RETRIES_EXCEEDED: str(error)}


def enqueued_parts(enqueued: Sequence[Any]) -> list[Any]:
    """What a tool has put into the conversation, which goes with its result."""
    said = [message for pending in enqueued for message in pending.messages]
    return [part for message in said if isinstance(message, ModelRequest) for part in message.parts]


def _steps(messages: Sequence[Mapping[str, Any]], run_id: str) -> list[list[Mapping[str, Any]]]:
    """The tool messages after each answer of the run."""
    found: list[list[Mapping[str, Any]]] = []
    step: list[Mapping[str, Any]] | None = None
    for message in messages:
        if message["role"] == "assistant":
            native = message.get("message")
            step = [] if isinstance(native, dict) and native.get("run_id") == run_id else None
            found += [] if step is None else [step]
        elif message["role"] == "tool" and step is not None:
            step.append(message)
    return found


def _first_part(message: Mapping[str, Any]) -> dict[str, Any] | None:
    native = message.get("message")
    parts = native.get("parts") if isinstance(native, dict) else None
    return dict(parts[0]) if parts and parts[0].get("tool_name") else None


def _asks_again(part: Mapping[str, Any]) -> bool:
    """Whether a result asks for another call; newer versions say so of a tool's return."""
    return part.get("part_kind") == "retry-prompt" or part.get("outcome") == "retried"


def prompt_of(prompt: Any) -> Any:
    """A prompt as the inbox takes it: a text, an object, or content that pydantic-ai knows."""
    if isinstance(prompt, str | Mapping):
        return prompt
    return {"content": _dumped(ModelRequest(parts=[UserPromptPart(list(prompt))]))["parts"][0]["content"]}


def _with_content(native: dict[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
    first, *rest = native["parts"]
    if first.get("part_kind") == "retry-prompt":
        return native
    return {**native, "parts": [{**first, "content": message["content"]}, *rest]}


def _dumped(message: ModelMessage) -> dict[str, Any]:
    """Its JSON, without what nothing is said of."""
    (found,) = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    return {**_said(found), "parts": [_said(part) for part in found["parts"]]}


def _said(fields: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in fields.items() if value is not None}
    return {**kept, "content": None} if "content" in fields and "content" not in kept else kept


def _jsonable(content: Any) -> Any:
    (found,) = ModelMessagesTypeAdapter.dump_python(
        [ModelRequest(parts=[ToolReturnPart("", content, "")])], mode="json"
    )
    return found["parts"][0]["content"]


def _arguments(args: Any) -> Any:
    """The arguments of a call; a text that is no JSON stays one."""
    if not isinstance(args, str):
        return {} if args is None else args
    try:
        return json.loads(args) if args else {}
    except ValueError:
        return args


def _texts(content: Any) -> list[TextPart]:
    if isinstance(content, list):
        said = [item.get("text") if isinstance(item, dict) else item for item in content]
        return [TextPart(text) for text in said if isinstance(text, str)]
    return [TextPart(as_text(content))] if content else []


def _calls(message: Mapping[str, Any]) -> list[ToolCallPart]:
    return [
        ToolCallPart(tool_name=call["name"], args=call["arguments"], tool_call_id=call["id"])
        for call in calls_in(message)
    ]


def _user_content(item: Any) -> Any:
    """One piece of a user's message: a text, what pydantic-ai dumped, or a block of a chat API."""
    if not isinstance(item, dict):
        return as_text(item)
    if "kind" in item:
        return item
    if isinstance(item.get("text"), str):
        return item["text"]
    image = item.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image or item.get("url")
    if not isinstance(url, str):
        return as_text(item)
    media_type = str(item.get("mediaType") or item.get("media_type") or ("image/*" if image else ""))
    if url.startswith("data:"):
        head, _, data = url[5:].partition(",")
        return {"kind": "binary", "data": data, "media_type": head.partition(";")[0] or media_type}
    return {"kind": _FILE_KINDS.get(media_type.partition("/")[0], "document-url"), "url": url}
