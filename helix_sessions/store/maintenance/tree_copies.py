"""Keeps a hidden copy of a tree in another cell up to date, and makes it live there.

A copy is compared with its source: of the log and the transcript, which only grow, what came after the copy's
end is written, and of every other table the rows that differ. So a copy can be caught up at any time, however
often, and by another process than the one that began it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from helix_sessions.content import documents
from helix_sessions.exceptions import SessionExists
from helix_sessions.models import ArchivedRange, BlobRef, Event, Message, MovedSession, Session, ToolRule
from helix_sessions.models.moves import ARRIVING, LEAVING, LEFT
from helix_sessions.store.engine.connection import execute, fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.session_tables import exported_tables, kind_of
from helix_sessions.store.engine.spending import key_of_owner
from helix_sessions.store.engine.tables import table, update_sql
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.maintenance import export_rows, exports, sql
from helix_sessions.store.maintenance.import_ids import NewIds
from helix_sessions.store.maintenance.imports import ArchiveFiles, Lines, TreeRows
from helix_sessions.store.maintenance.row_copies import put_rows, read_rows
from helix_sessions.store.sessions import delete
from helix_sessions.store.state import runner_notices
from helix_sessions.types import TOMBSTONE

HIDDEN: Mapping[str, Any] = {
    "status": TOMBSTONE,
    "runnable_at": None,
    "deferred": False,
    "next_deadline": None,
    "expires_at": None,
    "run_id": None,
    "awaiting_client": False,
    "awaiting_children": False,
    "waiting_since": None,
    "interrupt_requested_at": None,
}
"""What a hidden session has in these columns, so that no worker, sweep or list finds it."""


@dataclass(frozen=True)
class Route:
    """Whose sessions move from where to where."""

    tenant: str
    source: str
    target: str

    def leaving(self, session: Any, root: str, had: Mapping[str, Any]) -> MovedSession:
        """What the source notes of a session that it hides: the columns as they were."""
        return self._moved(session, root, state=LEAVING, cell=self.target, hidden=dict(had))

    def arriving(self, session: Any, root: str) -> MovedSession:
        """What the target notes of the copy of a session: how far it has come."""
        mark = {"write_mark": session.write_mark}
        return self._moved(session, root, state=ARRIVING, cell=self.source, hidden=mark)

    def _moved(
        self, session: Any, root: str, *, state: str, cell: str, hidden: dict[str, Any]
    ) -> MovedSession:
        return MovedSession(
            moved_id=session.session_id,
            root_id=root,
            owner_key=key_of_owner(session.owner_id),
            tenant=self.tenant,
            state=state,
            cell=cell,
            hidden=hidden,
            since=timezone.now(),
        )


@dataclass
class _Copy:
    """What the target has of a session."""

    head_seq: int = 0
    blobs: set[str] = field(default_factory=set)
    is_new: bool = True


def copy_tree(route: Route, root: str, *, live: bool = False) -> int:
    """Bring the hidden copy of a tree up to date; returns how many rows were written. With `live` the source
    is hidden, and the copy, which was brought up to date before, becomes the session.

    Nothing happens to a tree that is deleted, live in the target already, or hidden in the source while it
    is not to become live.
    """
    files = ArchiveFiles()
    with exports.one_moment(route.source) as (source, _):
        members = exports.tree_of(route.source, root, tombstones=True)
        hidden = _leaving(route.source, members)
        if not members or bool(hidden) != live:
            return 0
        try:
            with locking_transaction(route.target) as target:
                arriving = _arriving(route, root)
                if live and root not in arriving:
                    return 0
                if not live:
                    _refuse_taken(route, set(members) - arriving)
                writer = _Copies(target, members, files, live=live)
                for gone in sorted(arriving - set(members)):
                    _drop(target, gone)
                lines = Lines(_lines(source, target, writer, members, hidden, arriving))
                written = writer.read(lines)
                if not live:
                    _note_arrival(route, root, members)
                    if _is_hidden_by_now(route.source, root):
                        raise _Overtaken
                else:
                    _copy_rules(source, target, members)
                    MovedSession.objects.using(route.target).filter(root_id=root, state=ARRIVING).delete()
        except _Overtaken:
            files.delete()
            return 0
        except BaseException:
            files.delete()
            raise
    return written


def _copy_rules(source: BaseDatabaseWrapper, target: BaseDatabaseWrapper, members: list[str]) -> None:
    """Copy the rules for tools that hold for one session each."""
    for session_id in members:
        put_rows(target, ToolRule, read_rows(source, ToolRule, "session_id", session_id, locked=False))


def drop_copy(route: Route, root: str) -> None:
    """Remove the hidden copy of a tree whose source is gone."""
    with locking_transaction(route.target) as target:
        for session_id in sorted(_arriving(route, root)):
            _drop(target, session_id)


class _Overtaken(Exception):
    """Another process has hidden the source meanwhile; what was read of it may be old."""


def _arriving(route: Route, root: str) -> set[str]:
    """The ids of the copy of a tree, locked."""
    rows = MovedSession.objects.using(route.target).select_for_update()
    found = rows.filter(root_id=root, state=ARRIVING, tenant=route.tenant, cell=route.source)
    return set(found.order_by("moved_id").values_list("moved_id", flat=True))


def _leaving(using: str, members: list[str]) -> dict[str, dict[str, Any]]:
    rows = MovedSession.objects.using(using).filter(moved_id__among=members, state=LEAVING)
    return {row.moved_id: row.hidden for row in rows}


def _is_hidden_by_now(using: str, root: str) -> bool:
    """Asked past the snapshot."""
    other = connections[using].copy()
    try:
        return bool(fetch(other, sql.IS_HIDDEN, [root]))
    finally:
        other.close()


def _refuse_taken(route: Route, new: set[str]) -> None:
    rows = Session.with_tombstones.using(route.target).filter(session_id__among=list(new))
    taken = rows.order_by("session_id").values_list("session_id", flat=True).first()
    if taken is not None:
        raise SessionExists(f"There is another session {taken!r} in the database {route.target!r}.")


def _note_arrival(route: Route, root: str, members: list[str]) -> None:
    rows = Session.with_tombstones.using(route.source).filter(session_id__among=members)
    noted = [route.arriving(row, root) for row in rows.only("session_id", "owner_id", "write_mark")]
    fields = ["root_id", "owner_key", "tenant", "state", "cell", "hidden", "since"]
    MovedSession.objects.using(route.target).bulk_create(
        noted, update_conflicts=True, unique_fields=["moved_id"], update_fields=fields
    )


def is_current(route: Route, root: str) -> bool:
    """Whether the copy of a tree has all that was written to its source, as far as one can tell by a look."""
    members = exports.tree_of(route.source, root, tombstones=True)
    marks = Session.with_tombstones.using(route.source).filter(session_id__among=members)
    copies = MovedSession.objects.using(route.target).filter(root_id=root, state=ARRIVING)
    return dict(marks.values_list("session_id", "write_mark")) == {
        row.moved_id: row.hidden.get("write_mark") for row in copies
    }


def _drop(target: BaseDatabaseWrapper, session_id: str) -> None:
    delete.remove(target, session_id)
    MovedSession.objects.using(target.alias).filter(moved_id=session_id).delete()


def _lines(
    source: BaseDatabaseWrapper,
    target: BaseDatabaseWrapper,
    writer: "_Copies",
    members: list[str],
    hidden: Mapping[str, Mapping[str, Any]],
    arriving: set[str],
) -> Iterator[str]:
    """The records that the target lacks, as an export has them. What they replace is deleted on the way."""
    count = 0
    for session_id in members:
        has = _of_target(source, target, session_id) if session_id in arriving else _Copy()
        if not has.is_new:
            writer.there.add(session_id)
        for line in _session_lines(source, target, session_id, has, hidden.get(session_id, {})):
            count += 1
            yield line
    yield documents.write({"kind": "end_tree", "records": count})


def _of_target(source: BaseDatabaseWrapper, target: BaseDatabaseWrapper, session_id: str) -> _Copy:
    """What of the copy can be kept. A log that begins elsewhere by now is copied anew."""
    columns = ("first_seq", "head_seq")
    theirs = Session.with_tombstones.using(source.alias).filter(pk=session_id).values_list(*columns).first()
    ours = Session.with_tombstones.using(target.alias).filter(pk=session_id).values_list(*columns).first()
    if ours is None or theirs is None or ours[0] != theirs[0] or ours[1] > theirs[1]:
        delete.remove(target, session_id)
        return _Copy()
    refs = BlobRef.objects.using(target.alias).filter(session_id=session_id, posted=True)
    return _Copy(ours[1], set(refs.values_list("blob_id", flat=True)), is_new=False)


def _session_lines(
    source: BaseDatabaseWrapper,
    target: BaseDatabaseWrapper,
    session_id: str,
    has: _Copy,
    hidden: Mapping[str, Any],
) -> Iterator[str]:
    for model in exported_tables():
        columns, kind = exports.columns_of(model), kind_of(model)
        if model is Session:
            for values in exports.rows_of(source, model, session_id):
                shown = [hidden.get(name, value) for name, value in zip(columns, values, strict=True)]
                yield export_rows.write(kind, columns, shown)
        elif model is BlobRef:
            yield from exports.blob_lines(source.alias, session_id, without=has.blobs)
        elif model in (Event, Message):
            for values in exports.rows_of(source, model, session_id, condition=sql.later_than(has.head_seq)):
                yield export_rows.write(kind, columns, values)
        elif model is ArchivedRange:
            if has.is_new:
                yield from exports.archive_lines(source, session_id)
        else:
            yield from _changed(source, target, model, session_id, has)
    if not has.is_new:
        _hide_messages(source, target, session_id)


def _changed(
    source: BaseDatabaseWrapper,
    target: BaseDatabaseWrapper,
    model: type[models.Model],
    session_id: str,
    has: _Copy,
) -> Iterator[str]:
    """The rows of a table that the target lacks, or has otherwise. Those it has too many are deleted."""
    columns, kind = exports.columns_of(model), kind_of(model)
    places = [columns.index(name) for name in table(model).key]

    def keyed(connection: BaseDatabaseWrapper) -> Iterator[tuple[tuple[Any, ...], str]]:
        for values in exports.rows_of(connection, model, session_id):
            yield tuple(values[place] for place in places), export_rows.write(kind, columns, values)

    ours = {} if has.is_new else {key: _digest(line) for key, line in keyed(target)}
    remove = sql.remove_row(table(model))
    parameters = dialect_of(target).parameters
    for key, line in keyed(source):
        known = ours.pop(key, None)
        if known == _digest(line):
            continue
        if known is not None:
            execute(target, remove, parameters(key))
        yield line
    for key in ours:
        execute(target, remove, parameters(key))


def _digest(line: str) -> bytes:
    return blake2b(line.encode(), digest_size=16).digest()


def _hide_messages(source: BaseDatabaseWrapper, target: BaseDatabaseWrapper, session_id: str) -> None:
    """A message is never rewritten, but a truncation marks it."""
    marks = [dict(fetch(connection, sql.TRUNCATED_MESSAGES, [session_id])) for connection in (source, target)]
    for seq in {*marks[0], *marks[1]}:
        if marks[0].get(seq) != marks[1].get(seq):
            params = dialect_of(target).parameters([marks[0].get(seq), session_id, seq])
            execute(target, sql.MARK_MESSAGE, params)


class _Copies(TreeRows):
    """Writes rows of a tree in the place of a hidden copy."""

    def __init__(
        self, target: BaseDatabaseWrapper, members: list[str], files: ArchiveFiles, *, live: bool
    ) -> None:
        super().__init__(target, members, NewIds({}), files)
        self.there: set[str] = set()
        self._live = live

    def add(self, model: type[models.Model], row: list[Any], size: int) -> None:
        if model is not Session:
            super().add(model, row, size)
            return
        columns = table(Session).columns
        values = dict(zip(columns, row, strict=True))
        if self._live and values["runnable_at"] is not None:
            runner_notices.notify_runners_after_commit(
                self.connection, values["session_id"], values["agent_type"]
            )
        if not self._live:
            values.update(HIDDEN)
        if values["session_id"] not in self.there:
            super().add(model, [values[name] for name in columns], size)
            return
        del values["has_blobs"]  # of this database
        encode = table(Session).encoder(dialect_of(self.connection), (*values, "session_id"))
        params = encode([*values.values(), values["session_id"]])
        execute(self.connection, update_sql(Session, tuple(values), ("session_id",)), params, prepare=False)


def remove_source(route: Route, root: str) -> None:
    """Remove a tree that is live in the target by now, and remember where it went."""
    with locking_transaction(route.source) as source:
        rows = MovedSession.objects.using(route.source).select_for_update()
        leaving = rows.filter(root_id=root, state=LEAVING).order_by("moved_id")
        for session_id in leaving.values_list("moved_id", flat=True):
            delete.remove(source, session_id)
        leaving.update(state=LEFT, hidden={})
