"""The tool calls of one step: logged before they begin, begun at once, all awaited, each settled once.

A call is known by the position of its assistant message and its id, because ids come again in later turns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from helix_sessions.content import documents
from helix_sessions.exceptions import Fenced, InvalidInput
from helix_sessions.runtime.agents import approval_tools_of, client_tools_of, tools_of
from helix_sessions.runtime.answers import tool_message, words
from helix_sessions.runtime.loop.drivers import IO
from helix_sessions.runtime.loop.stops import Stop, Stopped
from helix_sessions.runtime.turn_context import TurnContext, settling
from helix_sessions.store import SessionStore
from helix_sessions.transcripts import calls_in
from helix_sessions.types import PendingCall, ToolResult
from helix_sessions.writes import parse_writes

INTERRUPTED = "The tool was stopped, because the session was interrupted."
NOT_EXECUTED = "The tool was not executed, because the activity ended."


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The calls of an assistant message, by who answers them."""

    own: list[dict[str, Any]]
    """For the runner to execute."""
    pending: list[PendingCall]
    """For a client or a person."""


def asked(agent: Any, message: Any) -> Asked:
    """What a message asks for; the same id twice is one call."""
    own: dict[str, dict[str, Any]] = {}
    pending: dict[str, PendingCall] = {}
    for call in calls_in(message):
        call_id, name = call["id"], call["name"]
        approval = name in approval_tools_of(agent)
        if call_id in own or call_id in pending:
            continue
        if approval or name in client_tools_of(agent):
            pending[call_id] = PendingCall(
                tool_call_id=call_id,
                tool_name=name,
                arguments=call["arguments"],
                kind="approval" if approval else "client_tool",
            )
        else:
            own[call_id] = call
    return Asked(own=list(own.values()), pending=list(pending.values()))


class ToolCalls:
    """The calls of one step, which the runner executes."""

    def __init__(
        self, store: SessionStore, agent: Any, turn: TurnContext, *, step_id: str, position: int
    ) -> None:
        self._store = store
        self._agent = agent
        self._turn = turn
        self._step_id = step_id
        self._position = position

    async def execute(self, io: IO, calls: Sequence[dict[str, Any]], stop: Stop) -> list[dict[str, Any]]:
        """The tool messages of all calls, in the order of the calls."""
        if not calls:
            return []
        await io.db(self._log_calls, calls)

        def settle(number: int, result: Any) -> dict[str, Any]:
            return self._settle(calls[number], result)

        return await io.ask_all([self._tool(call) for call in calls], stop, settle)

    def _tool(self, call: dict[str, Any]) -> Callable[[], Any]:
        tool = tools_of(self._agent).get(call["name"])
        if tool is None:
            return partial(_unknown, call["name"])
        return settling(tool, call["arguments"], self._turn, turn=self._turn)

    def _log_calls(self, calls: Sequence[dict[str, Any]]) -> None:
        for call in calls:
            self._log("tool_called", call, {"arguments": call["arguments"]}, key=f"{self._key(call)}:called")

    def _settle(self, call: dict[str, Any], result: Any) -> dict[str, Any]:
        """Log how a call ended, with its writes staged before: what is logged survives this process."""
        if isinstance(result, Fenced):
            raise result
        try:
            if isinstance(result, Exception):
                raise result
            value = result if isinstance(result, ToolResult) else ToolResult(result)
            writes = parse_writes(value.writes)
            documents.dump([value.content, writes])
        except Exception as error:
            said = INTERRUPTED if isinstance(error, Stopped) else words(error)
            self._log("tool_error", call, {"error": said}, key=f"{self._key(call)}:settled")
            return tool_message(call, said, is_error=True)
        if writes:
            self._store.stage_changes(self._turn.session_id, self._step_id, call["id"], writes)
        self._log("tool_responded", call, {"result": value.content}, key=f"{self._key(call)}:settled")
        return tool_message(call, value.content)

    def _log(self, kind: str, call: dict[str, Any], data: dict[str, Any], *, key: str) -> None:
        self._store.emit_event(
            self._turn.session_id,
            kind,
            {"tool_call_id": call["id"], "tool_name": call["name"], **data},
            turn_id=self._turn.turn_id,
            idempotency_key=key,
        )

    def _key(self, call: dict[str, Any]) -> str:
        return f"tool:{self._position}:{documents.digest(call['id'])}"


def refused(calls: Sequence[dict[str, Any]], why: str) -> list[dict[str, Any]]:
    """Tool messages for calls that are not executed."""
    return [tool_message(call, why, is_error=True) for call in calls]


def _unknown(name: str) -> Any:
    raise InvalidInput(f"There is no tool {name!r}.")
