"""How the sample tells a session: as an agent would live it, call by call, through the store alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from helix_sessions.messages import errors
from helix_sessions.store import SessionStore
from helix_sessions.types import Run, RunStatus, SessionState, SessionStatus
from helix_sessions.writes import apply_writes
from project.sample.clock import Clock
from project.sample.models import LARGE, Model

TAG = "sample"
"""Every session of the sample carries it."""

_PROMPT = 850
"""Tokens of instructions and tool schemas that every call of a model reads."""


class Story:
    """One session. A tool call is logged, its writes are staged, and its step is committed as one; the clock
    goes on as the model writes and the tools work."""

    def __init__(
        self,
        store: SessionStore,
        session_id: str,
        *,
        clock: Clock,
        agent_type: str,
        model: Model = LARGE,
        tags: Sequence[str] = (),
        is_traced: bool = True,
        **fields: Any,
    ) -> None:
        self.store = store
        self.session_id = session_id
        self.clock = clock
        self.model = model
        self.run: Run | None = None
        self._chance = Random(session_id)  # noqa: S311 - the same sample everywhere
        self._is_traced = is_traced
        self._calls = self._turn = self._read = 0
        self._usage: dict[str, Any] = {}
        store.create_session(session_id, agent_type=agent_type, tags=(TAG, *tags), **fields)

    def begin(self, question: str | None = None, **metadata: Any) -> Run:
        """A run begins, with what a person or the parent agent asked."""
        self.run = self.store.create_run(self.session_id, metadata=metadata)
        self._turn, self._usage = 0, {}
        if question is not None:
            self.ask(question)
        return self.run

    def ask(self, text: str) -> None:
        """A person says something."""
        self._hear(text)
        self.store.append_messages(self.session_id, [{"role": "user", "content": text}])

    def end(self, *, status: RunStatus = "completed", output: Any = None, error: Any = None) -> None:
        """The run ends, with what its model calls used."""
        if self.run is None:
            raise RuntimeError("No run has begun.")
        self.store.update_run_status(
            self.session_id,
            self.run.run_id,
            status,
            step_count=self.store.load_state(self.session_id).step_count,
            output=output,
            error=error,
            usage={**self._usage, "model": self.model.name} if self._usage else None,
        )
        self.run = None

    def say(self, text: str, *, writes: Sequence[Mapping[str, Any]] = ()) -> None:
        """A step in which the model only answers."""
        told = self._think(text)
        self._commit([{"role": "assistant", "content": text, "model": self.model.name}], writes=writes)
        self._tell_turn(told, "stop")

    def use(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        result: Any,
        *,
        thought: str = "",
        writes: Sequence[Mapping[str, Any]] = (),
        is_error: bool = False,
        seconds: float | None = None,
    ) -> None:
        """A step in which the model calls a tool, and the tool answers after so many seconds."""
        call_id = self.call(tool, arguments, thought=thought)
        step_id = f"step-{self.store.load_state(self.session_id).step_count + 1}"
        if writes:
            self.store.stage_changes(self.session_id, step_id, call_id, list(writes))
        self.answer(call_id, tool, result, is_error=is_error, step_id=step_id, seconds=seconds)

    def call(self, tool: str, arguments: Mapping[str, Any], *, thought: str = "") -> str:
        """The model calls a tool that has not answered yet; the id of the call."""
        told = self._think(thought + json.dumps(arguments))
        self._calls += 1
        call_id = f"call-{self.session_id}-{self._calls}"
        call = {"id": call_id, "name": tool, "arguments": dict(arguments)}
        message = {"role": "assistant", "content": thought, "tool_calls": [call], "model": self.model.name}
        self.store.append_messages(self.session_id, [message])
        self._tell_turn(told, "tool_calls")
        logged = {"tool_call_id": call_id, "tool_name": tool, "arguments": dict(arguments)}
        self._log("tool_called", logged)
        return call_id

    def answer(
        self,
        call_id: str,
        tool: str,
        result: Any,
        *,
        is_error: bool = False,
        step_id: str | None = None,
        seconds: float | None = None,
    ) -> None:
        """A tool, or a sub-agent, answers a call; the step is committed with what it staged."""
        took = self._chance.uniform(0.08, 1.9) if seconds is None else seconds
        self.clock.wait(took)
        outcome = {
            "tool_call_id": call_id,
            "tool_name": tool,
            "error" if is_error else "result": result,
            "duration_ms": round(took * 1000),
        }
        self._hear(json.dumps(result))
        self._log("tool_error" if is_error else "tool_responded", outcome)
        message = {"role": "tool", "tool_call_id": call_id, "tool_name": tool, "content": result}
        self._commit([{**message, "is_error": True} if is_error else message], step_id=step_id)

    def stumble(self, kind: str, message: str, *, attempt: int, retry_in: float | None) -> None:
        """A call of the model fails; it is tried again after so many seconds, or not."""
        self._turn += 1
        self._log("model_called", {"turn": self._turn, "model": self.model.name, "attempt": attempt})
        self.clock.wait(self._chance.uniform(0.4, 2.5))
        error = errors.document("transient", message, type=kind, attempt=attempt)
        moment = None
        if retry_in is not None:
            self.clock.wait(retry_in)
            moment = self.clock.now.isoformat()
        self._log("model_call_failed", {"attempt": attempt, "error": error, "retry_at": moment})
        self._turn -= 1

    def fail(
        self, code: str, message: str, *, kind: str, attempt: int = 1, status: SessionStatus = "failed"
    ) -> None:
        """The run fails for a cause, and the session with it; or it is paused."""
        error = errors.document(code, message, type=kind, attempt=attempt)
        self.end(status="failed", error=error)
        if status == "failed":
            self.store.update_status(self.session_id, "failed", error=error, failure_reason=code)
        else:
            self.store.update_status(self.session_id, status)

    def save(self, **fields: Any) -> SessionState:
        """Save the state with these fields changed."""
        state = self.store.load_state(self.session_id)
        return self.store.save_state(
            self.session_id, replace(state, **fields), expected_version=state.version
        )

    def finish(self, output: Any) -> None:
        """The session is done."""
        self.store.update_status(self.session_id, "completed", output=output)

    def _hear(self, text: str) -> None:
        self._read += 8 + len(text) // 4

    def _think(self, text: str) -> dict[str, Any]:
        """The model reads all there is and writes this; what the end of its turn tells."""
        self._turn += 1
        written = 12 + len(text) // 4
        read = _PROMPT + self._read
        cached = (read - 200) // 128 * 128 if self._turn > 1 else 0
        took = self._chance.uniform(0.5, 1.6) + written / self.model.speed
        called = {"turn": self._turn, "model": self.model.name}
        self._log("turn_started", called)
        self._log("model_called", {**called, "attempt": 1})
        self.clock.wait(took)
        self._hear(text)
        usage = {
            "input_tokens": read,
            "output_tokens": written,
            "cache_read_tokens": cached,
            "cost": self.model.cost(read, cached, written),
        }
        self._usage = {name: round(self._usage.get(name, 0) + usage[name], 6) for name in usage}
        return {**called, "duration_ms": round(took * 1000), "usage": usage}

    def _tell_turn(self, told: dict[str, Any], reason: str) -> None:
        self._log("turn_finished", {**told, "finish_reason": reason})

    def _log(self, kind: str, data: dict[str, Any]) -> None:
        """An event of the turn under way."""
        if self.run is None or (not self._is_traced and not kind.startswith("tool_")):
            return
        turn_id = f"{self.run.run_id}:{self._turn}"
        self.store.emit_event(self.session_id, kind, data, turn_id=turn_id, run_id=self.run.run_id)

    def _commit(
        self,
        messages: list[dict[str, Any]],
        *,
        writes: Sequence[Mapping[str, Any]] = (),
        step_id: str | None = None,
    ) -> None:
        state = self.store.load_state(self.session_id)
        state = replace(
            state,
            step_count=state.step_count + 1,
            custom_state=apply_writes(state.custom_state, list(writes)),
        )
        self.store.save_state_and_promote_staging(
            self.session_id, state, messages, {"step_id": step_id}, expected_version=state.version
        )
