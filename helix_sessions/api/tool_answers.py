"""A user's answer to a tool call that waits. Participants decide on what is left to them."""

from typing import Any

from helix_sessions.api.policy import is_driver, leaves_to_participants
from helix_sessions.exceptions import AnswerForbidden
from helix_sessions.store import SessionStore
from helix_sessions.store.state.pending_calls import arguments_digest
from helix_sessions.types import SessionState, Submission


def submit(store: SessionStore, user: Any, session_id: str, call_id: str, **answer: Any) -> Submission:
    """Answer a call of the session, or of any session of the tree whose root it is."""
    answer["by"] = {"kind": "user", "id": str(user.pk)}
    try:
        return store.submit_tool_result(session_id, call_id, as_participant=not is_driver(user), **answer)
    except AnswerForbidden:
        asked = _declared(store, session_id, call_id)
        if asked is None or answer.get("remember") == "owner":
            raise
        # Of this tool with these arguments, even if the call was answered meanwhile.
        answer["arguments_digest"] = answer.get("arguments_digest") or asked
        return store.submit_tool_result(session_id, call_id, **answer)


def check_approver(store: SessionStore, user: Any, session_id: str, call_id: str) -> None:
    """Refuse a participant's decision on a call that is not left to participants, as `submit` would."""
    if is_driver(user):
        return
    state = owner_of(store, store.load_state(session_id), call_id)
    call = (state.pending_client_tool_calls or {}).get(call_id, {})
    if call.get("kind") != "approval" or call.get("approver") == "participant":
        return
    if not leaves_to_participants(state.agent_type, str(call.get("tool_name"))):
        raise AnswerForbidden("This call waits for the approval of another user.")


def owner_of(store: SessionStore, state: SessionState, call_id: str) -> SessionState:
    """The session of the tree whose call it is."""
    if call_id in (state.pending_client_tool_calls or {}):
        return state
    owner = (state.client_tool_call_ownership or {}).get(call_id, state.session_id)
    return state if owner == state.session_id else store.load_state(str(owner))


def _declared(store: SessionStore, session_id: str, call_id: str) -> str | None:
    """The digest of a call that the agent of the settings leaves to participants."""
    state = owner_of(store, store.load_state(session_id), call_id)
    call = (state.pending_client_tool_calls or {}).get(call_id)
    if not isinstance(call, dict) or not leaves_to_participants(state.agent_type, str(call.get("tool_name"))):
        return None
    return arguments_digest(call)
