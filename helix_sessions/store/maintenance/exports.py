"""Sessions written out as JSON Lines: whole trees, each as it was at one moment."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from django.db import connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Exists, OuterRef

from helix_sessions.content import documents
from helix_sessions.exceptions import NotFound, SessionNotFound
from helix_sessions.models import ArchivedRange, Session, SubSessionRef
from helix_sessions.models.fields import key_of
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import connect, execute, fetch, is_between_transactions
from helix_sessions.store.engine.session_rows import lock_row
from helix_sessions.store.engine.session_tables import every_table, kind_of
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.tables import table
from helix_sessions.store.maintenance import export_rows
from helix_sessions.store.sessions.delete import children_of
from helix_sessions.store.transcript import archive_files
from helix_sessions.types import TransferSummary, Writable

_PAGE = 200
_NOT_EXPORTED: dict[type[models.Model], tuple[str, ...]] = {ArchivedRange: ("storage", "name")}
"""Where an archive's file is, is this installation's business; its lines are exported."""


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
    """Write sessions to a text file, a record per line. Without a choice, all of them.

    A chosen session comes with the whole tree it belongs to, from the root down. Each tree is as it was
    at one moment and takes no lock, whatever its size. Memory does not grow with what is exported, but
    for the ids of chosen sessions.
    """
    tally = _Tally()
    _line(file, export_rows.header())
    for root in _roots(store, session_ids, agent_type, owner, user_id):
        if should_stop is not None and should_stop():
            break
        with _one_moment(store.using) as (connection, locks):
            _write_tree(store, file, connection, root, locks, tally)
        if on_progress is not None:
            on_progress(tally.summary())
    _line(file, documents.write({"kind": "end", "trees": tally.trees}))
    return tally.summary()


def _roots(
    store: Store, session_ids: Iterable[str] | None, agent_type: str | None, owner: Any, user_id: str | None
) -> Iterator[str]:
    """The tops of the trees to export, each once."""
    adopted = _adopted(store.using)
    rows = Session.objects.using(store.using)
    if session_ids is None and agent_type is None and owner is None and user_id is None:
        parents = Session.objects.using(store.using).filter(session_id=OuterRef("parent_session_id"))
        yield from (key for key in _ids(rows.filter(~Exists(parents))) if key not in adopted)
        # Of a circle of references none is the top, so it was not met yet.
        chosen: Iterable[str] = (key for key in sorted(adopted) if _top(store, key, adopted) in adopted)
    else:
        if agent_type is not None:
            rows = rows.filter(agent_type=inputs.identifier(agent_type, "agent_type"))
        if owner is not None:
            rows = rows.owned_by(inputs.owner_key(owner))
        if user_id is not None:
            rows = rows.filter(user_id=inputs.identifier(user_id, "user_id"))
        chosen = _ids(rows) if session_ids is None else _existing(store, rows, session_ids)
    done: set[str] = set()
    for key in chosen:
        top = _top(store, key, adopted)
        if top not in done:
            done.update(tree_of(store.using, top) if top in adopted else [top])
            yield top


def _existing(store: Store, rows: Any, session_ids: Iterable[str]) -> Iterator[str]:
    for key in session_ids:
        if not rows.filter(session_id=session_key(key)).exists():
            raise SessionNotFound(f"There is no session {key!r}.")
        yield key


def _top(store: Store, session_id: str, adopted: dict[str, str]) -> str:
    """The root of the tree a session belongs to."""
    seen = {session_id}
    while True:
        row = store._read(session_id, ("parent_session_id",))
        above = row.parent_session_id or adopted.get(session_id)
        if above is None or above in seen:
            return session_id
        if not Session.objects.using(store.using).filter(session_id=above).exists():
            return session_id
        seen.add(above)
        session_id = above


def _write_tree(
    store: Store, file: Writable, connection: BaseDatabaseWrapper, root: str, locks: bool, tally: "_Tally"
) -> None:
    members = tree_of(store.using, root)
    for session_id in members if locks else ():
        lock_row(connection, session_id, ("session_id",))
    if not members:
        return  # deleted meanwhile
    _line(file, documents.write({"kind": "tree", "sessions": members}))
    before = tally.records
    for session_id in members:
        for line in _session_lines(connection, session_id):
            _line(file, line)
            tally.records += 1
    _line(file, documents.write({"kind": "end_tree", "records": tally.records - before}))
    tally.trees += 1
    tally.sessions += len(members)


class _Tally:
    def __init__(self) -> None:
        self.trees = self.sessions = self.records = 0

    def summary(self) -> TransferSummary:
        return TransferSummary(**vars(self))


def _line(file: Writable, line: str) -> None:
    file.write(f"{line}\n")


@contextmanager
def _one_moment(using: str) -> Iterator[tuple[BaseDatabaseWrapper, bool]]:
    """A transaction whose reads all see the same moment, and that locks nothing. Inside a caller's
    transaction it is that one, and what is read must be locked, as the second value says."""
    connection = connections[using]
    connect(connection)
    if not is_between_transactions(connection):
        yield connection, True
    elif connection.vendor == "postgresql":
        with transaction.atomic(using=using):
            execute(
                connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", [], prepare=False
            )
            yield connection, False
    else:
        # Not `atomic`, which on SQLite takes the write lock.
        execute(connection, "BEGIN DEFERRED", [])
        try:
            yield connection, False
        finally:
            execute(connection, "ROLLBACK", [])


def tree_of(using: str, root: str, *, tombstones: bool = False) -> list[str]:
    """The sessions of a tree, each level by id, the root first."""
    sessions = Session.with_tombstones if tombstones else Session.objects
    members: list[str] = []
    level = {root}
    while level:
        rows = sessions.using(using).filter(session_id__among=level)
        here = sorted(rows.values_list("session_id", flat=True))
        members.extend(here)
        level = children_of(using, here) - set(members)
    return members


def _adopted(using: str) -> dict[str, str]:
    """Sessions that a reference alone makes part of a tree, and the session that refers to them."""
    refs = SubSessionRef.objects.using(using).filter(location="local")
    loose = Session.objects.using(using).filter(parent_session_id__isnull=True).values("session_id")
    pairs = refs.filter(sub_session_id__in=loose).values_list("sub_session_id", "session_id")
    return {child: parent for child, parent in pairs if child != parent}


def _ids(rows: Any) -> Iterator[str]:
    last = ""
    rows = rows.order_by("session_id")
    while page := list(rows.filter(session_id__gt=last).values_list("session_id", flat=True)[:_PAGE]):
        yield from page
        last = page[-1]


def _session_lines(connection: BaseDatabaseWrapper, session_id: str) -> Iterator[str]:
    """The records of a session: its row, then each table's in the order of its key."""
    for model in every_table():
        for values in _rows(connection, model, session_id):
            yield export_rows.write(kind_of(model), _columns(model), values)
            if model is ArchivedRange:
                yield from _archived_lines(
                    session_id, dict(zip(_columns(model), values, strict=True)), connection
                )


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
    """Whether a rotation has written an archive's lines to another file by now; then `archive` says where.
    That is later than the moment of the export, so it takes another connection to see it."""
    place = archive.storage, archive.name
    other = connection.copy()
    try:
        found = fetch(other, _place_sql(), [archive.session_id, archive.first_seq])
    finally:
        other.close()
    if found:
        archive.storage, archive.name = found[0]
    return (archive.storage, archive.name) != place


@cache
def _place_sql() -> str:
    notes = table(ArchivedRange).name
    return f'SELECT "storage", "name" FROM {notes} WHERE "session_id" = %s AND "first_seq" = %s'  # noqa: S608


def _rows(connection: BaseDatabaseWrapper, model: type[models.Model], session_id: str) -> Iterator[list[Any]]:
    """The rows of a session in a table, a page at a time."""
    columns, key = _columns(model), key_of(model)[1:]
    decode = table(model).decoder(columns)
    places = [columns.index(name) for name in key]
    after: list[Any] = []
    while True:
        sql = _page_sql(connection.vendor, model, bool(after))
        page = fetch(connection, sql, [session_id, *after, _PAGE])
        for values in page:
            yield table(model).opened(columns, decode(values))
        if not key or len(page) < _PAGE:
            return
        after = [page[-1][place] for place in places]


@cache
def _columns(model: type[models.Model]) -> tuple[str, ...]:
    left_out = _NOT_EXPORTED.get(model, ())
    return tuple(name for name in table(model).columns if name not in left_out)


@cache
def _page_sql(vendor: str, model: type[models.Model], after: bool) -> str:
    key = key_of(model)[1:]
    names = ", ".join(f'"{name}"' for name in key)
    rest = f" AND ({names}) > ({', '.join(['%s'] * len(key))})" if after else ""
    order = f" ORDER BY {names}" if key else ""
    return (
        f"SELECT {table(model).selection(vendor, _columns(model))} FROM {table(model).name}"  # noqa: S608
        f' WHERE "session_id" = %s{rest}{order} LIMIT %s'
    )
