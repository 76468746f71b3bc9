"""`interrupt()`: what a graph asks, as calls that people answer, and their answers as the graph gets them."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_jsonable_python

from helix_sessions.exceptions import InvalidInput
from helix_sessions.messages.tool_ledger import EDITED, calls_in
from helix_sessions.runtime.outcomes import APPROVAL, CLIENT_TOOL
from helix_sessions.runtime.turn_context import TurnContext
from helix_sessions.values import response_schemas

NAME = "interrupt"


class Waits:
    """The interrupts that a graph waits for, as calls."""

    def __init__(self, interrupts: Sequence[Any], place: int) -> None:
        """`place` is where in the transcript they are asked: an interrupt may ask again under its id."""
        self.calls: list[dict[str, Any]] = []
        self.kinds: dict[str, str] = {}
        self.schemas: dict[str, Any] = {}
        self.about: dict[str, Any] = {}
        for found in interrupts:
            value = to_jsonable_python(found.value, fallback=str)
            schema = getattr(found, "response_schema", None)  # since langgraph 1.2
            actions = _actions(value)
            if actions is not None:
                for number, action in enumerate(actions):
                    call_id = f"{found.id}.{place}.{number}"
                    self._add(call_id, action["name"], action.get("args", {}), found.id, APPROVAL)
            elif schema is None:
                self._add(f"{found.id}.{place}", NAME, _object(value), found.id, APPROVAL)
            else:
                self._add(f"{found.id}.{place}", NAME, _object(value), found.id, CLIENT_TOOL)
                self._require(f"{found.id}.{place}", schema)

    def _add(self, call_id: str, name: str, arguments: Any, interrupt: str, kind: str) -> None:
        self.calls.append({"id": call_id, "name": name, "arguments": arguments})
        self.kinds[call_id] = kind
        is_action = name != NAME
        self.about[call_id] = {"id": interrupt, "action": name} if is_action else {"id": interrupt}

    def _require(self, call_id: str, schema: Any) -> None:
        try:
            self.schemas[call_id] = response_schemas.check(schema)
        except InvalidInput:
            return  # the graph itself looks at the answer


def answered(arguments: Any, turn: TurnContext) -> Any:
    """What the call of an interrupt comes to once a person has approved it: `True`, or what they changed."""
    asked = next(
        call["arguments"]
        for message in reversed(turn.context.messages)
        for call in calls_in(message)
        if call["id"] == turn.tool_call_id
    )
    return True if arguments == asked else arguments


def resume_values(waits: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What `Command(resume=…)` is given: the answers, by interrupt."""
    values: dict[str, Any] = {}
    for call_id, about in waits.items():
        message = answers[call_id]
        if "action" in about:
            values.setdefault(about["id"], {"decisions": []})["decisions"].append(_decision(about, message))
        else:
            values[about["id"]] = False if message.get("is_error") else _content(message)
    return values


def _decision(about: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
    """A decision as LangChain's human-in-the-loop middleware reads it."""
    content = _content(message)
    if message.get("is_error"):
        return {"type": "reject", "message": str(content)}
    if content is True:
        return {"type": "approve"}
    return {"type": "edit", "edited_action": {"name": about["action"], "args": content}}


def _content(message: Mapping[str, Any]) -> Any:
    content = message.get("content")
    if isinstance(content, dict) and str(content.get("note", "")).startswith(EDITED):
        return content.get("result")
    return content


def _actions(value: Any) -> list[dict[str, Any]] | None:
    """The calls that LangChain's human-in-the-loop middleware asks about."""
    actions = value.get("action_requests") if isinstance(value, dict) else None
    named = isinstance(actions, list) and all(
        isinstance(action, dict) and isinstance(action.get("name"), str) for action in actions
    )
    return actions if named and actions else None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"value": value}
