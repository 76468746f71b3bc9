"""Turns: begin or continue a session, with a run to execute."""

from collections.abc import Collection, Mapping
from typing import Any

from helix_sessions.content import documents
from helix_sessions.exceptions import (
    InvalidInput,
    RunInProgress,
    SessionExists,
    SessionNotFound,
    StillWaiting,
)
from helix_sessions.store.engine import ids, inputs, open_calls
from helix_sessions.store.engine.session_columns import ALL_COLUMNS
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import runs, statuses
from helix_sessions.store.sessions import branch, create
from helix_sessions.store.state import child_waits, pending_calls, snapshots, state_rows
from helix_sessions.types import JSON, UNSET, Message, Run, Turn


def begin_turn(
    store: Store,
    session_id: str,
    *,
    message: str | Message | None = None,
    agent_type: str | None = None,
    branch: tuple[str, str | None] | None = None,
    custom_state: Mapping[str, JSON] | None = None,
    run_id: str | None = None,
    expected_version: int | None = None,
) -> Turn:
    """Begin a turn: of a new session, of a branch, or of a session that exists, which is continued.

    `agent_type`, `branch` and `custom_state` are about a session that is created; one that exists is
    continued as it is: active, with its memory, and a step count of 0. Open tool calls get a result, as
    `transcripts.heal` gives it, so that a model accepts the transcript.
    """
    key = session_key(session_id)
    said = inputs.optional_turn_message(message)
    source = _branch(branch)
    agent = inputs.optional_identifier(agent_type, "agent_type")
    text = inputs.optional_mapping(custom_state, "custom_state")
    version = inputs.expected_version(expected_version)
    run_key = ids.new_id() if run_id is None else inputs.identifier(run_id, "The run id")
    while True:
        try:
            return _continue(store, key, said, run_key, version)
        except SessionNotFound:
            if version is not None:
                raise
        store._refuse_to_recreate(key)
        try:
            return _create(store, key, said, run_key, agent, source, text)
        except SessionExists:
            store._refuse_if_taken(key)


def _continue(
    store: Store, key: str, said: tuple[str, str] | None, run_id: str, expected_version: int | None
) -> Turn:
    with store._write(key, expected_version, columns=ALL_COLUMNS) as work:
        session = work.session
        if session.run_id is not None:
            raise RunInProgress(f"Run {session.run_id!r} is running.")
        _refuse_while_waiting(work)
        custom = snapshots.read(work.connection, key, session.state_base, session.state_number)
        run = go_on(work, said, run_id)
    return Turn(state=state_rows.state_of(work.session, custom), run=run)


def _create(
    store: Store,
    key: str,
    said: tuple[str, str] | None,
    run_id: str,
    agent_type: str | None,
    source: tuple[str, str | None] | None,
    custom_state: str | None,
) -> Turn:
    given = None if custom_state is None else documents.load(custom_state)
    with locking_transaction(store.using) as connection:
        if source is None:
            named = agent_type or "agent"
            owner = None if store._owner is UNSET else store._owner
            work = create.new_work(connection, {"session_id": key, "agent_type": named, "owner_id": owner})
            custom = given or {}
            snapshots.record(work, custom, custom_state or "{}")
            work.event("session_started", {"agent_type": work.session.agent_type})
        else:
            work, custom = branch.branch(
                connection, source[0], key, source[1], custom=given, owner=store._owner
            )
            work.change(step_count=0, agent_type=agent_type or work.session.agent_type)
        run = _open(work, said, run_id)
        work.flush()
    return Turn(state=state_rows.state_of(work.session, custom), run=run)


def go_on(
    work: UnitOfWork,
    said: tuple[str, str] | None,
    run_id: str,
    metadata: str = "{}",
    spared: Collection[str] = (),
    *,
    fresh: bool = False,
) -> Run:
    """Continue the locked session with a new run. Calls that are `spared` stay open."""
    if work.session.status == "active":
        work.change(**dict.fromkeys(statuses.CLEARED_ON_ACTIVE))
    else:
        statuses.enter(work, {"status": "active"})
    work.change(step_count=0, output=None, suspended_step_id=None, suspension_context=None)
    return _open(work, said, run_id, metadata, spared, fresh=fresh)


def heal(work: UnitOfWork, spared: Collection[str] = ()) -> None:
    """Give each open call of the locked session a result, as `transcripts.heal` does."""
    for message in open_calls.closing_messages(work.session.open_calls):
        if message["tool_call_id"] not in spared:
            work.message("tool", documents.write(message))


def _open(
    work: UnitOfWork,
    said: tuple[str, str] | None,
    run_id: str,
    metadata: str = "{}",
    spared: Collection[str] = (),
    *,
    fresh: bool = False,
) -> Run:
    heal(work, spared)
    if said is not None:
        work.message(*said)
    return runs.start(work, run_id, metadata, fresh=fresh)


def is_waiting(work: UnitOfWork) -> bool:
    """Whether the locked session waits for answers, or has some that no resume has consumed yet."""
    session = work.session
    return bool(
        pending_calls.read(session.pending_client_tool_calls)
        or child_waits.read(session.suspended_awaiting_children)
    )


def _refuse_while_waiting(work: UnitOfWork) -> None:
    """Refuse a session that waits, or has answers to consume: it has to be resumed."""
    if not is_waiting(work):
        return
    calls = pending_calls.read(work.session.pending_client_tool_calls)
    awaited = child_waits.read(work.session.suspended_awaiting_children)
    call_ids, children = pending_calls.ids(pending_calls.unanswered(calls)), child_waits.waiting(awaited)
    if call_ids or children:
        raise StillWaiting(tool_call_ids=call_ids, sub_session_ids=children)
    raise StillWaiting(
        "All that the session waited for is there; resume it.",
        tool_call_ids=calls,
        sub_session_ids=[wait["sub_session_id"] for wait in awaited.values()],
    )


def _branch(value: Any) -> tuple[str, str | None] | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, tuple | list) or len(value) != 2:
        raise InvalidInput("A branch is a source session's id and a checkpoint id, or None for now.")
    checkpoint_id = inputs.optional_identifier(value[1], "The checkpoint id", limit=inputs.MAX_CHECKPOINT_ID)
    return session_key(value[0]), checkpoint_id
