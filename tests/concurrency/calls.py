"""Every call that writes to a session, in a form that changes something after `prepare`.

Those here have a session with something of everything; the rest is the contract's table of calls.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from helix_sessions.store import SessionStore
from helix_sessions.types import CheckpointMeta
from tests.contract.calls import KEEPING, RAISING, Call

LARGE = "x" * 20_000
SET = [{"op": "set", "path": ["a"], "value": 1}]


def each_call(
    store: SessionStore, *names: str, large: bool = False
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every call, or those named, one after the other, each on sessions made anew for it."""
    for name in names or (*CALLS, *OTHERS):
        for session in [line.session_id for line in store.list_sessions().items]:
            store.delete_session(session)
        prepare(store, name, large=large)
        yield name, lambda name=name: make(store, name)  # type: ignore[misc]


def make(store: SessionStore, name: str) -> Any:
    """Make the call of this name."""
    return CALLS[name](store) if name in CALLS else OTHERS[name].act(store, "s")


def prepare(store: SessionStore, call: str = "", *, large: bool = False) -> None:
    """The session `s` as this call needs it; for those of `CALLS` with some of everything, and a child."""
    if call in OTHERS:
        store.create_session("s", agent_type="agent")
        OTHERS[call].arrange(store, "s")
        return
    custom = {"items": [0], "blob": LARGE if large else ""}
    state = store.create_session("s", agent_type="agent", custom_state=custom, metadata={"k": 1})
    store.append_messages("s", [{"role": "user", "content": n} for n in range(3)])
    run = store.create_run("s", run_id="old")
    store.update_run_status("s", run.run_id, "completed")
    if call not in ("create_run", "cleanup_orphaned_staging"):
        store.create_run("s", run_id="r")
    store.save_state("s", replace(state, custom_state={**custom, "saved": True}))
    store.create_checkpoint("s", {"checkpoint_id": "c"})
    for number in range(2):
        writes = [{"op": "append", "path": ["items"], "values": [number]}]
        store.stage_changes("s", "step", f"call {number}", writes)
    if call != "recover_run":
        store.set_interrupt_flag("s", "reason")
    told = {"tool_call_id": "call 0", "tool_name": "look"}
    if call.startswith("recover_run"):
        store.emit_event("s", "tool_called", told)
        store.emit_event("s", "tool_responded", {**told, "result": 1})
        store.emit_event("s", "tool_called", {**told, "tool_call_id": "call 1"})
    store.add_sub_session_refs("s", [{"sub_session_id": "child", "agent_type": "agent"}])
    store.create_session("child", agent_type="agent", parent_session_id="s")
    store.append_messages("child", [{"role": "user", "content": "hello"}])
    store.create_run("child", run_id="below")
    store.emit_event("s", "llm_requested", {"n": 1}, idempotency_key="key")


def _commit(store: SessionStore) -> Any:
    state = store.load_state("s")
    custom = {**state.custom_state, "committed": True}
    return store.save_state_and_promote_staging(
        "s",
        replace(state, custom_state=custom, step_count=7, status="paused", output=["o"]),
        [{"role": "assistant", "content": "a"}, {"role": "tool", "content": "t"}],
        CheckpointMeta(checkpoint_id="commit", step_id="step"),
        expected_version=state.version,
    )


def _many_messages(store: SessionStore) -> Any:
    return store.append_messages("s", [{"role": "user", "content": n} for n in range(600)])


CALLS: dict[str, Callable[[SessionStore], Any]] = {
    "save_state_and_promote_staging": _commit,
    "save_state": lambda store: store.save_state(
        "s", replace(store.load_state("s"), custom_state={"new": True}, status="failed")
    ),
    "merge_custom_state": lambda store: store.merge_custom_state(
        "s", [{"op": "set", "path": ["a", "b"], "value": 1}]
    ),
    "update_status": lambda store: store.update_status("s", "failed", error="e", output=1),
    "compare_and_set_status": lambda store: store.compare_and_set_status("s", ["active"], "paused"),
    "increment_step_count": lambda store: store.increment_step_count("s"),
    "increment_resume_count": lambda store: store.increment_resume_count("s"),
    "patch_metadata": lambda store: store.patch_metadata("s", {"k": None, "n": 1}),
    "append_messages": lambda store: store.append_messages("s", [{"role": "user", "content": "m"}] * 2),
    "append_messages, many": _many_messages,
    "truncate_messages": lambda store: store.truncate_messages("s", 1),
    "create_run": lambda store: store.create_run("s", run_id="new"),
    "update_run_status": lambda store: store.update_run_status("s", "r", "completed", output=1, step_count=2),
    "update_run_status, running": lambda store: store.update_run_status("s", "r", "running", step_count=2),
    "open_step": lambda store: store.open_step(
        "s", "next", {"role": "assistant", "content": "a"}, run_id="r", writes=SET
    ),
    "end_run": lambda store: store.end_run("s", "r", "interrupted"),
    "end_run, of a child": lambda store: store.end_run("child", "below", "completed", output=1),
    "end_run, with a step": lambda store: store.end_run(
        "s", "r", "completed", step_id="step", messages=[{"role": "assistant", "content": "a"}], writes=SET
    ),
    "recover_run": lambda store: store.recover_run("s", run_id="next"),
    "recover_run, fail": lambda store: store.recover_run("s", "fail"),
    "create_checkpoint": lambda store: store.create_checkpoint("s", {"checkpoint_id": "d"}),
    "stage_changes": lambda store: store.stage_changes("s", "step", "new", []),
    "stage_changes, again": lambda store: store.stage_changes("s", "step", "call 0", []),
    "promote_staging": lambda store: store.promote_staging("s", "step"),
    "discard_staging": lambda store: store.discard_staging("s"),
    "cleanup_orphaned_staging": lambda store: store.cleanup_orphaned_staging(older_than=timedelta(0)),
    "set_interrupt_flag": lambda store: store.set_interrupt_flag("s", "other"),
    "check_interrupt_flag": lambda store: store.check_interrupt_flag("s"),
    "clear_interrupt_flag": lambda store: store.clear_interrupt_flag("s"),
    "add_sub_session_refs": lambda store: store.add_sub_session_refs(
        "s", [{"sub_session_id": f"sub {n}", "agent_type": "agent"} for n in range(2)]
    ),
    "update_sub_session_ref": lambda store: store.update_sub_session_ref("s", "child", status="completed"),
    "emit_event": lambda store: store.emit_event("s", "llm_responded", {"n": 2}, idempotency_key="other"),
    "emit_event, message": lambda store: store.emit_event("s", "user_message", {"content": "m"}),
    "create_session, child": lambda store: store.create_session(
        "new", agent_type="agent", parent_session_id="s", custom_state={"a": 1}
    ),
    "clone_session": lambda store: store.clone_session("s", "clone"),
    "clone_session, checkpoint": lambda store: store.clone_session("s", "clone", checkpoint_id="c"),
    "delete_session": lambda store: store.delete_session("s"),
}

OTHERS: dict[str, Call] = {
    str(call): call
    for call in (*RAISING, *KEEPING)
    if call.name not in {name.partition(",")[0] for name in CALLS} | {"begin_turn", "compact"}
}
"""Without the one that creates what is absent, and the one that is two writes with a summary in between."""
