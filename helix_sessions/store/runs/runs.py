"""Runs: start, update, end."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from helix_sessions import models
from helix_sessions.content import documents
from helix_sessions.exceptions import RunEnded, RunExists, RunInProgress, RunNotFound
from helix_sessions.models.runs import RunQuerySet
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.cursors import Pager
from helix_sessions.store.engine.ids import new_id
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import ownership, usages
from helix_sessions.store.state import runnable
from helix_sessions.types import (
    JSON,
    RUN_STATUSES,
    UNSET,
    Page,
    Run,
    RunStatus,
    Unset,
)

_DOCUMENTS = ("output", "error", "usage", "metadata")


def create_run(
    store: Store,
    session_id: str,
    *,
    run_id: str | None = None,
    metadata: Mapping[str, JSON] | None = None,
    expected_version: int | None = None,
) -> Run:
    """Start a run. At most one of a session is running."""
    key = new_id() if run_id is None else inputs.identifier(run_id, "The run id")
    described = inputs.mapping({} if metadata is None else metadata, "metadata")
    with store._write(session_id, expected_version) as work:
        return start(work, key, described)


def update_run_status(
    store: Store,
    session_id: str,
    run_id: str,
    status: RunStatus,
    *,
    step_count: int | None = None,
    output: JSON | Unset = UNSET,
    error: JSON = None,
    usage: JSON = None,
    expected_version: int | None = None,
) -> Run:
    """Move a run on, or end it; one that has ended is `RunEnded`. Who ends a run that another process
    drives takes its lease away."""
    key = inputs.identifier(run_id, "The run id")
    changes: dict[str, Any] = {"status": inputs.choice(status, RUN_STATUSES, "The status of a run")}
    if step_count is not None:
        changes["step_count"] = inputs.integer(step_count, "step_count")
    if output is not UNSET:
        changes["output"] = inputs.document(output)
    if error is not None:
        changes.update(inputs.error_columns(error))
    if usage is not None:
        changes["usage"] = inputs.document(usage)
    with store._write(session_id, expected_version) as work:
        run = find(store.using, work.session.session_id, key)
        if run.status != "running":
            raise RunEnded(f"Run {run.run_id!r} has ended as {run.status}; a resume is a new run.")
        work.note_activity()
        advanced = advance(work, run, changes)
        if advanced.status != "running":
            ownership.revoke(work)
    return advanced


def get_current_run(store: Store, session_id: str) -> Run | None:
    """The running run, if there is one."""
    store._read(session_id, ("session_id",))
    row = models.Run.objects.using(store.using).filter(session_id=session_id).running().first()
    return None if row is None else _value(row)


def get_run(store: Store, session_id: str, run_id: str) -> Run:
    """One run."""
    store._read(session_id, ("session_id",))
    return find(store.using, session_id, inputs.identifier(run_id, "The run id"))


def list_runs(store: Store, session_id: str, *, limit: int = 50, cursor: str | None = None) -> Page[Run]:
    """The session's runs, newest first."""
    return page_of_runs(store, query_runs(store, session_id), limit=limit, cursor=cursor)


def query_runs(store: Store, session_id: str) -> RunQuerySet:
    """The session's runs, newest first; to be narrowed, and read with `page_of_runs`."""
    store._read(session_id, ("session_id",))
    rows = models.Run.objects.using(store.using).filter(session_id=session_key(session_id))
    return rows.newest_first()


def page_of_runs(store: Store, rows: RunQuerySet, *, limit: int = 50, cursor: str | None = None) -> Page[Run]:
    """A page of what `query_runs` was narrowed to."""
    return Pager("runs", "turn", limit=limit, cursor=cursor, newest_first=True).page(rows, _value)


def start(work: UnitOfWork, run_id: str, metadata: str, *, fresh: bool = False) -> Run:
    """Start a run of the locked session. A `fresh` id was made for it, so no other run has it."""
    session = work.session
    if session.run_id is not None:
        raise RunInProgress(f"Run {session.run_id!r} is running.")
    rows = models.Run.objects.using(work.connection.alias)
    if not fresh and rows.filter(session_id=session.session_id, run_id=run_id).exists():
        raise RunExists(f"Session {session.session_id!r} has a run {run_id!r} already.")
    run = Run(
        run_id=run_id,
        session_id=session.session_id,
        turn=session.turn_count + 1,
        status="running",
        step_count=0,
        start_sequence=session.head_seq,
        end_sequence=None,
        output=None,
        error=None,
        usage=None,
        metadata=documents.load(metadata),
        started_at=work.now,
        ended_at=None,
    )
    work.insert(
        models.Run,
        run_id=run_id,
        turn=run.turn,
        status=run.status,
        step_count=0,
        start_sequence=run.start_sequence,
        metadata=metadata,
        started_at=work.now,
    )
    work.change(turn_count=run.turn, run_id=run_id)
    work.note_activity()
    runnable.run_began(work)
    first = turn_id_of(run_id, 1) if work.is_drivers else None
    work.event("run_started", {"run_id": run_id, "turn": run.turn}, turn_id=first)
    return run


def turn_id_of(run_id: str, number: int) -> str:
    """The id of a turn of a run that a runner drives, counted from 1."""
    return f"{run_id}:{number}"


def advance(
    work: UnitOfWork,
    run: Run,
    changes: dict[str, Any],
    *,
    makes_room: bool = False,
    turn_id: str | None = None,
) -> Run:
    """Change a running run of the locked session; a status other than `running` ends it. `makes_room`: the
    same write starts the next one. `turn_id`: of the turn in which it ends."""
    status = changes["status"]
    usages.replace(work, run.usage, changes.get("usage"))
    if status == "running":
        work.event("run_updated", {"run_id": run.run_id}, run_id=run.run_id)
    else:
        data = {"run_id": run.run_id, "status": status}
        seq = work.event("run_finished", data, run_id=run.run_id, turn_id=turn_id)
        changes = {**changes, "end_sequence": seq, "ended_at": work.now}
        work.change(run_id=None)
    update = work.update_first if makes_room else work.update
    update(models.Run, {"run_id": run.run_id}, **changes)
    if status != "running" and not makes_room:
        runnable.follow(work)
    read = {name: documents.load(text) for name in _DOCUMENTS if (text := changes.get(name)) is not None}
    changed = {name: value for name, value in changes.items() if name != "error_fingerprint"}
    return replace(run, **{**changed, **read})


def find(using: str, session_id: str, run_id: str) -> Run:
    """A run of an existing session."""
    row = models.Run.objects.using(using).filter(session_id=session_id, run_id=run_id).first()
    if row is None:
        raise RunNotFound(f"Session {session_id!r} has no run {run_id!r}.")
    return _value(row)


def _value(row: models.Run) -> Run:
    return Run(
        run_id=row.run_id,
        session_id=row.session_id,
        turn=row.turn,
        status=row.status,
        step_count=row.step_count,
        start_sequence=row.start_sequence,
        end_sequence=row.end_sequence,
        output=row.output,
        error=row.error,
        usage=row.usage,
        metadata=row.metadata,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )
