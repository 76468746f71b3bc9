"""Exports sessions as JSON Lines: whole trees, each a snapshot of one moment."""

from base64 import b64encode
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.content import documents
from helix_sessions.exceptions import NotFound, SessionNotFound
from helix_sessions.models import ArchivedRange, BlobRef, Session, SubSessionRef
from helix_sessions.models.fields import key_of
from helix_sessions.models.session_querysets import SessionQuerySet
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import connect, fetch, is_between_transactions
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.session_rows import lock_row
from helix_sessions.store.engine.session_tables import exported_tables, kind_of
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.tables import table
from helix_sessions.store.keyed import blobs
from helix_sessions.store.limits import spend_transfer
from helix_sessions.store.maintenance import export_rows, sql
from helix_sessions.store.maintenance.job import PAGE, Job, ids_of, pages
from helix_sessions.store.memory import names, transfer
from helix_sessions.store.schedules import transfer as schedule_transfer
from helix_sessions.store.sessions.delete import children_of
from helix_sessions.store.transcript import archive_files
from helix_sessions.types import UNSET, TransferSummary, Writable

_NOT_EXPORTED: dict[type[models.Model], tuple[str, ...]] = {ArchivedRange: ("storage", "name")}
"""The place of an archive's file belongs to this installation; its lines are exported."""


def export_sessions(
    store: Store,
    file: Writable,
    *,
    session_ids: Iterable[str] | None = None,
    agent_type: str | None = None,
    owner: Any = None,
    user_id: str | None = None,
    on_progress: Callable[[TransferSummary], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> TransferSummary:
    """Write sessions to a text file, a record per line: the chosen ones, or all. Memories, schedules,
    spend limits and what was spent of a chosen owner come with them, and all of these with all sessions.

    A chosen session comes with the whole tree it belongs to, from the root down. Each tree is a snapshot
    of one moment and takes no lock, at any size. Memory does not grow with the export, except for
    the ids of chosen sessions. A store of one owner writes what is that owner's; its trees begin and end
    where sessions of others do.
    """
    owner = store._owner_key(owner)
    job = Job(TransferSummary(), on_progress=on_progress, should_stop=should_stop)
    _line(file, export_rows.header())
    for root in job.over(roots(store, session_ids, agent_type, owner, user_id)):
        with one_moment(store.using) as (connection, locks):
            _write_tree(store, file, connection, root, locks, job)
    if not job.is_stopped and _is_of_everything_or_an_owner(session_ids, agent_type, owner, user_id):
        for line in _memories(store, owner):
            _line(file, line)
            job.count(memories=1)
        for line in _schedules(store, owner):
            _line(file, line)
            job.count(schedules=1)
        for line in spend_transfer.lines(store.using, owner):
            _line(file, line)
    _line(file, documents.write({"kind": "end", "trees": job.summary.trees}))
    return job.summary


def roots(
    store: Store, session_ids: Iterable[str] | None, agent_type: str | None, owner: Any, user_id: str | None
) -> Iterator[str]:
    """The roots of the trees to export, each once."""
    adopted = _adopted(store.using)
    rows = Session.objects.using(store.using)
    if session_ids is None and agent_type is None and owner is None and user_id is None:
        yield from (key for key in _without_parents(store.using) if key not in adopted)
        # A cycle of references has no root, so none of its sessions was exported yet.
        chosen: Iterable[str] = (key for key in sorted(adopted) if _top(store, key, adopted) in adopted)
    else:
        if agent_type is not None:
            rows = rows.filter(agent_type=inputs.identifier(agent_type, "agent_type"))
        if owner is not None:
            rows = rows.owned_by(owner)
        if user_id is not None:
            rows = rows.filter(user_id=inputs.identifier(user_id, "user_id"))
        chosen = ids_of(rows) if session_ids is None else _existing(store, rows, session_ids)
    done: set[str] = set()
    for key in chosen:
        top = _top(store, key, adopted)
        if top not in done:
            done.update(tree_of(store.using, top, owner=store._owner) if top in adopted else [top])
            yield top


def _without_parents(using: str) -> Iterator[str]:
    """Sessions that have no parent, or none that exists. Parents are read by their ids: a cluster joins no
    sessions of several nodes."""
    rows = Session.objects.using(using)
    places = rows.order_by("session_id").values_list("session_id", "parent_session_id")

    def page_after(last: tuple[str, str | None] | None) -> list[tuple[str, str | None]]:
        return list(places.filter(session_id__gt="" if last is None else last[0])[:PAGE])

    for page in pages(page_after, PAGE):
        named = {parent for _, parent in page if parent is not None}
        existing = set(rows.filter(session_id__among=named).values_list("session_id", flat=True))
        yield from (key for key, parent in page if parent not in existing)


def _is_of_everything_or_an_owner(
    session_ids: Iterable[str] | None, agent_type: str | None, owner: Any, user_id: str | None
) -> bool:
    """Whether what lies beside the sessions is exported too: all of it, or that of the chosen owner."""
    return session_ids is None and agent_type is None and (owner is not None or user_id is None)


def _memories(store: Store, owner: Any) -> Iterator[str]:
    return transfer.lines(store.using, () if owner is None else names.owner_namespace(owner))


def _schedules(store: Store, owner: Any) -> Iterator[str]:
    return schedule_transfer.lines(store.using, UNSET if owner is None else owner)


def _existing(store: Store, rows: Any, session_ids: Iterable[str]) -> Iterator[str]:
    for key in session_ids:
        if not rows.filter(session_id=session_key(key)).exists():
            raise SessionNotFound(session_id=key)
        yield key


def roots_of_owner(store: Store, owner: Any) -> Iterator[str]:
    """The roots of the trees in which an owner has sessions, tombstones included, each once."""
    adopted, done = _adopted(store.using), set[str]()
    for key in ids_of(Session.with_tombstones.using(store.using).owned_by(owner)):
        if key not in done:
            top = _top(store, key, adopted, tombstones=True)
            members = tree_of(store.using, top, tombstones=True)
            if top not in done:
                yield top
            done.update(members)


def _top(store: Store, session_id: str, adopted: dict[str, str], *, tombstones: bool = False) -> str:
    """The root of the tree a session belongs to."""
    seen, sessions = {session_id}, sessions_of(store.using, store._owner, tombstones=tombstones)
    while True:
        row = store._read(session_id, ("parent_session_id",), tombstones=tombstones)
        above = row.parent_session_id or adopted.get(session_id)
        if above is None or above in seen:
            return session_id
        if not sessions.filter(session_id=above).exists():
            return session_id
        seen.add(above)
        session_id = above


def _write_tree(
    store: Store,
    file: Writable,
    connection: BaseDatabaseWrapper,
    root: str,
    locks: bool,
    job: Job[TransferSummary],
) -> None:
    members = tree_of(store.using, root, owner=store._owner)
    for session_id in members if locks else ():
        lock_row(connection, session_id, ("session_id",))
    if not members:
        return  # deleted meanwhile
    _line(file, documents.write({"kind": "tree", "sessions": members}))
    records = 0
    for session_id in members:
        for line in _session_lines(connection, session_id):
            _line(file, line)
            records += 1
    _line(file, documents.write({"kind": "end_tree", "records": records}))
    job.count(trees=1, sessions=len(members), records=records)


def _line(file: Writable, line: str) -> None:
    file.write(f"{line}\n")


@contextmanager
def one_moment(using: str) -> Iterator[tuple[BaseDatabaseWrapper, bool]]:
    """A transaction whose reads all see one snapshot, and that locks nothing. Inside a caller's transaction
    it is that one, and then the rows must be locked: the second value is true."""
    connection = connections[using]
    connect(connection)
    if not is_between_transactions(connection):
        yield connection, True
    else:
        with dialect_of(connection).read_snapshot(connection):
            yield connection, False


def tree_of(using: str, root: str, *, tombstones: bool = False, owner: Any = UNSET) -> list[str]:
    """The ids of a tree, the root first, each level by id. With an owner it ends at sessions of others."""
    sessions = sessions_of(using, owner, tombstones=tombstones)
    members: list[str] = []
    level = {root}
    while level:
        rows = sessions.filter(session_id__among=level)
        here = sorted(rows.values_list("session_id", flat=True))
        members.extend(here)
        level = children_of(using, here) - set(members)
    return members


def sessions_of(using: str, owner: Any, *, tombstones: bool) -> SessionQuerySet:
    """The sessions of an owner, or with `UNSET` all of them."""
    rows = (Session.with_tombstones if tombstones else Session.objects).using(using)
    return rows if owner is UNSET else rows.owned_by(owner)


def _adopted(using: str) -> dict[str, str]:
    """Sessions that belong to a tree only by a reference, with the session that refers to them."""
    refs = SubSessionRef.objects.using(using).filter(location="local")
    loose = Session.objects.using(using).filter(parent_session_id__isnull=True).values("session_id")
    pairs = refs.filter(sub_session_id__in=loose).values_list("sub_session_id", "session_id")
    return {child: parent for child, parent in pairs if child != parent}


def _session_lines(connection: BaseDatabaseWrapper, session_id: str) -> Iterator[str]:
    """The records of a session: its row, then those of each table in the order of its key."""
    for model in exported_tables():
        if model is BlobRef:
            yield from blob_lines(connection.alias, session_id)
            continue
        if model is ArchivedRange:
            yield from archive_lines(connection, session_id)
            continue
        for values in rows_of(connection, model, session_id):
            yield export_rows.write(kind_of(model), columns_of(model), values)


def archive_lines(connection: BaseDatabaseWrapper, session_id: str) -> Iterator[str]:
    """The archived ranges of a log, each with its events."""
    columns = columns_of(ArchivedRange)
    for values in rows_of(connection, ArchivedRange, session_id):
        yield export_rows.write(kind_of(ArchivedRange), columns, values)
        yield from _archived_lines(session_id, dict(zip(columns, values, strict=True)), connection)


def blob_lines(using: str, session_id: str, *, without: Container[str] = ()) -> Iterator[str]:
    """The attachments that were posted; those of documents are in these documents again."""
    for blob, data in blobs.posted(using, session_id, without=without):
        content = {"media_type": blob.media_type, "data": b64encode(data).decode()}
        yield documents.write({"kind": "blob", "session_id": session_id, **content})


def _archived_lines(
    session_id: str, values: dict[str, Any], connection: BaseDatabaseWrapper
) -> Iterator[str]:
    archive = ArchivedRange.objects.using(connection.alias).get(
        session_id=session_id, first_seq=values["first_seq"]
    )
    while True:
        try:
            for line in archive_files.read_file(archive):
                yield f'{{"kind":"archived_event","event":{line}}}'
            return
        except FileNotFoundError as error:
            if not _is_elsewhere(connection, archive):
                name = f"The archive {archive.name!r} of session {session_id!r}"
                raise NotFound(f"{name} is missing.") from error


def _is_elsewhere(connection: BaseDatabaseWrapper, archive: ArchivedRange) -> bool:
    """Whether a rotation has written the archive to another file meanwhile; then `archive` has the new place.
    The export's snapshot does not see that, so another connection reads it."""
    place = archive.storage, archive.name
    other = connection.copy()
    try:
        found = fetch(other, sql.PLACE_OF_ARCHIVE, [archive.session_id, archive.first_seq])
    finally:
        other.close()
    if found:
        archive.storage, archive.name = found[0]
    return (archive.storage, archive.name) != place


def rows_of(
    connection: BaseDatabaseWrapper, model: type[models.Model], session_id: str, *, condition: str = ""
) -> Iterator[list[Any]]:
    """The rows of a session in a table that fit, read in pages."""
    columns, key = columns_of(model), key_of(model)[1:]
    decode = table(model).decoder(columns)
    places = [columns.index(name) for name in key]

    def page_after(last: tuple[Any, ...] | None) -> list[tuple[Any, ...]]:
        after = [] if last is None else [last[place] for place in places]
        query = sql.page_of_rows(
            dialect_of(connection), table(model), columns, after=bool(after), condition=condition
        )
        return fetch(connection, query, [session_id, *after, PAGE])

    for page in pages(page_after, PAGE):
        for values in page:
            yield table(model).opened(columns, decode(values))


@cache
def columns_of(model: type[models.Model]) -> tuple[str, ...]:
    left_out = _NOT_EXPORTED.get(model, ())
    return tuple(name for name in table(model).columns if name not in left_out)
