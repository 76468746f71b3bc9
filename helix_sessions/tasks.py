"""Agents and maintenance jobs as background tasks: `django.tasks` of Django 6, or django-tasks before.

Import this module only where one of them is installed (`pip install django-helix-sessions[tasks]`). Arguments
and results are plain JSON; each result is the summary that the call of the store returns.
"""

import gzip
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from importlib import import_module
from io import TextIOWrapper
from typing import Any, TypeVar, cast

from django.core.exceptions import ImproperlyConfigured
from django.core.files import File

from helix_sessions.content.storages import storage_named
from helix_sessions.exceptions import SessionNotFound
from helix_sessions.runtime.scheduling import drive, sweep
from helix_sessions.store import SessionStore
from helix_sessions.types import PRUNED_STATUSES, Collision, RetentionPolicy, RunOutcome

F = TypeVar("F", bound=Callable[..., Any])
Summary = dict[str, Any]
_FINDINGS_RETURNED = 100


def _decorator() -> Callable[[F], F]:
    for name in ("django.tasks", "django_tasks"):
        try:
            return cast(Callable[[F], F], import_module(name).task)
        except ImportError:
            continue
    raise ImproperlyConfigured(
        "helix_sessions.tasks needs Django 6, or django-tasks: pip install django-helix-sessions[tasks]"
    )


task = _decorator()


@task
def cleanup_sessions(
    *, database: str | None = None, limit: int | None = None, agent_type: str | None = None
) -> Summary:
    """`manage.py cleanup_sessions`: expire the sessions whose time is over."""
    return asdict(SessionStore(database).expired_session_cleanup(limit=limit, agent_type=agent_type))


@task
def cleanup_debris(
    *,
    database: str | None = None,
    staged_after_minutes: float = 24 * 60,
    stuck_after_minutes: float = 30,
    wake: bool = False,
) -> Summary:
    """`manage.py cleanup_debris`: remove what crashes left, and report or wake what is stuck."""
    summary = SessionStore(database).cleanup_debris(
        staged_for=timedelta(minutes=staged_after_minutes),
        stuck_for=timedelta(minutes=stuck_after_minutes),
        wake=wake,
    )
    return {**asdict(summary), "stuck": list(summary.stuck)}


@task
def prune_sessions(
    *,
    older_than_days: float,
    database: str | None = None,
    statuses: list[str] | None = None,
    agent_types: list[str] | None = None,
    keep_tags: list[str] | None = None,
    limit: int | None = None,
) -> Summary:
    """`manage.py prune_sessions --older-than`: delete the sessions a retention policy lets go."""
    policy = RetentionPolicy(
        terminal_for=timedelta(days=older_than_days),
        statuses=tuple(statuses or PRUNED_STATUSES),
        agent_types=tuple(agent_types or ()),
        keep_tags=tuple(keep_tags or ()),
    )
    return asdict(SessionStore(database).prune_sessions(policy, limit=limit))


@task
def prune_audit_trail(
    *, older_than_days: float, database: str | None = None, limit: int | None = None
) -> Summary:
    """`manage.py prune_sessions --audit-older-than`: delete old entries of the audit trail."""
    return asdict(SessionStore(database).prune_audit_trail(timedelta(days=older_than_days), limit=limit))


@task
def archive_long_logs(*, longer_than: int, keep_events: int = 1_000, database: str | None = None) -> Summary:
    """`manage.py prune_sessions --archive-longer-than`: move the older events of long logs to a storage."""
    return asdict(SessionStore(database).archive_long_logs(longer_than=longer_than, keep=keep_events))


@task
def examine_sessions(*, database: str | None = None, repair: bool = False, deep: bool = False) -> Summary:
    """`manage.py sessions_doctor`: how many errors are left, and the first findings."""
    found = SessionStore(database).examine_sessions(repair=repair, deep=deep)
    left = [finding for finding in found if finding.severity == "error" and not finding.repaired]
    return {"errors_left": len(left), "findings": [asdict(finding) for finding in found[:_FINDINGS_RETURNED]]}


@task
def export_sessions(
    *,
    storage: str,
    name: str,
    database: str | None = None,
    session_ids: list[str] | None = None,
    owner_id: Any = None,
    user_id: str | None = None,
) -> Summary:
    """`manage.py export_sessions`, compressed, to a file of a storage; `name` in the result is its name."""
    with tempfile.TemporaryFile() as file:
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
            text = TextIOWrapper(cast(Any, packed), encoding="utf-8", newline="\n")
            summary = SessionStore(database).export_sessions(
                text, session_ids=session_ids, owner=owner_id, user_id=user_id
            )
            text.flush()
            text.detach()
        file.seek(0)
        return {**asdict(summary), "name": storage_named(storage).save(name, File(file))}


@task
def import_sessions(
    *, storage: str, name: str, database: str | None = None, on_collision: Collision = "fail"
) -> Summary:
    """`manage.py import_sessions`, from a compressed file of a storage."""
    with storage_named(storage).open(name, "rb") as stored:
        lines = TextIOWrapper(
            cast(Any, gzip.GzipFile(fileobj=cast(Any, stored))), encoding="utf-8", newline="\n"
        )
        return asdict(SessionStore(database).import_sessions(lines, on_collision=on_collision))


@task
def erase_user(
    *,
    owner_id: Any = None,
    user_id: str | None = None,
    include_forks: bool = False,
    database: str | None = None,
) -> Summary:
    """`manage.py erase_user`: remove a person's sessions everywhere."""
    summary = SessionStore(database).erase_user(owner=owner_id, user_id=user_id, include_forks=include_forks)
    return {**asdict(summary), "forks_left": list(summary.forks_left)}


@task
def wake_session(*, session_id: str, database: str | None = None) -> Summary:
    """`SessionRunner.wake` with the agent of the session's type. A session that is gone is idle."""
    return _driven(session_id, database, forced=False)


@task
def run_session(*, session_id: str, database: str | None = None) -> Summary:
    """`SessionRunner.run` with the agent of the session's type."""
    return _driven(session_id, database, forced=True)


@task
def sweep_sessions(*, database: str | None = None) -> Summary:
    """Drive runnable sessions, recover what lost workers left, fire schedules, settle deadlines. Schedule it
    every minute."""
    return {"swept": sweep(database)}


def _driven(session_id: str, database: str | None, *, forced: bool) -> Summary:
    try:
        outcome = drive(session_id, database, forced=forced)
    except SessionNotFound:
        outcome = RunOutcome(kind="idle")
    run_id = None if outcome.run is None else outcome.run.run_id
    return {"kind": outcome.kind, "run_id": run_id, "error": outcome.error}
