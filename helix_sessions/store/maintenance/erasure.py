"""The erasure of a person: sessions, what belongs to them, and what was kept outside the database."""

import logging
from collections.abc import Callable
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import models

from helix_sessions.exceptions import InvalidInput
from helix_sessions.models import Session
from helix_sessions.models.sessions import SessionQuerySet
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import transaction_on
from helix_sessions.store.engine.store import Store
from helix_sessions.store.maintenance import failures
from helix_sessions.store.maintenance.expiry import delete_snapshots_of
from helix_sessions.store.maintenance.exports import tree_of
from helix_sessions.store.sessions.delete import delete_session
from helix_sessions.store.transcript import archive_files
from helix_sessions.types import ErasureSummary

_COLUMNS = ("session_id", "agent_type", "workspace_ref", "message_count", "head_seq", "first_seq")
_PAGE = 100
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
    """Remove the sessions of a person, by owner, by `user_id` or by both, with their trees.

    What lies outside the database goes first, workspace snapshots and archives, so that a repeated call
    finds whatever an interrupted one left. Branches that belong to somebody else hold copies of
    messages: they are reported, and removed only with `include_forks`.
    """
    if owner is None and user_id is None:
        raise InvalidInput("Say whom to erase: an owner, a user_id or both.")
    key = inputs.owner_key(owner)
    name = inputs.optional_identifier(user_id, "user_id")
    tally = _Tally()
    waiting, seen = [_of(store.using, key, name)], set[str]()
    while waiting:
        rows = waiting.pop()
        after = ""
        while page := list(rows.filter(session_id__gt=after).values_list("session_id", flat=True)[:_PAGE]):
            for session_id in page:
                if should_stop is not None and should_stop():
                    return tally.summary()
                forks = _erase_tree(store, session_id, seen, dry_run, tally)
                if include_forks and forks:
                    waiting.append(_rows(store.using).filter(session_id__among=forks))
                else:
                    tally.forks |= forks
                if on_progress is not None:
                    on_progress(tally.summary())
            after = page[-1]
    tally.forks -= seen
    tally.answers_deleted = _answers(store.using, key, dry_run)
    return tally.summary()


def _erase_tree(store: Store, session_id: str, seen: set[str], dry_run: bool, tally: "_Tally") -> set[str]:
    """Remove a session and its tree; the branches of them that are elsewhere."""
    if session_id in seen:
        return set()
    try:
        members = [key for key in tree_of(store.using, session_id, tombstones=True) if key not in seen]
        sessions = [store._read(key, _COLUMNS, tombstones=True) for key in members]
        forked = _rows(store.using).filter(forked_from_session_id__among=members)
        forks = set(forked.values_list("session_id", flat=True)) - set(members)
        for session in sessions:
            tally.snapshots_deleted += delete_snapshots_of(session, dry_run=dry_run)
            tally.archives_deleted += _delete_archives(store.using, session.session_id, dry_run)
        if not dry_run:
            delete_session(store, session_id)
    except Exception as error:
        tally.errors += 1
        failures.report(_log, f"Session {session_id!r} could not be erased", error)
        return set()
    seen.update(members)
    tally.sessions += len(members)
    tally.messages += sum(session.message_count for session in sessions)
    tally.events += sum(session.head_seq - session.first_seq + 1 for session in sessions)
    return forks - seen


class _Tally:
    def __init__(self) -> None:
        self.sessions = self.messages = self.events = self.errors = 0
        self.snapshots_deleted = self.archives_deleted = self.answers_deleted = 0
        self.forks: set[str] = set()

    def summary(self) -> ErasureSummary:
        counts = {name: value for name, value in vars(self).items() if name != "forks"}
        return ErasureSummary(**counts, forks_left=tuple(sorted(self.forks)))


def _rows(using: str) -> SessionQuerySet:
    return Session.with_tombstones.using(using).order_by("session_id")


def _of(using: str, owner: Any, user_id: str | None) -> SessionQuerySet:
    rows = _rows(using)
    if owner is None:
        return rows.filter(user_id=user_id)
    if user_id is None:
        return rows.owned_by(owner)
    return rows.filter(models.Q(owner_id=owner) | models.Q(user_id=user_id))


def _delete_archives(using: str, session_id: str, dry_run: bool) -> int:
    """The files go before the notes, which lead a repeated erasure to them."""
    files = archive_files.files_of(using, session_id)
    if not dry_run:
        for archive in files:
            archive_files.delete_file(using, archive.storage, archive.name, besides=session_id)
    return len(files)


def _answers(using: str, owner: Any, dry_run: bool) -> int:
    """Rows of other tables that belong to the person, and would be deleted with the account."""
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
