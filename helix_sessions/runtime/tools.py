"""The tool calls of one step: sorted by who answers them, begun at once, all awaited, each settled once."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from helix_sessions.conf import conf
from helix_sessions.content import documents
from helix_sessions.exceptions import Fenced, InvalidInput
from helix_sessions.messages.tool_ledger import NOT_EXECUTED, STOPPED, ToolCall, calls_in, tool_message
from helix_sessions.messages.tool_outputs import cut_output
from helix_sessions.runtime import retries, telemetry
from helix_sessions.runtime.agents import Toolbox
from helix_sessions.runtime.loop.io import IO, Call
from helix_sessions.runtime.loop.stops import Stop, Stopped
from helix_sessions.runtime.outcomes import APPROVAL, CLIENT_TOOL, Answer, CallResult, storable, words
from helix_sessions.runtime.turn_context import TurnContext, settling
from helix_sessions.store.calls.tool_rules import decisive
from helix_sessions.store.driving import suspensions
from helix_sessions.store.driving.turn_log import Settled
from helix_sessions.store.engine import inputs
from helix_sessions.types import CallKind, PendingCall, RetryPolicy, Spawn, ToolResult, ToolRule
from helix_sessions.writes import parse_writes

DENIED_BY_RULE = "The tool was not executed: a rule denies it."


@dataclass(slots=True, kw_only=True)
class Asked:
    """The calls of an assistant message, by who answers them."""

    own: list[ToolCall] = field(default_factory=list)
    """For the loop to execute."""
    pending: list[PendingCall] = field(default_factory=list)
    """For a client or a person."""
    spawns: list[tuple[ToolCall, Spawn]] = field(default_factory=list)
    """For a sub-agent."""
    refused: list[tuple[ToolCall, str]] = field(default_factory=list)
    """Refused; each with the reason."""
    order: list[str] = field(default_factory=list)
    rulings: list[dict[str, Any]] = field(default_factory=list)
    """What tool rules decided instead of a person, as the log tells it."""
    approved: set[str] = field(default_factory=set)
    """The calls that a person, a rule or the options of the tool have approved."""
    follow_up: tuple[dict[str, Any], ...] = ()
    """What the model is told after the results."""

    @property
    def open(self) -> bool:
        """Whether calls are left that the agent does not answer itself."""
        return bool(self.own or self.pending or self.spawns or self.refused)

    def denies(self, call_id: str) -> bool:
        """Whether a tool rule denies the call."""
        denied = {"tool_call_id": call_id, "answer": "denied"}
        return any(ruling.items() >= denied.items() for ruling in self.rulings)

    def all(self) -> list[ToolCall]:
        """Every call, in no order."""
        pending: list[ToolCall] = [{"id": call.tool_call_id, "name": call.tool_name} for call in self.pending]
        return [*self.own, *pending, *(call for call, _ in self.spawns), *(call for call, _ in self.refused)]


def asked(toolbox: Toolbox, answer: Answer, rules: Sequence[ToolRule] = ()) -> Asked:
    """What a message asks for; the same id twice is one call. A tool rule goes before what the agent
    declares. What the agent has answered by itself is not asked again."""
    found = Asked(follow_up=answer.follow_up)
    for call in calls_in(answer.message):
        call_id, name = call["id"], call["name"]
        if call_id in found.order:
            continue
        found.order.append(call_id)
        if call_id in answer.results:
            continue
        kind = answer.kinds.get(call_id)
        if len(found.order) > conf.MAX_TOOL_CALLS_PER_TURN:
            why = f"Not executed: a turn may call {conf.MAX_TOOL_CALLS_PER_TURN} tools."
            found.refused.append((call, why))
        elif not inputs.is_identifier(call_id):
            found.refused.append((call, "Not executed: the id of the call cannot be stored."))
        elif _needs_approval(found, toolbox, call, decisive(rules, name, call["arguments"]), kind):
            found.pending.append(pending_call(toolbox, call, APPROVAL))
        elif found.denies(call_id):
            found.refused.append((call, DENIED_BY_RULE))
        elif toolbox.is_clients(name, kind):
            schema = answer.schemas.get(call_id)
            found.pending.append(pending_call(toolbox, call, CLIENT_TOOL, schema=schema))
        else:
            add_executed(found, toolbox, call)
    return found


def add_executed(found: Asked, toolbox: Toolbox, call: ToolCall) -> None:
    """A call that needs no decision, or has one."""
    if toolbox.is_clients(call["name"]):
        found.pending.append(pending_call(toolbox, call, CLIENT_TOOL))
    elif call["name"] in toolbox.subagents:
        _ask_subagent(found, call, toolbox.subagents[call["name"]])
    else:
        found.own.append(call)


def _needs_approval(
    found: Asked, toolbox: Toolbox, call: ToolCall, rule: ToolRule | None, kind: str | None
) -> bool:
    """Whether a person has to decide. A rule that decides instead is noted. Where only the framework says
    that this very call is a client's, no approval is asked for: a person answers it anyway."""
    declared = toolbox.needs_approval(call["name"], kind)
    if rule is None:
        if toolbox.options(call["name"]).approval is False:
            found.approved.add(call["id"])
        return declared
    if rule.decision == "ask":
        name = call["name"]
        return declared or toolbox.is_clients(name) or not toolbox.is_clients(name, kind)
    if rule.decision == "allow":
        found.approved.add(call["id"])
    if rule.decision == "deny" or declared:
        answer = "denied" if rule.decision == "deny" else "approved"
        by = {"kind": "rule", "id": rule.rule_id}
        found.rulings.append({"tool_call_id": call["id"], "answer": answer, "by": by})
    return False


def pending_call(toolbox: Toolbox, call: ToolCall, kind: CallKind, *, schema: Any = None) -> PendingCall:
    """A call that a client or a person answers. `schema`: what its framework says that the answer must fit,
    where the options of the tool say nothing."""
    options = toolbox.options(call["name"])
    return PendingCall(
        tool_call_id=call["id"],
        tool_name=call["name"],
        arguments=call["arguments"],
        kind=kind,
        response_schema=options.response_schema or schema,
        approver="participant" if options.approval == "participant" else "driver",
    )


def _ask_subagent(found: Asked, call: ToolCall, agent_type: str) -> None:
    arguments = call["arguments"]
    prompt = arguments.get("prompt") if isinstance(arguments, Mapping) else None
    if isinstance(prompt, str):
        found.spawns.append((call, Spawn(agent_type, prompt)))
    else:
        found.refused.append((call, 'The arguments of a sub-agent are {"prompt": string}.'))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a call came to: a tool message, or a sub-agent that is to answer."""

    call: ToolCall
    message: dict[str, Any] | None = None
    spawn: Spawn | None = None
    again_in: float | None = None
    """It failed, and is made again after so many seconds."""
    waits: CallKind | None = None
    """It is left to a client or a person: `client_tool` or `approval`."""


class ToolCalls:
    """The calls of one step that the loop executes."""

    def __init__(
        self,
        toolbox: Toolbox,
        turn: TurnContext,
        *,
        key_of: Callable[[ToolCall], str],
        settle: Callable[[Settled], None],
        log_again: Callable[[ToolCall, int, str], None],
        policy: RetryPolicy,
        approved: Collection[str] = (),
        span: telemetry.AgentSpan | None = None,
    ) -> None:
        """`settle` stores how a call ended, `log_again` that it is made again."""
        self._toolbox = toolbox
        self._turn = turn
        self._key_of = key_of
        self._store = settle
        self._log_again = log_again
        self._policy = policy
        self._approved = approved
        self._span = span
        self._tries: dict[str, int] = {}
        self._began: dict[str, float] = {}

    async def execute(self, io: IO, calls: Sequence[ToolCall], stop: Stop) -> list[Result]:
        """What all calls came to, in their order."""
        results: dict[str, Result] = {}
        left = list(calls)
        while left:
            prepared = [self._prepared(call) for call in left]
            settle = partial(self._settle, left, [view for _, view in prepared])
            found = await io.ask_all([call for call, _ in prepared], stop, settle)
            results.update((result.call["id"], result) for result in found)
            waits = [result.again_in for result in found if result.again_in is not None]
            left = [result.call for result in found if result.again_in is not None]
            if left and not stop.is_set():
                await io.wait(stop, max(waits))
        return [results[call["id"]] for call in calls]

    def _prepared(self, call: ToolCall) -> tuple[Call, TurnContext]:
        tool = self._toolbox.function(call["name"])
        view = self._turn.for_call(self._key_of(call), call, approved=call["id"] in self._approved)
        if tool is None:
            return Call(partial(_unknown, call["name"])), view
        self._tries[call["id"]] = self._tries.get(call["id"], 0) + 1
        function = settling(tool, call["arguments"], view, turn=view)
        if self._span is not None:
            about = {"name": call["name"], "call_id": call["id"], "arguments": call["arguments"]}
            function = telemetry.around(partial(telemetry.tool_span, self._span, **about), function)
        timeout = self._toolbox.options(call["name"]).timeout
        self._began[call["id"]] = time.monotonic()
        return Call(function, timeout), view

    def _settle(
        self, calls: Sequence[ToolCall], views: Sequence[TurnContext], number: int, got: Any
    ) -> Result:
        call = calls[number]
        views[number].close()
        if isinstance(got, Fenced):
            raise got
        took = time.monotonic() - self._began.get(call["id"], time.monotonic())
        timed = {"duration_ms": round(took * 1000)}
        try:
            if isinstance(got, Exception):
                raise got
            if isinstance(got, Spawn):
                suspensions.check_spawn(got)
                return Result(call=call, spawn=got)
            if isinstance(got, CallResult) and got.waits is not None:
                return Result(call=call, waits=got.waits)
            value = got if hasattr(got, "content") and hasattr(got, "writes") else ToolResult(got)
            writes = parse_writes(value.writes)
            content = documents.load(documents.dump(value.content))
            documents.dump(writes)
        except Exception as error:
            again = self._again(call, error)
            if again is not None:
                return Result(call=call, again_in=again)
            said = STOPPED if isinstance(error, Stopped) else storable(words(error))
            message = tool_message(call, said, is_error=True)
            self._store(Settled(call=call, kind="tool_error", data={"error": message["content"], **timed}))
            return Result(call=call, message=message)
        if not self._toolbox.options(call["name"]).keep_output:
            content = cut_output(content, conf.MAX_TOOL_OUTPUT)
        is_error, native = getattr(value, "is_error", False), getattr(value, "native", None)
        # The framework's own form of a result does not say that the call was edited; ours does.
        own = {} if native is None or call.get("edited") else {"message": dict(native)}
        kind, name = ("tool_error", "error") if is_error else ("tool_responded", "result")
        message = {**tool_message(call, content, is_error=is_error), **own}
        data = {name: message["content"], **timed, **own}
        self._store(Settled(call=call, kind=kind, data=data, writes=writes))
        return Result(call=call, message=message)

    def _again(self, call: ToolCall, error: Exception) -> float | None:
        """Seconds until a call that failed is made again; `None`: it is not."""
        tries = self._tries.get(call["id"], 0)
        if isinstance(error, Stopped) or not 0 < tries <= self._toolbox.options(call["name"]).retries:
            return None
        self._log_again(call, tries + 1, storable(words(error)))
        wait = max(retries.backoff(self._policy, tries), retries.asked_for(error))
        return min(wait, retries.IN_PLACE_SECONDS)

    def tried(self, tries: Mapping[str, int]) -> None:
        """Say how often calls were made before, by owners that are gone."""
        self._tries.update(tries)


def refused(call: Mapping[str, Any], why: str = NOT_EXECUTED) -> dict[str, Any]:
    """The tool message for a call that is not executed."""
    return tool_message(call, why, is_error=True)


def _unknown(name: str) -> Any:
    raise InvalidInput(f"There is no tool {name!r:.80}.")
