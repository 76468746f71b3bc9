"""The calls of the store, as the ground rules see them: what each needs, does, and writes to the log."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from helix_sessions.store import SessionStore
from helix_sessions.types import CompactionPolicy, SessionState, SubSessionRef
from tests.contract.sources import Said

USER = {"role": "user", "content": "hello"}
ASSISTANT = {"role": "assistant", "content": "hi"}
NEVER = datetime(9000, 1, 1, tzinfo=UTC)
WRITES = [{"op": "set", "path": ["a"], "value": 1}]
REF = SubSessionRef(sub_session_id="child", agent_type="helper")


@dataclass(frozen=True)
class Call:
    """One call: `arrange(store, id)` makes it possible, `act(store, id, **options)` makes it."""

    name: str
    act: Callable[..., Any]
    event: str = ""
    arrange: Callable[[SessionStore, str], Any] = lambda store, key: None
    label: str = ""

    def __str__(self) -> str:
        return self.label or self.name


def _save(store: SessionStore, key: str, **options: Any) -> Any:
    state = store.load_state(key)
    return store.save_state(key, replace(state, custom_state={"saved": True}), **options)


def _commit(store: SessionStore, key: str, **options: Any) -> Any:
    state = replace(store.load_state(key), step_count=1)
    return store.save_state_and_promote_staging(key, state, [USER, ASSISTANT], **options)


def _stage(store: SessionStore, key: str) -> None:
    store.stage_changes(key, "step", "call", WRITES)


def _append(store: SessionStore, key: str) -> None:
    store.append_messages(key, [USER, ASSISTANT])


def _suspend(store: SessionStore, key: str, **options: Any) -> Any:
    call = {"tool_call_id": "call", "tool_name": "tool", "arguments": {}}
    state = (
        store.load_state(key) if store.session_exists(key) else SessionState(session_id=key, agent_type="a")
    )
    return store.suspend(key, "client_tool", state=state, run_id="r", pending_calls=[call], **options)


def _suspended(store: SessionStore, key: str) -> None:
    store.create_run(key, run_id="r")
    _suspend(store, key)


def _answered(store: SessionStore, key: str) -> None:
    _suspended(store, key)
    store.submit_tool_result(key, "call", result=1)


def _moved_on(store: SessionStore, key: str) -> None:
    store.create_checkpoint(key)
    _append(store, key)


def _compact(store: SessionStore, key: str, **options: Any) -> Any:
    policy = CompactionPolicy(None, keep_recent=0)
    return store.compact(key, lambda request: "summary", policy, **options)


def _compacted(store: SessionStore, key: str) -> None:
    _append(store, key)
    _compact(store, key)


RAISING = [
    Call("save_state", _save, "state_saved"),
    Call("save_state_and_promote_staging", _commit, "state_saved"),
    Call(
        "save_state_and_promote_staging",
        _commit,
        "staging_promoted",
        _stage,
        label="save_state_and_promote_staging, staged",
    ),
    Call("merge_custom_state", lambda s, k, **o: s.merge_custom_state(k, WRITES, **o), "state_merged"),
    Call("update_status", lambda s, k, **o: s.update_status(k, "paused", **o), "status_changed"),
    Call(
        "compare_and_set_status",
        lambda s, k, **o: s.compare_and_set_status(k, ["active"], "paused", **o),
        "status_changed",
    ),
    Call("increment_step_count", lambda s, k, **o: s.increment_step_count(k, **o), "counter_raised"),
    Call("increment_resume_count", lambda s, k, **o: s.increment_resume_count(k, **o), "counter_raised"),
    Call("patch_metadata", lambda s, k, **o: s.patch_metadata(k, {"a": 1}, **o), "metadata_patched"),
    Call("update_session", lambda s, k, **o: s.update_session(k, tags=["a"], **o), "session_updated"),
    Call("set_expiry", lambda s, k, **o: s.set_expiry(k, NEVER, **o), "expiry_changed"),
    Call("append_messages", lambda s, k, **o: s.append_messages(k, [USER, ASSISTANT], **o), "user_message"),
    Call(
        "truncate_messages",
        lambda s, k, **o: s.truncate_messages(k, 1, **o),
        "messages_truncated",
        _append,
    ),
    Call("put_notes", lambda s, k, **o: s.put_notes(k, {"a": 1}, **o), "notes_put"),
    Call(
        "remove_notes",
        lambda s, k, **o: s.remove_notes(k, ["a"], **o),
        "notes_removed",
        lambda s, k: s.put_notes(k, {"a": 1}),
    ),
    Call("create_run", lambda s, k, **o: s.create_run(k, run_id="r", **o), "run_started"),
    Call(
        "update_run_status",
        lambda s, k, **o: s.update_run_status(k, "r", "completed", **o),
        "run_finished",
        lambda s, k: s.create_run(k, run_id="r"),
    ),
    Call("create_checkpoint", lambda s, k, **o: s.create_checkpoint(k, **o), "checkpoint_created"),
    Call("promote_staging", lambda s, k, **o: s.promote_staging(k, "step", **o), "staging_promoted", _stage),
    Call("set_interrupt_flag", lambda s, k, **o: s.set_interrupt_flag(k, **o), "interrupt_requested"),
    Call(
        "check_interrupt_flag",
        lambda s, k, **o: s.check_interrupt_flag(k, **o),
        "interrupt_cleared",
        lambda s, k: s.set_interrupt_flag(k),
    ),
    Call(
        "clear_interrupt_flag",
        lambda s, k, **o: s.clear_interrupt_flag(k, **o),
        "interrupt_cleared",
        lambda s, k: s.set_interrupt_flag(k),
    ),
    Call(
        "add_sub_session_refs",
        lambda s, k, **o: s.add_sub_session_refs(k, [REF], **o),
        "subagent_spawned",
    ),
    Call(
        "update_sub_session_ref",
        lambda s, k, **o: s.update_sub_session_ref(k, "child", status="completed", **o),
        "subagent_updated",
        lambda s, k: s.add_sub_session_refs(k, [REF]),
    ),
    Call("admit_input", lambda s, k, **o: s.admit_input(k, "hello", **o), "input_admitted"),
    Call(
        "cancel_input",
        lambda s, k, **o: s.cancel_input(k, f"{k}-input", **o),
        "input_cancelled",
        lambda s, k: s.admit_input(k, "hello", input_id=f"{k}-input"),
    ),
    Call(
        "set_delivery",
        lambda s, k, **o: s.set_delivery(k, f"{k}-input", "queue", **o),
        "input_delivery_changed",
        lambda s, k: s.admit_input(k, "hello", input_id=f"{k}-input"),
    ),
    Call(
        "promote_inputs",
        lambda s, k, **o: s.promote_inputs(k, "steer", **o),
        "user_message",
        lambda s, k: s.admit_input(k, "hello"),
    ),
    Call("request_run", lambda s, k, **o: s.request_run(k, **o), "run_requested"),
    Call("retry_run", lambda s, k, **o: s.retry_run(k, **o), "run_requested"),
    Call("begin_turn", lambda s, k, **o: s.begin_turn(k, message="hello", **o), "run_started"),
    Call("suspend", _suspend, "run_finished", lambda s, k: s.create_run(k, run_id="r")),
    Call(
        "submit_tool_result",
        lambda s, k, **o: s.submit_tool_result(k, "call", result=1, **o),
        "tool_result_submitted",
        _suspended,
    ),
    Call("resume", lambda s, k, **o: s.resume(k, **o), "session_resumed", _answered),
    Call("settle_child", lambda s, k, **o: s.settle_child(k, "completed", **o), "status_changed"),
    Call("rewind", lambda s, k, **o: s.rewind(k, **o), "session_rewound", _moved_on),
    Call("regenerate", lambda s, k, **o: s.regenerate(k, **o), "run_requested", _append),
    Call(
        "reconcile_context",
        lambda s, k, **o: s.reconcile_context(k, [Said("day", 1)], **o),
        "context_initialized",
    ),
    Call(
        "reconcile_context",
        lambda s, k, **o: s.reconcile_context(k, [Said("day", 2)], **o),
        "context_updated",
        lambda s, k: s.reconcile_context(k, [Said("day", 1)]),
        label="reconcile_context, changed",
    ),
    Call("move_session", lambda s, k, **o: s.move_session(k, "there", **o), "session_moved"),
    Call("compact", _compact, "compacted", _append),
]
"""Calls that raise the version, and the type of event that names each. All take `expected_version`."""

MESSAGE_EVENT = Call(
    "emit_event",
    lambda s, k: s.emit_event(k, "user_message", {"content": "hello"}),
    "user_message",
    label="emit_event, a message",
)
"""The one call that raises the version and takes no `expected_version`."""

KEEPING = [
    Call("acquire_lease", lambda s, k: s.acquire_lease(k, "worker", 30)),
    Call(
        "renew_lease",
        lambda s, k: s.renew_lease(s.get_lease(k), 60),
        arrange=lambda s, k: s.acquire_lease(k, "worker", 30),
    ),
    Call(
        "release_lease",
        lambda s, k: s.release_lease(s.get_lease(k)),
        arrange=lambda s, k: s.acquire_lease(k, "worker", 30),
    ),
    Call("stage_changes", lambda s, k: s.stage_changes(k, "step", "call", WRITES)),
    Call("discard_staging", lambda s, k: s.discard_staging(k), arrange=_stage),
    Call("cleanup_orphaned_staging", lambda s, k: s.cleanup_orphaned_staging(older_than=timedelta(0))),
    Call("emit_event", lambda s, k: s.emit_event(k, "llm_requested", {"model": "m"}), "llm_requested"),
    Call("put_notes", lambda s, k: s.put_notes(k, {"a": 1}, quietly=True), label="put_notes, quietly"),
    Call("give_feedback", lambda s, k: s.give_feedback(k, 1, "up"), "feedback_given", arrange=_append),
]
"""Calls that write and leave the version as it is."""

IDLE = [
    Call(
        "reconcile_context",
        lambda s, k, **o: s.reconcile_context(k, [Said("day", 1)], **o),
        arrange=lambda s, k: s.reconcile_context(k, [Said("day", 1)]),
        label="nothing new to tell",
    ),
    Call(
        "compact",
        _compact,
        arrange=_compacted,
        label="nothing older to fold",
    ),
    Call("append_messages", lambda s, k, **o: s.append_messages(k, [], **o), label="empty append"),
    Call("merge_custom_state", lambda s, k, **o: s.merge_custom_state(k, [], **o), label="empty merge"),
    Call("patch_metadata", lambda s, k, **o: s.patch_metadata(k, {}, **o), label="empty patch"),
    Call("truncate_messages", lambda s, k, **o: s.truncate_messages(k, 2, **o), label="truncating nothing"),
    Call("check_interrupt_flag", lambda s, k, **o: s.check_interrupt_flag(k, **o), label="polling no flag"),
    Call("clear_interrupt_flag", lambda s, k, **o: s.clear_interrupt_flag(k, **o), label="clearing no flag"),
    Call("promote_staging", lambda s, k, **o: s.promote_staging(k, "step", **o), label="nothing staged"),
    Call("put_notes", lambda s, k, **o: s.put_notes(k, {}, **o), label="no notes"),
    Call("remove_notes", lambda s, k, **o: s.remove_notes(k, ["b"], **o), label="removing no note"),
    Call(
        "submit_tool_result",
        lambda s, k, **o: s.submit_tool_result(k, "call", result=2, **o),
        arrange=_answered,
        label="answered already",
    ),
    Call(
        "rewind",
        lambda s, k, **o: s.rewind(k, **o),
        arrange=lambda s, k: s.create_checkpoint(k),
        label="back to where it is",
    ),
    Call(
        "settle_child",
        lambda s, k, **o: s.settle_child(k, "failed", **o),
        arrange=lambda s, k: s.settle_child(k, "completed"),
        label="settled already",
    ),
    Call("promote_inputs", lambda s, k, **o: s.promote_inputs(k, "queue", **o), label="an empty inbox"),
    Call(
        "set_delivery",
        lambda s, k, **o: s.set_delivery(k, "i", "steer", **o),
        arrange=lambda s, k: s.admit_input(k, "hello", input_id="i"),
        label="delivered so already",
    ),
    Call("add_sub_session_refs", lambda s, k, **o: s.add_sub_session_refs(k, [], **o), label="no refs"),
    Call(
        "add_sub_session_refs",
        lambda s, k, **o: s.add_sub_session_refs(k, [REF, REF], **o),
        arrange=lambda s, k: s.add_sub_session_refs(k, [REF]),
        label="refs known already",
    ),
    Call(
        "update_sub_session_ref",
        lambda s, k, **o: s.update_sub_session_ref(k, "child", **o),
        arrange=lambda s, k: s.add_sub_session_refs(k, [REF]),
        label="no change of a ref",
    ),
]
"""Calls of the first list that find nothing to do."""

READING = [
    Call("load_state", lambda s, k: s.load_state(k)),
    Call("get_messages", lambda s, k: s.get_messages(k)),
    Call("get_message_count", lambda s, k: s.get_message_count(k)),
    Call("get_current_run", lambda s, k: s.get_current_run(k)),
    Call("get_run", lambda s, k: s.get_run(k, "r")),
    Call("list_runs", lambda s, k: s.list_runs(k)),
    Call("get_latest_checkpoint", lambda s, k: s.get_latest_checkpoint(k)),
    Call("get_checkpoint", lambda s, k: s.get_checkpoint(k, "c")),
    Call("list_checkpoints", lambda s, k: s.list_checkpoints(k)),
    Call("get_staged_changes", lambda s, k: s.get_staged_changes(k)),
    Call("has_staged_changes", lambda s, k: s.has_staged_changes(k)),
    Call(
        "has_staged_changes", lambda s, k: s.has_staged_changes(k, "step"), label="has_staged_changes, step"
    ),
    Call("get_sub_session_refs", lambda s, k: s.get_sub_session_refs(k)),
    Call("peek_interrupt_flag", lambda s, k: s.peek_interrupt_flag(k)),
    Call("list_inputs", lambda s, k: s.list_inputs(k)),
    Call("page_of_inputs", lambda s, k: s.page_of_inputs(k)),
    Call("get_occupancy", lambda s, k: s.get_occupancy(k)),
    Call("count_inputs", lambda s, k: s.count_inputs(k)),
    Call("get_lease", lambda s, k: s.get_lease(k)),
    Call("get_events", lambda s, k: s.get_events(k)),
    Call("get_context", lambda s, k: s.get_context(k)),
    Call("get_context_epoch", lambda s, k: s.get_context_epoch(k)),
    Call("list_compactions", lambda s, k: s.list_compactions(k)),
    Call("detach", lambda s, k: s.detach(k)),
]
"""Calls that only read one session."""
