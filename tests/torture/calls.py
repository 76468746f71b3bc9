"""The calls a writer makes at random: what each must change, and how its repetition is known for one."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from helix_sessions import exceptions as errors
from helix_sessions.store import SessionStore
from helix_sessions.types import CheckpointMeta, PendingCall, SessionState
from tests.contract.machine.model import OWNED
from tests.torture.expected import NOTE, STEP, Expected

Intent = dict[str, Any]
"""A call as the journal holds it: `n`, `call`, `session`, `version` (before it) and, for commits, `state`."""


@dataclass(frozen=True)
class Call:
    """One call of the store."""

    make: Callable[[SessionStore, Intent, Expected], Any]
    expect: Callable[[Expected, Intent], Any]
    """Changes what is expected, the version aside."""
    possible: Callable[[Expected], object] = lambda _: True
    raises: int = 1
    """By how much the version rises."""
    done_before: tuple[type[Exception], ...] = (errors.StaleState,)
    """How a repetition is told that the call took place before; a keyed call just answers again."""
    needs_state: bool = False


def perform(store: SessionStore, intent: Intent, expected: Expected, *, again: bool = False) -> None:
    """Make the call, or make it again to settle whether it took place."""
    call = CALLS[intent["call"]]
    try:
        outcome = call.make(store, intent, expected)
    except call.done_before:
        if not again:
            raise
        return
    repeated = getattr(outcome, "replayed", False) or getattr(outcome, "outcome", "") == "already_completed"
    if not again:
        assert outcome is None or outcome, f"{intent} was refused: {outcome}"
        assert not repeated, f"{intent} was made before"


def after(expected: Expected, intent: Intent) -> Expected:
    """What is expected once the call has taken place."""
    call = CALLS[intent["call"]]
    then = deepcopy(expected)
    then.version += call.raises
    call.expect(then, intent)
    return then


def _state(store: SessionStore, intent: Intent) -> SessionState:
    """The state the caller had when it first made the call, with this call's mark in it."""
    state = replace(store.load_state(intent["session"]), **intent["state"])
    done = [*state.custom_state["done"], intent["n"]]
    return replace(state, custom_state={"done": done}, step_count=state.step_count + 1)


def owned(state: SessionState) -> dict[str, Any]:
    """What of a state a caller saves, for the journal."""
    return {name: getattr(state, name) for name in OWNED}


def _meta(intent: Intent, **more: Any) -> CheckpointMeta:
    return CheckpointMeta(checkpoint_id=f"c{intent['n']}", **more)


def _message(role: str, intent: Intent) -> dict[str, Any]:
    return {"role": role, "content": intent["n"]}


def _append(path: str, intent: Intent) -> list[dict[str, Any]]:
    return [{"op": "append", "path": [path], "values": [intent["n"]]}]


def _commit(store: SessionStore, intent: Intent, expected: Expected) -> Any:
    messages = [_message("assistant", intent), _message("system", intent)]
    meta = _meta(intent, step_id=STEP)
    return store.save_state_and_promote_staging(
        intent["session"], _state(store, intent), messages, meta, expected_version=intent["version"]
    )


def _committed(expected: Expected, intent: Intent) -> None:
    expected.done.append(intent["n"])
    expected.step_count += 1
    expected.say(intent["n"], "assistant", "system")
    expected.promote()
    expected.point(intent["n"])


def _promoted(expected: Expected, intent: Intent) -> None:
    expected.promote()
    expected.point(intent["n"])


def _suspend(store: SessionStore, intent: Intent, expected: Expected) -> Any:
    run = intent["run"]
    asked = PendingCall(tool_call_id=f"t{intent['n']}", tool_name="ask", arguments={})
    call = {"id": asked.tool_call_id, "name": "ask", "arguments": {}}
    return store.suspend(
        intent["session"],
        "client_tool",
        state=_state(store, intent),
        run_id=run,
        append_messages=[{**_message("assistant", intent), "tool_calls": [call]}],
        pending_calls=[asked],
        checkpoint_meta=_meta(intent),
        expected_version=intent["version"],
    )


def _suspended(expected: Expected, intent: Intent) -> None:
    expected.runs[intent["run"]] = "suspended_client_tool"
    expected.status = "active"
    expected.done.append(intent["n"])
    expected.step_count += 1
    expected.say(intent["n"], "assistant")
    expected.promote()
    expected.point(intent["n"])
    expected.waiting[f"t{intent['n']}"] = None


def _submit(store: SessionStore, intent: Intent, expected: Expected) -> Any:
    return store.submit_tool_result(intent["session"], intent["waits"], result=intent["n"])


def _submitted(expected: Expected, intent: Intent) -> None:
    expected.waiting[intent["waits"]] = intent["n"]


def _resume(store: SessionStore, intent: Intent, expected: Expected) -> Any:
    return store.resume(intent["session"], run_id=f"r{intent['n']}", expected_version=intent["version"])


def _resumed(expected: Expected, intent: Intent) -> None:
    expected.runs[f"r{intent['n']}"] = "running"
    expected.resume_count += 1
    expected.flag = None
    expected.messages += [["tool", answer] for answer in expected.waiting.values()]
    expected.waiting = {}


def _begin(store: SessionStore, intent: Intent, expected: Expected) -> Any:
    return store.begin_turn(intent["session"], message=_message("user", intent), run_id=f"r{intent['n']}")


def _begun(expected: Expected, intent: Intent) -> None:
    expected.status, expected.step_count = "active", 0
    expected.say(intent["n"], "user")
    expected.runs[f"r{intent['n']}"] = "running"


def _set(expected: Expected, **values: Any) -> None:
    vars(expected).update(values)


def _cas(store: SessionStore, intent: Intent, expected: Expected) -> Any:
    return store.compare_and_set_status(
        intent["session"], [intent["from"]], intent["to"], expected_version=intent["version"]
    )


def _decided(expected: Expected, intent: Intent) -> None:
    expected.status = intent["to"]
    if expected.running is not None and intent["to"] != "active":
        expected.runs[expected.running] = "interrupted"


def _branch(intent: Intent) -> str:
    return f"{intent['session']}.{intent['n']}"


def _plain(name: str, *arguments: Callable[[Intent], Any], **more: Callable[[Intent], Any]) -> Any:
    """A call that is told apart from its repetition by the version it expects."""

    def make(store: SessionStore, intent: Intent, expected: Expected) -> Any:
        given = [argument(intent) for argument in arguments]
        options = {key: value(intent) for key, value in more.items()}
        outcome = getattr(store, name)(
            intent["session"], *given, expected_version=intent["version"], **options
        )
        return None if isinstance(outcome, int) else outcome

    return make


CALLS: dict[str, Call] = {
    "create_session": Call(
        lambda store, intent, _: store.create_session(
            intent["session"], agent_type="agent", custom_state={"done": []}
        ),
        lambda expected, _: _set(expected, exists=True),
        lambda expected: not expected.exists,
        done_before=(errors.SessionExists,),
    ),
    "emit_event": Call(
        lambda store, intent, _: store.emit_event(
            intent["session"], NOTE, {"n": intent["n"]}, idempotency_key=f"k{intent['n']}"
        ),
        lambda expected, intent: expected.notes.append(intent["n"]),
        raises=0,
    ),
    "emit_event, message": Call(
        lambda store, intent, _: store.emit_event(
            intent["session"], "user_message", {"content": intent["n"]}, idempotency_key=f"k{intent['n']}"
        ),
        lambda expected, intent: expected.say(intent["n"], "user"),
        lambda expected: not expected.waiting,
    ),
    "append_messages": Call(
        _plain("append_messages", lambda intent: [_message("user", intent), _message("system", intent)]),
        lambda expected, intent: expected.say(intent["n"], "user", "system"),
        lambda expected: not expected.waiting,
    ),
    "append_messages, many": Call(
        _plain("append_messages", lambda intent: [_message("user", intent)] * 60),
        lambda expected, intent: expected.say(intent["n"], *["user"] * 60),
        lambda expected: not expected.waiting and len(expected.messages) < 60,
    ),
    "truncate_messages": Call(
        _plain("truncate_messages", lambda intent: intent["keep"]),
        lambda expected, intent: _set(expected, messages=expected.messages[: intent["keep"]]),
        lambda expected: len(expected.messages) > 1 and not expected.waiting,
    ),
    "stage_changes": Call(
        lambda store, intent, _: store.stage_changes(
            intent["session"], STEP, f"call {intent['n']}", _append("done", intent)
        ),
        lambda expected, intent: expected.staged.append(intent["n"]),
        raises=0,
    ),
    "save_state_and_promote_staging": Call(
        _commit, _committed, lambda expected: not expected.waiting, needs_state=True
    ),
    "promote_staging": Call(
        lambda store, intent, _: store.promote_staging(intent["session"], STEP, _meta(intent)),
        _promoted,
        lambda expected: expected.staged,
    ),
    "create_checkpoint": Call(
        lambda store, intent, _: store.create_checkpoint(intent["session"], _meta(intent)),
        lambda expected, intent: expected.point(intent["n"]),
    ),
    "merge_custom_state": Call(
        _plain("merge_custom_state", lambda intent: _append("done", intent)),
        lambda expected, intent: expected.done.append(intent["n"]),
    ),
    "patch_metadata": Call(
        _plain("patch_metadata", lambda intent: {f"m{intent['n'] % 5}": intent["n"]}),
        lambda expected, intent: expected.marks.update({f"m{intent['n'] % 5}": intent["n"]}),
    ),
    "increment_step_count": Call(
        _plain("increment_step_count"),
        lambda expected, _: _set(expected, step_count=expected.step_count + 1),
    ),
    "compare_and_set_status": Call(
        _cas,
        _decided,
        lambda expected: not expected.waiting,
    ),
    "set_interrupt_flag": Call(
        _plain("set_interrupt_flag", lambda intent: str(intent["n"])),
        lambda expected, intent: _set(expected, flag=str(intent["n"])),
    ),
    "check_interrupt_flag": Call(
        _plain("check_interrupt_flag"),
        lambda expected, _: _set(expected, flag=None),
        lambda expected: expected.flag is not None,
    ),
    "create_run": Call(
        _plain("create_run", run_id=lambda intent: f"r{intent['n']}"),
        lambda expected, intent: expected.runs.update({f"r{intent['n']}": "running"}),
        lambda expected: expected.running is None and not expected.is_suspended,
    ),
    "update_run_status": Call(
        _plain("update_run_status", lambda intent: intent["run"], lambda _: "completed"),
        lambda expected, intent: expected.runs.update({intent["run"]: "completed"}),
        lambda expected: expected.running,
    ),
    "begin_turn": Call(
        _begin,
        _begun,
        lambda expected: expected.running is None and not expected.is_suspended,
        done_before=(errors.RunInProgress,),
    ),
    "suspend": Call(_suspend, _suspended, lambda expected: expected.running, needs_state=True),
    "submit_tool_result": Call(_submit, _submitted, lambda expected: None in expected.waiting.values()),
    "resume": Call(
        _resume, _resumed, lambda expected: expected.waiting and None not in expected.waiting.values()
    ),
    "clone_session": Call(
        lambda store, intent, _: store.clone_session(intent["session"], _branch(intent)),
        lambda expected, intent: expected.branches.update(
            {_branch(intent): [list(expected.done), list(expected.messages)]}
        ),
        raises=0,
        done_before=(errors.SessionExists,),
    ),
    "delete_session": Call(
        lambda store, intent, _: store.delete_session(intent["branch"]),
        lambda expected, intent: expected.branches.pop(intent["branch"]),
        lambda expected: expected.branches,
        raises=0,
    ),
}
