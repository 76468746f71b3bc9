"""What an agent sees of the execution it is in."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

from asgiref.sync import sync_to_async
from django.utils import timezone

from helix_sessions.runtime.turn_context import in_event_loop
from helix_sessions.store import SessionStore
from helix_sessions.types import JSON, ModelContext, Run, SessionState, chars_over_four
from helix_sessions.values.agents import AgentSession


class ExecutionTurn:
    """One step, as `run_turn` has it. In an event loop its calls are awaited. The run is the execution, which
    is kept with the session, not as a run."""

    def __init__(self, session: AgentSession, store: SessionStore, *, steps: int) -> None:
        self.session = session
        """The session with all that was said so far."""
        self.session_id = session.session_id
        self._store = store
        self._steps = steps

    @cached_property
    def state(self) -> SessionState:
        """The stored state, with the agent's own document."""
        return self._store.load_state(self.session_id)

    @cached_property
    def context(self) -> ModelContext:
        """The system prompt, and the transcript with what this execution has added."""
        messages = [dict(message) for message in self.session.state.messages]
        seen = ModelContext(baseline=self.session.state.system_prompt, messages=messages)
        return replace(seen, estimated_tokens=chars_over_four(seen))

    @cached_property
    def run(self) -> Run:
        """The execution in the shape of a run."""
        number = self.session.state.execution_count
        return Run(
            run_id=f"{self.session_id}-execution-{number}"[-255:],
            session_id=self.session_id,
            turn=number,
            status="running",
            step_count=self._steps,
            start_sequence=0,
            end_sequence=None,
            output=None,
            error=None,
            usage=None,
            metadata={},
            started_at=timezone.now(),
            ended_at=None,
        )

    def prepare(self) -> None:
        """Read what an async agent may look at, which cannot read the database in its event loop."""
        _ = self.state, self.context

    def emit(self, type: str, data: JSON = None) -> Any:
        """Append to the session's log at once. A message of the agent is returned instead, not emitted."""
        return _here_or_awaited(self._store.emit_event, self.session_id, type, data)

    def publish_fragment(self, data: JSON) -> Any:
        """Reach those who read along now; nothing is stored."""
        return _here_or_awaited(self._store.publish_fragment, self.session_id, data)

    def interrupted(self) -> Any:
        """Whether somebody asked the session to stop."""
        return _here_or_awaited(self._interrupted)

    def _interrupted(self) -> bool:
        return self._store.peek_interrupt_flag(self.session_id) is not None


def _here_or_awaited(call: Callable[..., Any], *arguments: Any) -> Any:
    """The value of a call; in an event loop, something to await for it."""
    return sync_to_async(call)(*arguments) if in_event_loop() else call(*arguments)
