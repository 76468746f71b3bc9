"""The doctor's checks of trees: of sessions that name others.

The named sessions are read by their ids, because a cluster joins no sessions of several nodes. What was found
is looked for once more, so that a tree which goes meanwhile is not reported.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.models import Session
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.remembered_rows import new_mark
from helix_sessions.store.maintenance import sql
from helix_sessions.store.maintenance.invariant import LookedFor, Scope


class _Place(NamedTuple):
    """Where a session says that it is in its tree."""

    session_id: str
    parent: str | None
    root: str | None


def _rows(connection: BaseDatabaseWrapper) -> "models.QuerySet[Session]":
    return Session.with_tombstones.using(connection.alias)


def _places(connection: BaseDatabaseWrapper, session_ids: Iterable[str]) -> dict[str, _Place]:
    """Those of these sessions that exist."""
    rows = _rows(connection).filter(session_id__among=list(session_ids))
    found = rows.values_list("session_id", "parent_session_id", "root_session_id")
    return {row[0]: _Place(*row) for row in found}


def _children(connection: BaseDatabaseWrapper, scope: Scope) -> list[_Place]:
    """Those in the scope that have a parent."""
    columns = ("session_id", "parent_session_id", "root_session_id")
    query = sql.sessions(
        dialect_of(connection), columns, f"{scope.on('session_id')} AND parent_session_id IS NOT NULL"
    )
    return [_Place(*row) for row in fetch(connection, query, scope.params, prepare=False)]


def _look_for_parents(connection: BaseDatabaseWrapper, scope: Scope) -> Iterator[tuple[str, str]]:
    children = _children(connection, scope)
    parents = _places(connection, {str(child.parent) for child in children})
    for child in children:
        if child.parent not in parents and _lost_parent(connection, child.session_id) is not None:
            yield child.session_id, f"there is no parent {child.parent}"


def _lost_parent(connection: BaseDatabaseWrapper, session_id: str) -> str | None:
    """The parent that a session names, if it does not exist."""
    child = _places(connection, [session_id]).get(session_id)
    if child is None or child.parent is None or _places(connection, [child.parent]):
        return None
    return child.parent


def _mend_parent(connection: BaseDatabaseWrapper, session_id: str) -> None:
    if _lost_parent(connection, session_id) is not None:
        row = _rows(connection).filter(session_id=session_id)
        row.update(parent_session_id=None, root_session_id=None, write_mark=new_mark())


def _look_for_roots(connection: BaseDatabaseWrapper, scope: Scope) -> Iterator[tuple[str, str]]:
    children = _children(connection, scope)
    parents = _places(connection, {str(child.parent) for child in children})
    for child in children:
        parent = parents.get(str(child.parent))
        if parent is None or child.root == (parent.root or parent.session_id):
            continue
        root = _right_root(connection, child.session_id)
        if root is not None:
            yield child.session_id, f"the root is {child.root or 'none'}, the parent's {root}"


def _right_root(connection: BaseDatabaseWrapper, session_id: str) -> str | None:
    """The root of a session's parent, if the session names another."""
    child = _places(connection, [session_id]).get(session_id)
    if child is None or child.parent is None:
        return None
    parent = _places(connection, [child.parent]).get(child.parent)
    if parent is None:
        return None
    root = parent.root or parent.session_id
    return None if child.root == root else root


def _mend_root(connection: BaseDatabaseWrapper, session_id: str) -> None:
    root = _right_root(connection, session_id)
    if root is not None:
        row = _rows(connection).filter(session_id=session_id)
        row.update(root_session_id=root, write_mark=new_mark())


def _look_for_cycles(connection: BaseDatabaseWrapper, scope: Scope) -> Iterator[tuple[str, str]]:
    children = _children(connection, scope)
    above: dict[str, str | None] = {child.session_id: child.parent for child in children}
    level = {str(child.parent) for child in children} - above.keys()
    while level:
        found = _places(connection, level)
        above |= {key: found[key].parent if key in found else None for key in level}
        level = {parent for key in level if (parent := above[key]) is not None} - above.keys()
    for child in children:
        seen: set[str] = set()
        key = child.parent
        while key is not None and key != child.session_id and key not in seen:
            seen.add(key)
            key = above[key]
        if key == child.session_id:
            yield child.session_id, "it is its own ancestor"


def _look_for_references(connection: BaseDatabaseWrapper, scope: Scope) -> Iterator[tuple[str, str]]:
    for session_id in _dangling(connection, scope):
        again = _dangling(connection, Scope(sql="IN (%s)", params=(session_id,)))
        if again:
            yield session_id, f"references to local sub-sessions that do not exist: {again[session_id]}"


def _dangling(connection: BaseDatabaseWrapper, scope: Scope) -> Counter[str]:
    """How many references of each session name a local one that does not exist."""
    query = sql.local_references(scope.on("session_id"))
    references = fetch(connection, query, scope.params, prepare=False)
    existing = _places(connection, {child for _, child in references})
    return Counter(session_id for session_id, child in references if child not in existing)


TREE_CHECKS = (
    LookedFor(code="ref_without_session", look=_look_for_references, severity="warning"),
    LookedFor(code="parent_missing", look=_look_for_parents, mend=_mend_parent),
    LookedFor(code="root_mismatch", look=_look_for_roots, mend=_mend_root),
    LookedFor(code="parent_cycle", look=_look_for_cycles),
)
