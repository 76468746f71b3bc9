"""The ends of what a driver does, each one transaction: a step that begins with what a model said, and the
end of a run with its session."""

from collections.abc import Iterable
from typing import Any

from helix_sessions.content import documents
from helix_sessions.store.calls import children
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.transactions import Transaction, write_tree
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import interrupts, runs
from helix_sessions.store.state import checkpoints, snapshots, staging
from helix_sessions.types import (
    ENDINGS,
    JSON,
    AppendResult,
    CheckpointMeta,
    Message,
    Messages,
    Run,
    RunEnding,
)
from helix_sessions.writes import apply_writes, parse_writes


def open_step(
    store: Store, session_id: str, step_id: str, message: Message, *, run_id: str, writes: Iterable[Any] = ()
) -> AppendResult:
    """Append what a model said, and stage its own writes for the commit of the step, whose tools are
    executed now. The message's event has the step's id for its `turn_id`."""
    step = inputs.identifier(step_id, "step_id")
    role, text = inputs.message(message)
    run = inputs.identifier(run_id, "The run id")
    parsed = parse_writes(writes)
    staged = documents.dump(parsed)

    def open_step(work: UnitOfWork) -> None:
        work.message(role, text, run_id=run, turn_id=step)
        if parsed:
            staging.stage(work, step, step, staged)

    work, _ = store._decide(session_id, open_step)
    session = work.session
    return AppendResult(
        first_position=session.message_count - 1,
        message_count=session.message_count,
        version=session.version,
        head_seq=session.head_seq,
    )


def end_run(
    store: Store,
    session_id: str,
    run_id: str,
    status: RunEnding,
    *,
    step_id: str | None = None,
    messages: Messages = (),
    writes: Iterable[Any] = (),
    discard: bool = False,
    step_count: int | None = None,
    output: JSON = None,
    error: JSON = None,
    failure_reason: str | None = None,
    usage: JSON = None,
) -> Run:
    """End a run, and its session with it: `completed`, `failed` or `interrupted`.

    With a `step_id` its last step is committed: the messages, what the step staged and then `writes`, and
    a checkpoint. `discard` forgets what it staged instead. An `interrupted` session takes the request to
    stop. Who waits for the session as for a child is told. A session whose status another caller has
    changed keeps it, and a run that another caller has ended stays as it is.
    """
    key = session_key(session_id)
    run_key = inputs.identifier(run_id, "The run id")
    ending = inputs.choice(status, ENDINGS, "The status of a run that ends")
    step = inputs.optional_identifier(step_id, "step_id")
    said, parsed = inputs.messages(messages), parse_writes(writes)
    forgets = inputs.flag(discard, "discard")
    columns = {
        "step_count": inputs.optional_integer(step_count, "step_count"),
        "output": inputs.document(output),
        **inputs.error_columns(error),
        "usage": inputs.document(usage),
    }
    reason = None if failure_reason is None else inputs.text(failure_reason, "failure_reason")
    with write_tree(store.using, store._lease) as tree:
        parent, work = children.lock_with_parent(tree, key, store._owner)
        store._check_head(work)
        run = runs.find(store.using, key, run_key)
        source = None if step is None else _commit(work, step, said, parsed, discard=forgets)
        if work.session.run_id == run_key:
            given = {name: value for name, value in columns.items() if value is not None}
            run = runs.advance(work, run, {"status": ending, **given})
            _end_session(tree, work, parent, {**columns, "status": ending, "failure_reason": reason})
        if source is not None:
            checkpoints.record(work, CheckpointMeta(step_id=step, run_id=run_key), source)
    return run


def _commit(
    work: UnitOfWork,
    step_id: str,
    messages: list[tuple[str, str]],
    writes: list[dict[str, Any]],
    *,
    discard: bool,
) -> str:
    """Commit a step to the locked session as it is now, all but its checkpoint; that one's source."""
    session = work.session
    for role, content in messages:
        work.message(role, content)
    promoted = False
    if discard:
        staging.discard_step(work, step_id)
    elif session.staged_count or writes:
        before = snapshots.read(work.connection, session.session_id, session.state_base, session.state_number)
        custom, changes = staging.promote(work, before, step_id)
        promoted = bool(changes)
        custom = apply_writes(custom, writes)
        snapshots.record(work, custom, documents.dump(custom), before=before)
    work.change(step_count=session.step_count + 1)
    work.event("state_saved", {"step_count": session.step_count})
    return "staging" if promoted else "save"


def _end_session(
    tree: Transaction, work: UnitOfWork, parent: UnitOfWork | None, columns: dict[str, Any]
) -> None:
    request = interrupts.clear(work) if columns["status"] == "interrupted" else None
    if work.session.status != "active":
        return
    names = ("output", "error", "error_fingerprint", "failure_reason")
    given = {name: columns[name] for name in names if columns[name] is not None}
    if columns["status"] == "interrupted":
        context = {"reason": None if request is None else request.reason}
        given["interrupt_context"] = documents.write(context)
    children.enter(tree, parent, work, {"status": columns["status"], **given})
