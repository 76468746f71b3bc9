"""Erases a person: sessions, their rows, and what is stored outside the database."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import models
from django.utils import timezone

from helix_sessions.exceptions import InvalidInput
from helix_sessions.models import MovedSession, Schedule, Session
from helix_sessions.models.moves import LEFT
from helix_sessions.models.session_querysets import SessionQuerySet
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import transaction_on
from helix_sessions.store.engine.spending import key_of_owner
from helix_sessions.store.engine.store import Store
from helix_sessions.store.keyed import blobs
from helix_sessions.store.limits import spend_totals
from helix_sessions.store.maintenance.expiry import delete_snapshots_of
from helix_sessions.store.maintenance.exports import sessions_of, tree_of
from helix_sessions.store.maintenance.job import Job, ids_of
from helix_sessions.store.memory import upkeep as memory_upkeep
from helix_sessions.store.outbox import deliveries
from helix_sessions.store.sessions.delete import delete_session
from helix_sessions.store.transcript import archive_files
from helix_sessions.types import ErasureSummary

_COLUMNS = ("session_id", "agent_type", "workspace_ref", "message_count", "head_seq", "first_seq")
_log = logging.getLogger("helix_sessions.erasure")


def erase_user(
    store: Store,
    *,
    owner: Any = None,
    user_id: str | None = None,
    include_forks: bool = False,
    dry_run: bool = False,
    on_progress: Callable[[ErasureSummary], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> ErasureSummary:
    """Remove the sessions of a person, by owner, by `user_id` or by both, with their trees, and the
    memories, spend limits and spending of the owner.

    Workspace snapshots and archives, which are outside the database, are deleted first, so that a retry
    finds what an interrupted call left. Branches of another owner have copies of messages: they are
    reported, and removed only with `include_forks`. A store of one owner removes nothing of others.
    """
    if owner is None and user_id is None:
        raise InvalidInput("Say whom to erase: an owner, a user_id or both.")
    key = None if owner is None else store._owner_key(owner)
    name = inputs.optional_identifier(user_id, "user_id")
    job = Job(ErasureSummary(), _log, dry_run=dry_run, on_progress=on_progress, should_stop=should_stop)
    if key is not None:
        job.count(answers_deleted=_schedules(store.using, key, dry_run))  # they would make new sessions
    to_erase, erased, forks_left = [_of(store, key, name)], set[str](), set[str]()
    for session_id in job.over(_ids_of_all(to_erase)):
        with job.attempt(f"Session {session_id!r} could not be erased"):
            top = session_id if session_id in erased else _top_of(store, session_id, key, name)
            forks = _erase_tree(store, top, erased, job)
            if include_forks and forks:
                to_erase.append(_rows(store).filter(session_id__among=forks))
            else:
                forks_left |= forks
                job.summary = replace(job.summary, forks_left=tuple(sorted(forks_left)))
    if not job.is_stopped:
        job.summary = replace(job.summary, forks_left=tuple(sorted(forks_left - erased)))
        job.count(answers_deleted=_answers(store.using, key, dry_run))
        if key is not None:
            job.count(answers_deleted=_departures(store.using, key, dry_run))
            job.count(memories=memory_upkeep.erase_owner(store.using, key, dry_run=dry_run))
            job.count(answers_deleted=spend_totals.erase_owner(store.using, key, dry_run=dry_run))
    return job.summary


def _ids_of_all(waiting: list[SessionQuerySet]) -> Iterator[str]:
    """The ids of the sessions of each queryset. The caller may append more on the way."""
    while waiting:
        yield from ids_of(waiting.pop())


def _top_of(store: Store, session_id: str, owner: Any, user_id: str | None) -> str:
    """The highest session above one that is to be erased as well, so that no parent is told of children and
    runs before it is erased itself."""
    top, met, theirs = session_id, {session_id}, _of(store, owner, user_id)
    while True:
        named = _rows(store).filter(session_id=top).values_list("parent_session_id", flat=True).first()
        if named is None or named in met or not theirs.filter(session_id=named).exists():
            return top
        top = named
        met.add(top)


def _erase_tree(store: Store, session_id: str, erased: set[str], job: Job[ErasureSummary]) -> set[str]:
    """Remove a session and its tree; return their branches outside of it."""
    if session_id in erased:
        return set()
    tree = tree_of(store.using, session_id, tombstones=True, owner=store._owner)
    members = [key for key in tree if key not in erased]
    sessions = [store._read(key, _COLUMNS, tombstones=True) for key in members]
    forked = _rows(store).filter(forked_from_session_id__among=members)
    forks = set(forked.values_list("session_id", flat=True)) - set(members)
    for session in sessions:
        job.count(snapshots_deleted=delete_snapshots_of(session, dry_run=job.dry_run))
        job.count(archives_deleted=_delete_archives(store.using, session.session_id, job.dry_run))
    if not job.dry_run:
        began, had = timezone.now(), blobs.of_sessions(store.using, members)
        delete_session(store, session_id)
        for sha in had:
            blobs.remove_unused(store.using, sha, began, grace=0)
        deliveries.forget_sessions(store.using, members)
    erased.update(members)
    job.count(
        sessions=len(members),
        messages=sum(session.message_count for session in sessions),
        events=sum(session.head_seq - session.first_seq + 1 for session in sessions),
    )
    return forks - erased


def _rows(store: Store) -> SessionQuerySet:
    return sessions_of(store.using, store._owner, tombstones=True)


def _of(store: Store, owner: Any, user_id: str | None) -> SessionQuerySet:
    rows = _rows(store)
    if owner is None:
        return rows.filter(user_id=user_id)
    if user_id is None:
        return rows.owned_by(owner)
    return rows.filter(models.Q(owner_id=owner) | models.Q(user_id=user_id))


def _delete_archives(using: str, session_id: str, dry_run: bool) -> int:
    """Delete the files; their rows stay, so that a retry finds the files."""
    files = archive_files.files_of(using, session_id)
    if not dry_run:
        for archive in files:
            archive_files.delete_file(using, archive.storage, archive.name, besides=session_id)
    return len(files)


def _schedules(using: str, owner: Any, dry_run: bool) -> int:
    """Delete the schedules of the account; return how many. A dry run counts them with the other rows."""
    if dry_run:
        return 0
    rows = Schedule.objects.using(using).filter(owner_id=owner)
    with transaction_on(using):
        return rows.delete()[1].get(Schedule._meta.label, 0)


def _departures(using: str, owner: Any, dry_run: bool) -> int:
    """Delete what says where sessions of the account went; return how many there were."""
    rows = MovedSession.objects.using(using).filter(owner_key=key_of_owner(owner), state=LEFT)
    with transaction_on(using):
        return rows.count() if dry_run else rows.delete()[0]


def _answers(using: str, owner: Any, dry_run: bool) -> int:
    """Delete the rows of other tables that refer to the account; return how many."""
    if owner is None:
        return 0
    count = 0
    for model in apps.get_app_config("helix_sessions").get_models():
        for field in model._meta.local_concrete_fields:
            if model is not Session and field.related_model is get_user_model():
                rows = model._default_manager.using(using).filter(**{field.attname: owner})
                with transaction_on(using):
                    count += rows.count() if dry_run else rows.delete()[0]
    return count
