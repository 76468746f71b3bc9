"""Delete a session, what belongs to it, and its tree."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.exceptions import SessionNotFound
from helix_sessions.models import Session, SubSessionRef
from helix_sessions.store.calls import children, tool_rules
from helix_sessions.store.engine import inputs, moves
from helix_sessions.store.engine.connection import execute
from helix_sessions.store.engine.session_rows import (
    SessionRow,
    check_fence,
    check_row_version,
    lock_row,
    read_row,
)
from helix_sessions.store.engine.session_tables import every_table
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.transactions import Transaction, locking_transaction
from helix_sessions.store.sessions import sql
from helix_sessions.store.transcript import archive_files
from helix_sessions.stream.wakeups import notify_readers_after_commit
from helix_sessions.types import TOMBSTONE, UNSET

_FOR_DELETION = (
    "session_id",
    "version",
    "status",
    "fence",
    "lease_owner",
    "lease_token",
    "parent_session_id",
)


def delete_session(store: Store, session_id: str, *, expected_version: int | None = None) -> None:
    """Remove a session, what belongs to it, and its tree of sub-sessions. An unknown id is no error. A
    parent that waits for it has an error for a result, and goes on."""
    delete_tree(store, session_id, expected_version=expected_version)


def delete_tree(store: Store, session_id: str, *, expected_version: int | None = None) -> set[str]:
    """`delete_session`; returns the ids of the sessions that were removed, without tombstones."""
    version = inputs.expected_version(expected_version)
    key = session_key(session_id)
    level, seen = {key}, set[str]()
    parents: dict[str, str | None] = {}
    removed = set[str]()
    with locking_transaction(store.using) as connection:
        around = Transaction(connection)
        lock_parent_of(around, key, store._owner)
        while level:
            seen |= level
            rows = [row for key in sorted(level) if (row := _locked(store, connection, key, version))]
            version = None
            found = {row.session_id: row.parent_session_id for row in rows}
            parents |= found
            removed |= {row.session_id for row in rows if row.status != TOMBSTONE}
            level = children_of(store.using, found) - seen
        if not parents:
            moves.refuse_moved(connection, key, store._owner)
        remove_and_tell(around, parents)
    return removed


def tree_of(using: str, session_ids: Iterable[str]) -> set[str]:
    """The ids of these sessions and of all below them that are here, as `delete_tree` would remove them. Two
    queries for each level, and one that leaves out what does not exist."""
    level = set(session_ids)
    seen = set[str]()
    while level:
        seen |= level
        level = children_of(using, level) - seen
    present = Session.objects.using(using).filter(session_id__among=list(seen))
    return set(present.values_list("session_id", flat=True))


def _locked(
    store: Store, connection: BaseDatabaseWrapper, session_id: str, expected_version: int | None = None
) -> SessionRow | None:
    try:
        row = lock_row(connection, session_id, _FOR_DELETION, store._owner, tombstones=True)
    except SessionNotFound:
        return None
    if row.status == TOMBSTONE:
        moves.refuse_moved(connection, session_id)
    check_fence(row, store._lease)
    check_row_version(row, expected_version)
    return row


def lock_parent_of(around: Transaction, session_id: str, owner: Any = UNSET) -> None:
    """Lock the parent of a session that is about to be locked for its removal: parents come first."""
    with suppress(SessionNotFound):
        columns = ("parent_session_id",)
        named = read_row(around.connection, session_id, columns, owner, tombstones=True).parent_session_id
        if named not in (None, session_id):
            children.lock_parent(around, named)


def remove_and_tell(around: Transaction, parents: Mapping[str, str | None]) -> None:
    """Remove locked sessions, each given with its parent. A parent that is not among them waits for them no
    longer."""
    for key, named in parents.items():
        if named is None or named in parents:
            continue
        with suppress(SessionNotFound):
            children.tell_of_removal(children.lock_parent(around, named), key)
    for key in parents:
        remove(around.connection, key)
    around.flush()


def children_of(using: str, parents: Iterable[str]) -> set[str]:
    """The ids of the next level of a tree, tombstones included: children by parent, and by local
    reference."""
    keys = list(parents)
    children = Session.with_tombstones.using(using).filter(parent_session_id__among=keys)
    refs = SubSessionRef.objects.using(using).filter(session__session_id__among=keys, location="local")
    return {
        *children.values_list("session_id", flat=True),
        *refs.values_list("sub_session_id", flat=True),
    }


def remove(connection: BaseDatabaseWrapper, session_id: str) -> None:
    """Remove one locked session and what belongs to it, but not its tree. Archives of its log go after
    the commit.

    The session's row goes first: the log may be removed only when its session is gone.
    """
    archive_files.forget(connection, session_id)
    tool_rules.forget(connection.alias, session_id)
    execute(connection, sql.GIVE_CLAIMS_BACK, [session_id, session_id])
    for model in every_table():
        execute(connection, sql.remove(model), [session_id])
    notify_readers_after_commit(connection, session_id, None)
