"""Addresses of the console, and sessions to look at."""

from datetime import timedelta
from typing import Any
from urllib.parse import quote as url_quote

from django.contrib.admin.utils import quote
from django.utils import timezone

from helix_sessions.models import Session
from helix_sessions.runtime import FixedText
from helix_sessions.store import SessionStore

APP = "/admin/helix_sessions/"
LIST = f"{APP}session/"
PAGES = (
    "change",
    "timeline",
    "trace",
    "state",
    "context",
    "runs",
    "inbox",
    "tree",
    "staging",
    "calls",
    "log",
)
ACTIONS = {
    "run": "run_session",
    "resume": "resume_session",
    "retry": "retry_session",
    "change_model_and_retry": "change_model_and_retry_session",
    "rewind": "rewind_session",
    "replay": "replay_session",
    "approve_calls": "approve_calls_session",
    "deny_calls": "deny_calls_session",
    "interrupt": "interrupt_session",
    "reactivate": "reactivate_session",
    "expire": "expire_session",
    "set_expiry": "set_expiry_session",
    "branch": "branch_session",
    "suspend": "suspend_session",
    "fork": "fork_session",
    "change_model": "change_model_session",
    "change_budget": "change_budget_session",
    "clear": "clear_session",
    "compact": "compact_session",
    "discard_staging": "discard_staging_session",
    "export": "export_session",
    "fail": "fail_session",
    "delete": "delete_session",
}


CALL_ACTIONS = {
    "approve_call": "approve_call_session",
    "deny_call": "deny_call_session",
    "answer_call": "answer_call_session",
}
WAITING = f"{LIST}waiting/"
AUDIT = f"{APP}auditentry/"


def page_of(session_id: str, page: str = "change", query: str = "") -> str:
    return f"{LIST}{url_quote(quote(session_id))}/{page}/{query}"


def action(name: str, *ids: str) -> str:
    return f"{LIST}action/{name}/" + (
        "?" + "&".join(f"id={url_quote(key, '')}" for key in ids) if ids else ""
    )


def make_busy_session(store: SessionStore, session_id: str = "busy") -> None:
    """A session that has something of everything."""
    store.create_session(session_id, agent_type="support", user_id="u-1", metadata={"api_key": "sk-1"})
    run = store.create_run(session_id)
    call = {"id": "c1", "name": "look_up", "arguments": {"order": 7, "password": "hunter2"}}
    store.append_messages(session_id, [{"role": "user", "content": "Where is my parcel?"}])
    store.append_messages(session_id, [{"role": "assistant", "content": "I look.", "tool_calls": [call]}])
    store.emit_event(session_id, "tool_called", {"tool_call_id": "c1", "tool_name": "look_up"})
    store.emit_event(session_id, "tool_responded", {"tool_call_id": "c1", "result": {"place": "depot"}})
    answer = {"role": "tool", "tool_call_id": "c1", "tool_name": "look_up", "content": {"place": "depot"}}
    store.append_messages(session_id, [answer])
    store.merge_custom_state(session_id, [{"op": "set", "path": ["place"], "value": "depot"}])
    store.create_checkpoint(session_id, {"checkpoint_id": "first"})
    store.merge_custom_state(session_id, [{"op": "set", "path": ["place"], "value": "door"}])
    store.create_checkpoint(session_id, {"checkpoint_id": "second"})
    store.update_run_status(session_id, run.run_id, "completed", usage={"input_tokens": 10, "cost": 0.5})
    store.create_run(session_id)
    store.admit_input(session_id, {"content": "And now?", "token": "t-2"}, input_id=f"{session_id}-input")
    store.acquire_lease(session_id, "worker-7", 60)
    store.stage_changes(session_id, "step", "c2", [{"op": "set", "path": ["token"], "value": "t-1"}])
    store.add_sub_session_refs(
        session_id, [{"sub_session_id": f"{session_id}-child", "agent_type": "helper"}]
    )
    store.reconcile_context(session_id, [FixedText("rules", "Be brief."), FixedText("token", "t-2")])
    store.reconcile_context(session_id, [FixedText("rules", "Be kind.\nBe <b>brief</b>.")])
    store.create_session(f"{session_id}-child", agent_type="helper", parent_session_id=session_id)


def make_stuck(session_id: str, minutes: int = 60) -> None:
    """As if nothing had happened for so long."""
    then = timezone.now() - timedelta(minutes=minutes)
    Session.objects.filter(session_id=session_id).update(updated_at=then, last_agent_activity_at=then)


def rows_of(response: Any) -> list[str]:
    """The ids a list shows."""
    return [row.session_id for row in response.context["cl"].result_list]
