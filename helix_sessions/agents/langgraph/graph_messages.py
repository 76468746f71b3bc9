"""Messages of the transcript as LangChain's, and the answers of a graph as messages of the transcript."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic_core import to_jsonable_python

from helix_sessions.content import documents
from helix_sessions.exceptions import FrameworkMismatch
from helix_sessions.integrations import forms
from helix_sessions.messages.tool_ledger import STOPPED, calls_in, tool_message
from helix_sessions.messages.tool_outputs import as_text

NOT_EXECUTED = "The graph has not executed this call."


def of_transcript(said: Iterable[Mapping[str, Any]], *, session_id: str) -> list[AnyMessage]:
    """Messages for a graph's `messages`. Each has an id that stays the same, so that the graph has it once
    even if it is given twice."""
    return [_message(session_id, number, each) for number, each in enumerate(said)]


def _message(session_id: str, number: int, said: Mapping[str, Any]) -> AnyMessage:
    given, found = said.get("id"), forms.framework_of(said)
    if found is not None:
        shared = forms.shared(said)
        if shared is None:
            raise FrameworkMismatch(f"A graph cannot read messages of {forms.NAMES[found]}.")
        said = shared
    own = given if isinstance(given, str) and given else None
    message_id = own or documents.digest(session_id, str(number), documents.dump(dict(said)))[:32]
    content, role = _content(said.get("content")), said["role"]
    if role == "user":
        return HumanMessage(content, id=message_id)
    if role == "system":
        return SystemMessage(content, id=message_id)
    if role == "tool":
        status = "error" if said.get("is_error") else "success"
        return ToolMessage(
            content,
            id=message_id,
            tool_call_id=str(said.get("tool_call_id")),
            name=said.get("tool_name"),
            status=status,
        )
    calls = [
        {"id": call["id"], "name": call["name"], "args": _object(call["arguments"]), "type": "tool_call"}
        for call in calls_in(said)
    ]
    return AIMessage(content, id=message_id, tool_calls=calls)


def _content(content: Any) -> Any:
    if content is None:
        return ""
    if isinstance(content, list) and all(isinstance(part, str | dict) for part in content):
        return content
    return content if isinstance(content, str) else as_text(content)


def _object(arguments: Any) -> dict[str, Any]:
    return arguments if isinstance(arguments, dict) else {"value": arguments}


def stopped_calls(messages: Sequence[Any]) -> list[AnyMessage]:
    """Results for the calls of the last answer that a stop left open."""
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    last = next((each for each in reversed(messages) if isinstance(each, AIMessage)), None)
    return [
        ToolMessage(STOPPED, id=f"{call['id']}-stopped", tool_call_id=str(call["id"]), status="error")
        for call in (last.tool_calls if last else ())
        if call["id"] not in answered
    ]


@dataclass(frozen=True, slots=True)
class Group:
    """One answer of a model in a graph's messages, with the results of its calls."""

    answer: AIMessage
    results: tuple[ToolMessage, ...]
    end: int
    """How many of the graph's messages there are up to its last."""
    complete: bool
    """Every call has its result."""

    @property
    def last(self) -> Any:
        return self.results[-1] if self.results else self.answer

    def message(self, *, with_text: bool) -> dict[str, Any]:
        """It, as the transcript has it."""
        answer = self.answer
        message: dict[str, Any] = {"role": "assistant", "content": text_of(answer) if with_text else ""}
        if answer.tool_calls:
            message["tool_calls"] = [_call(call) for call in answer.tool_calls]
        name = answer.response_metadata.get("model_name")
        return {**message, "model": name} if isinstance(name, str) and name else message

    def replies(self) -> list[dict[str, Any]]:
        """The results of its calls, each once."""
        found = {result.tool_call_id: result for result in self.results}
        replies = []
        for call in map(_call, self.answer.tool_calls):
            result = found.get(call["id"])
            content = NOT_EXECUTED if result is None else to_jsonable_python(result.content, fallback=str)
            is_error = result is None or result.status == "error"
            replies.append(tool_message(call, content, is_error=is_error))
        return replies


def _call(call: Any) -> dict[str, Any]:
    arguments = to_jsonable_python(call["args"], fallback=str)
    return {"id": str(call["id"]), "name": call["name"], "arguments": arguments}


def text_of(message: Any) -> str:
    """The text of a message, without its reasoning and calls."""
    text = message.text
    return str(text() if not isinstance(text, str) and callable(text) else text)


def next_group(messages: Sequence[Any], start: int) -> Group | None:
    """The first answer from a place on, with the results that follow it."""
    first = next(
        (number for number in range(start, len(messages)) if isinstance(messages[number], AIMessage)), None
    )
    if first is None:
        return None
    end = first + 1
    while end < len(messages) and isinstance(messages[end], ToolMessage):
        end += 1
    answer, results = messages[first], tuple(messages[first + 1 : end])
    missing = {call["id"] for call in answer.tool_calls} - {result.tool_call_id for result in results}
    complete = not missing or end < len(messages)  # the graph has gone on without them
    return Group(answer, results, end, complete)
