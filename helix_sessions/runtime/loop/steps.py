"""The commits of a drain: each on the state as it is now, whatever else changed it meanwhile."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from helix_sessions.exceptions import InvalidWrites, SessionBusy, StaleState
from helix_sessions.store import SessionStore
from helix_sessions.types import PendingCall, SessionState
from helix_sessions.writes import apply_writes

T = TypeVar("T")

_ATTEMPTS = 50


def commit(
    store: SessionStore,
    session_id: str,
    messages: Sequence[dict[str, Any]],
    *,
    step_id: str,
    run_id: str,
    writes: Sequence[Any] = (),
) -> None:
    """Append the messages, apply the writes and promote what the step staged, with a checkpoint."""

    def attempt(state: SessionState) -> None:
        if writes:
            state = replace(state, custom_state=apply_writes(state.custom_state, writes))
        store.save_state_and_promote_staging(
            session_id,
            replace(state, step_count=state.step_count + 1),
            messages,
            {"step_id": step_id, "run_id": run_id},
            expected_version=state.version,
        )

    on_present_state(store, session_id, attempt)


def suspend(
    store: SessionStore,
    session_id: str,
    messages: Sequence[dict[str, Any]],
    calls: Sequence[PendingCall],
    *,
    step_id: str,
    run_id: str,
) -> None:
    """Commit the results that are ready, and let the session wait for the others."""

    def attempt(state: SessionState) -> None:
        store.suspend(
            session_id,
            "client_tool",
            state=replace(state, step_count=state.step_count + 1),
            run_id=run_id,
            append_messages=messages,
            pending_calls=calls,
            suspended_step_id=step_id,
            checkpoint_meta={"step_id": step_id, "run_id": run_id},
            expected_version=state.version,
        )

    try:
        on_present_state(store, session_id, attempt)
    except InvalidWrites:
        store.discard_staging(session_id, step_id)
        on_present_state(store, session_id, attempt)


def on_present_state(store: SessionStore, session_id: str, attempt: Callable[[SessionState], T]) -> T:
    """Make an attempt on the state as it is, again if somebody else was quicker: an admission, a patch."""
    for _ in range(_ATTEMPTS):
        try:
            return attempt(store.load_state(session_id))
        except StaleState:
            continue
    raise SessionBusy
