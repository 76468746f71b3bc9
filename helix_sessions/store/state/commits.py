"""The step commit: state, staged writes, messages and checkpoint in one transaction."""

from typing import Any, NamedTuple

from helix_sessions.content import documents
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.transactions import check_version
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.state import checkpoints, snapshots, staging, state_rows, states
from helix_sessions.store.state.checkpoints import MetaLike
from helix_sessions.types import CheckpointMeta, CommitResult, Messages, SessionState


def save_state_and_promote_staging(
    store: Store,
    session_id: str,
    state: SessionState,
    append_messages: Messages = (),
    checkpoint_meta: MetaLike = None,
    *,
    expected_version: int | None = None,
) -> CommitResult:
    """Write the state with the staged writes on top, append the messages, make the checkpoint.

    A caller that lost the answer repeats the call with the same checkpoint id and gets it again.
    """
    step = check(state, append_messages)
    meta = checkpoints.check_meta(checkpoint_meta)
    version = inputs.expected_version(expected_version)
    fingerprint = step.fingerprint("commit", meta)

    def commit(work: UnitOfWork) -> CommitResult | None:
        made = checkpoints.replay(work, meta, fingerprint)
        if made is not None:
            return made
        check_version(work, version)
        promoted = put(work, step, meta)
        checkpoints.record(work, meta, "staging" if promoted else "save", fingerprint)
        return None

    work, made = store._decide(session_id, commit)
    return made or checkpoints.result_of(work)


class CheckedStep(NamedTuple):
    """What a step commits, checked."""

    state: SessionState
    columns: dict[str, Any]
    custom_state: str
    messages: list[tuple[str, str]]

    def fingerprint(self, kind: str, meta: CheckpointMeta, *more: str) -> str:
        """What identifies a repeated commit; without an id it cannot be repeated."""
        if meta.checkpoint_id is None:
            return ""
        said = [f"{role} {content}" for role, content in self.messages]
        return documents.digest(kind, repr(self.columns), self.custom_state, meta.step_id or "", *more, *said)


def check(state: SessionState, messages: Messages) -> CheckedStep:
    """A caller's step, before anything is locked."""
    return CheckedStep(
        state, state_rows.owned_columns(state), state_rows.custom_state(state), inputs.messages(messages)
    )


def put(work: UnitOfWork, step: CheckedStep, meta: CheckpointMeta) -> bool:
    """Commit a step to the locked session, without its checkpoint; whether staged writes were promoted."""
    states.put(work, step.state, step.columns)
    work.note_activity()
    for role, content in step.messages:
        work.message(role, content)
    custom, promoted = staging.promote(work, step.state.custom_state, meta.step_id)
    snapshots.record(work, custom, documents.dump(custom) if promoted else step.custom_state)
    work.event("state_saved", {"step_count": step.state.step_count})
    return bool(promoted)
