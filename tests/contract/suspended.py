"""Sessions that wait, for tests of turns, suspension and resume."""

from typing import Any

from helix_sessions.store import SessionStore
from helix_sessions.types import ChildWait, CommitResult, PendingCall, SubSessionRef


def calling(*ids: str) -> dict[str, Any]:
    """An assistant message that calls tools with these ids."""
    calls = [{"id": call_id, "name": f"tool_{call_id}", "arguments": {"of": call_id}} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str, content: Any = "done") -> dict[str, Any]:
    """The tool message of a call that went well."""
    return {"role": "tool", "tool_call_id": call_id, "tool_name": f"tool_{call_id}", "content": content}


def error(call_id: str, content: str) -> dict[str, Any]:
    """The tool message of a call that failed."""
    return {**result(call_id, content), "is_error": True}


def asked(call_id: str, **fields: Any) -> PendingCall:
    """A call that waits for a client."""
    return PendingCall(tool_call_id=call_id, tool_name=f"tool_{call_id}", arguments={"of": call_id}, **fields)


def approval(call_id: str, **fields: Any) -> PendingCall:
    """A call that waits for a decision."""
    return asked(call_id, kind="approval", **fields)


def suspend(store: SessionStore, session_id: str, *calls: PendingCall, **options: Any) -> CommitResult:
    """Suspend the running session on these calls, which the transcript makes."""
    run = store.get_current_run(session_id)
    assert run is not None
    said = [calling(*(call.tool_call_id for call in calls))] if calls else []
    options = {
        "kind": "client_tool",
        "state": store.load_state(session_id),
        "append_messages": said,
        **options,
    }
    kind = options.pop("kind")
    return store.suspend(session_id, kind, run_id=run.run_id, pending_calls=calls, **options)


def suspended(store: SessionStore, session_id: str, *calls: PendingCall, **options: Any) -> CommitResult:
    """A new session, asked something and suspended on these calls."""
    store.begin_turn(session_id, message="hello", run_id="first")
    return suspend(store, session_id, *calls, **options)


def child(store: SessionStore, parent_id: str, child_id: str, call_id: str, **fields: Any) -> None:
    """A running sub-session of a session, started by one of its calls."""
    store.create_session(child_id, agent_type="helper", parent_session_id=parent_id)
    ref = SubSessionRef(sub_session_id=child_id, agent_type="helper", parent_tool_call_id=call_id, **fields)
    store.add_sub_session_refs(parent_id, [ref])
    store.begin_turn(child_id, message="help")


def wait_for(call_id: str, child_id: str) -> ChildWait:
    return ChildWait(parent_tool_call_id=call_id, sub_session_id=child_id, agent_type="helper")


def messages(store: SessionStore, session_id: str) -> list[dict[str, Any]]:
    return store.get_messages(session_id).messages
