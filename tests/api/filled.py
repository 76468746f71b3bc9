"""A session of which every part exists, and what a request about it needs."""

from helix_sessions.conf import conf
from helix_sessions.store import SessionStore


def fill(store: SessionStore, session_id: str) -> None:
    """So that every part of a session exists."""
    if conf.BLOB_STORAGE:
        store.attach_blob(session_id, b"content", media_type="text/plain")
    store.create_run(session_id, run_id="r")
    store.admit_input(session_id, "hello", input_id="i")
    store.create_checkpoint(session_id, {"checkpoint_id": "c"})
    store.stage_changes(session_id, "step", "call", [])
    store.add_sub_session_refs(session_id, [{"sub_session_id": "sub", "agent_type": "test"}])
    if not store.session_exists("sub"):
        owner = store.load_state(session_id).owner_id
        store.create_session("sub", agent_type="test", parent_session_id=session_id, owner=owner)


def headers_of(store: SessionStore, session_id: str, method: str, name: str) -> dict[str, str]:
    """What a request to this address needs: who resumes a session holds its lease."""
    if (method, name) != ("post", "resume"):
        return {}
    return {"Helix-Fence": str(store.acquire_lease(session_id, "driver", 60).fence)}


def prepare(store: SessionStore, session_id: str, name: str) -> None:
    """So that a filled session is where a POST to this address is allowed."""
    if name in ("commit", "runs", "turns"):
        store.update_run_status(session_id, "r", "completed")
    elif name == "feedback":
        store.append_messages(session_id, [{"role": "assistant", "content": "hi"}] * 2)
    elif name in ("tool-results", "answer-links", "resume"):
        asked = {"tool_call_id": "call", "tool_name": "t", "arguments": {}}
        state = store.load_state(session_id)
        store.suspend(session_id, "client_tool", state=state, run_id="r", pending_calls=[asked])
        if name == "resume":
            store.submit_tool_result(session_id, "call", result=1)
