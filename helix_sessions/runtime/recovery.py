"""What a process that died left behind, put right by the next owner: nothing is executed again."""

from helix_sessions.exceptions import InvalidWrites
from helix_sessions.store import SessionStore
from helix_sessions.types import StagedChange

OWNER_LOST = "owner_lost"

_EVENTS_LOOKED_AT = 20_000


def recover(store: SessionStore, session_id: str) -> bool:
    """Close the run that was left running and fail its open calls; whether there was one."""
    if store.get_current_run(session_id) is None:
        return False
    _settle_staging(store, session_id)
    store.wake(session_id)
    return True


def fail(store: SessionStore, session_id: str) -> None:
    """Close the run that was left running as failed, and the session with it."""
    run = store.get_current_run(session_id)
    if run is None:
        return
    said = "The process that ran the session is gone."
    store.update_run_status(session_id, run.run_id, "failed", error=said)
    _settle_staging(store, session_id)
    store.wake(session_id)
    store.update_status(session_id, "failed", error=said, failure_reason=OWNER_LOST)


def is_unfinished(store: SessionStore, session_id: str) -> bool:
    """Whether the transcript ends where a model has to speak."""
    newest = store.get_messages(session_id, limit=1, newest_first=True).messages
    return bool(newest) and newest[0]["role"] != "assistant"


def _settle_staging(store: SessionStore, session_id: str) -> None:
    """Promote the writes of tools whose result was logged; forget those of tools that never ended."""
    steps: dict[str, list[StagedChange]] = {}
    for change in store.get_staged_changes(session_id):
        steps.setdefault(change.step_id, []).append(change)
    if not steps:
        return
    first = max(0, store.get_session_head(session_id).head_seq - _EVENTS_LOOKED_AT)
    ended = {
        event.data["tool_call_id"]
        for event in store.get_events(session_id, first or None, types=["tool_responded"])
        if isinstance(event.data, dict) and "tool_call_id" in event.data
    }
    for step_id, changes in steps.items():
        kept = [change for change in changes if change.tool_call_id in ended]
        if len(kept) < len(changes):
            store.discard_staging(session_id, step_id)
            for change in kept:
                store.stage_changes(session_id, step_id, change.tool_call_id, change.writes)
        try:
            store.promote_staging(session_id, step_id)
        except InvalidWrites:
            store.discard_staging(session_id, step_id)
