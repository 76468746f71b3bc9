"""How the sample tells a session: as an agent would live it, call by call, through the store alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from helix_sessions.store import SessionStore
from helix_sessions.types import Run, SessionState
from helix_sessions.writes import apply_writes

TAG = "sample"
"""Every session of the sample carries it."""


class Story:
    """One session. A tool call is logged, its writes are staged, and its step is committed as one."""

    def __init__(
        self,
        store: SessionStore,
        session_id: str,
        *,
        agent_type: str,
        tags: Sequence[str] = (),
        **fields: Any,
    ) -> None:
        self.store = store
        self.session_id = session_id
        self.run: Run | None = None
        self._calls = 0
        store.create_session(session_id, agent_type=agent_type, tags=(TAG, *tags), **fields)

    def begin(self, question: str | None = None, **metadata: Any) -> Run:
        """A run begins, with what a person or the parent agent asked."""
        self.run = self.store.create_run(self.session_id, metadata=metadata)
        if question is not None:
            self.store.append_messages(self.session_id, [{"role": "user", "content": question}])
        return self.run

    def end(
        self,
        *,
        tokens: tuple[int, int],
        status: str = "completed",
        output: Any = None,
        error: str | None = None,
    ) -> None:
        """The run ends; `tokens` were read and written by the model."""
        if self.run is None:
            raise RuntimeError("No run has begun.")
        state = self.store.load_state(self.session_id)
        self.store.update_run_status(
            self.session_id,
            self.run.run_id,
            status,
            step_count=state.step_count,
            output=output,
            error=error,
            usage={"input_tokens": tokens[0], "output_tokens": tokens[1], "model": "demo-large"},
        )
        self.run = None

    def say(self, text: str, *, writes: Sequence[Mapping[str, Any]] = ()) -> None:
        """A step in which the model only answers."""
        self._commit([{"role": "assistant", "content": text}], writes=writes)

    def use(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        result: Any,
        *,
        thought: str = "",
        writes: Sequence[Mapping[str, Any]] = (),
        is_error: bool = False,
    ) -> None:
        """A step in which the model calls a tool, and the tool answers."""
        call_id = self.call(tool, arguments, thought=thought)
        step_id = f"step-{self.store.load_state(self.session_id).step_count + 1}"
        if writes:
            self.store.stage_changes(self.session_id, step_id, call_id, list(writes))
        self.answer(call_id, tool, result, is_error=is_error, step_id=step_id)

    def call(self, tool: str, arguments: Mapping[str, Any], *, thought: str = "") -> str:
        """The model calls a tool that has not answered yet; the id of the call."""
        self._calls += 1
        call_id = f"call-{self.session_id}-{self._calls}"
        call = {"id": call_id, "name": tool, "arguments": dict(arguments)}
        message = {"role": "assistant", "content": thought, "tool_calls": [call]}
        self.store.append_messages(self.session_id, [message])
        logged = {"tool_call_id": call_id, "tool_name": tool, "arguments": dict(arguments)}
        self.store.emit_event(self.session_id, "tool_called", logged)
        return call_id

    def answer(
        self, call_id: str, tool: str, result: Any, *, is_error: bool = False, step_id: str | None = None
    ) -> None:
        """A tool, or a sub-agent, answers a call; the step is committed with what it staged."""
        outcome = {"tool_call_id": call_id, "error" if is_error else "result": result}
        self.store.emit_event(self.session_id, "tool_error" if is_error else "tool_responded", outcome)
        message = {"role": "tool", "tool_call_id": call_id, "tool_name": tool, "content": result}
        self._commit([{**message, "is_error": True} if is_error else message], step_id=step_id)

    def save(self, **fields: Any) -> SessionState:
        """Save the state with these fields changed."""
        state = self.store.load_state(self.session_id)
        return self.store.save_state(
            self.session_id, replace(state, **fields), expected_version=state.version
        )

    def finish(self, output: Any) -> None:
        """The session is done."""
        self.store.update_status(self.session_id, "completed", output=output)

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
