"""Delete a session, what belongs to it, and its tree."""

from collections.abc import Iterable

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.exceptions import SessionNotFound
from helix_sessions.models import Input, InputClaim, Session, SubSessionRef
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import execute
from helix_sessions.store.engine.session_rows import check_fence, check_row_version, lock_row
from helix_sessions.store.engine.session_tables import every_table
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.transcript import archive_files
from helix_sessions.stream.wakeups import wake_after_commit

_GIVE_CLAIMS_BACK = (
    f'DELETE FROM {table(InputClaim).name} WHERE "session_id" = %s AND "input_id" IN'  # noqa: S608
    f' (SELECT "input_id" FROM {table(Input).name} WHERE "session_id" = %s)'
)


_FOR_DELETION = ("session_id", "version", "status", "fence", "lease_owner", "lease_token")


def delete_session(store: Store, session_id: str, *, expected_version: int | None = None) -> None:
    """Remove a session, what belongs to it, and its tree of sub-sessions. An unknown id is no error."""
    version = inputs.expected_version(expected_version)
    level = {session_key(session_id)}
    seen: set[str] = set()
    with locking_transaction(store.using) as connection:
        while level:
            seen |= level
            present = {key for key in sorted(level) if _locked(store, connection, key, version)}
            version = None
            below = children_of(store.using, present)
            for key in sorted(present):
                remove(connection, key)
            level = below - seen


def _locked(
    store: Store, connection: BaseDatabaseWrapper, session_id: str, expected_version: int | None = None
) -> bool:
    try:
        row = lock_row(connection, session_id, _FOR_DELETION, store._owner, tombstones=True)
    except SessionNotFound:
        return False
    check_fence(row, store._lease)
    check_row_version(row, expected_version)
    return True


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
    execute(connection, _GIVE_CLAIMS_BACK, [session_id, session_id])
    for model in every_table():
        execute(connection, f'DELETE FROM {table(model).name} WHERE "session_id" = %s', [session_id])  # noqa: S608
    wake_after_commit(connection, session_id, None)
