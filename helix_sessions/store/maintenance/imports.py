"""Sessions read back from JSON Lines, a tree in each transaction."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import DataError, IntegrityError, models
from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.conf import conf
from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidDocument, InvalidExport, InvalidInput, SessionExists
from helix_sessions.models import ArchivedRange, Input, Session
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import execute
from helix_sessions.store.engine.ids import new_id
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.tables import insert_sql, table
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.inbox import inbox
from helix_sessions.store.maintenance import doctor, export_rows, import_gate
from helix_sessions.store.maintenance.import_ids import Renames
from helix_sessions.store.transcript import archive_files
from helix_sessions.types import UNSET, TransferSummary

COLLISIONS = ("fail", "renew", "skip")
_ROWS_AT_ONCE = 200
_BYTES_AT_ONCE = 4 * 1024 * 1024


def import_sessions(
    store: Store,
    lines: Iterable[str],
    *,
    on_collision: str = "fail",
    owner: Any = UNSET,
    check: bool = True,
    on_progress: Callable[[TransferSummary], None] | None = None,
) -> TransferSummary:
    """Read sessions that `export_sessions` wrote, exactly as they were.

    Each tree is one transaction. When one of its ids exists, `fail` raises `SessionExists`, `skip`
    leaves the tree out, and `renew` gives every session of it a new id, wherever it is named. `owner`
    replaces the owners, whose keys mean somebody else in another installation; `None` is nobody.
    With `check` a tree that breaks an invariant is refused.
    """
    inputs.choice(on_collision, COLLISIONS, "on_collision")
    new_owner = owner if owner is UNSET else inputs.owner_key(owner)
    reader = _Reader(lines)
    summary = TransferSummary()
    with reader.located():
        export_rows.check_header(reader.line())
        while (kind := reader.next())["kind"] != '"end"':
            summary = _import_tree(store, reader, kind, on_collision, new_owner, check, summary)
            if on_progress is not None:
                on_progress(summary)
    return summary


def _import_tree(
    store: Store,
    reader: "_Reader",
    found: dict[str, str],
    on_collision: str,
    owner: Any,
    check: bool,
    so_far: TransferSummary,
) -> TransferSummary:
    members = _members(found)
    rows = Session.with_tombstones.using(store.using)
    taken = rows.filter(session_id__among=members).order_by("session_id").values_list("session_id", flat=True)
    collision = taken.first()
    if collision is not None and on_collision == "fail":
        raise SessionExists(f"There is a session {collision!r} already.")
    if collision is not None and on_collision == "skip":
        reader.skip_tree()
        return _counted(so_far, skipped=len(members))
    renames = Renames({key: new_id() for key in members} if collision is not None else {}, owner)
    written = _Files()
    try:
        with locking_transaction(store.using) as connection:
            count = _Tree(connection, members, renames, written).read(reader)
            if check:
                _refuse_broken(store, [renames.ids.get(key, key) for key in members])
    except BaseException:
        written.delete()
        raise
    renewed = len(members) if renames.ids else 0
    return _counted(so_far, trees=1, sessions=len(members), records=count, renewed=renewed)


def _refuse_broken(store: Store, session_ids: list[str]) -> None:
    for finding in doctor.examine_sessions(store, session_ids=session_ids):
        if finding.severity == "error":
            raise InvalidExport(f"Session {finding.session_id!r}: {finding.code}, {finding.detail}")


class _Tree:
    """The rows of one tree on their way into the database, a few hundred at a time."""

    def __init__(
        self, connection: BaseDatabaseWrapper, members: list[str], renames: Renames, files: "_Files"
    ) -> None:
        self.connection = connection
        self.missing = set(members)
        self.renames = renames
        self.files = files
        self.session_id: str | None = None
        self.model: type[models.Model] | None = None
        self.rows: list[list[Any]] = []
        self.size = 0

    def read(self, reader: "_Reader") -> int:
        """Insert the records up to the tree's end; how many lines they were."""
        begin = reader.number
        while (found := reader.next())["kind"] != '"end_tree"':
            self._record(reader, found)
        self._flush()
        count = reader.number - begin - 1
        if self.missing or found.get("records") != str(count):
            raise InvalidExport("This tree is not complete.")
        return count

    def _record(self, reader: "_Reader", found: dict[str, str]) -> None:
        kind = json.loads(found["kind"])
        if not isinstance(kind, str) or kind not in export_rows.tables():
            raise InvalidExport(f"There are no {kind!r:.80} records; was this made by a newer version?")
        model = export_rows.tables()[kind]
        if model is ArchivedRange:
            found = {**found, "storage": documents.write(conf.ARCHIVE_STORAGE), "name": '""'}
        columns = import_gate.admit(kind, model, export_rows.read(kind, found))
        if model is Session:
            columns.update(lease_owner=None, lease_token=None, lease_expires_at=None)  # nobody drives it here
            self._begin(columns["session_id"])
        elif columns["session_id"] != self.session_id:
            raise InvalidExport(f"A {kind} belongs to another session.")
        if model is ArchivedRange:
            columns["name"] = self._archive(reader, columns)
        if self.renames:
            columns = self.renames.row(model, columns)
        self._add(model, [columns[name] for name in table(model).columns], sum(map(len, found.values())))

    def _begin(self, session_id: str) -> None:
        if session_id not in self.missing:
            raise InvalidExport(f"The session {session_id!r:.80} does not belong here.")
        self._flush()
        self.missing.discard(session_id)
        self.session_id = session_id

    def _add(self, model: type[models.Model], row: list[Any], size: int) -> None:
        if model is not self.model or len(self.rows) >= _ROWS_AT_ONCE or self.size >= _BYTES_AT_ONCE:
            self._flush()
        self.model = model
        self.rows.append(row)
        self.size += size

    def _flush(self) -> None:
        if self.model is not None and self.rows:
            columns = table(self.model).columns
            encode = table(self.model).encoder(self.connection.vendor, columns)
            params = [value for row in self.rows for value in encode(row)]
            sql = insert_sql(self.model, columns, len(self.rows))
            if self.model is Session:
                sql += " ON CONFLICT DO NOTHING"
            full = len(self.rows) == _ROWS_AT_ONCE  # the one size that comes again and again
            if execute(self.connection, sql, params, prepare=full) != len(self.rows):
                raise SessionExists(f"The session {self.session_id!r} was created meanwhile.")
            if self.model is Input:
                inbox.claim(self.connection, [dict(zip(columns, row, strict=True)) for row in self.rows])
        self.model, self.rows, self.size = None, [], 0

    def _archive(self, reader: "_Reader", columns: dict[str, Any]) -> str:
        """Write the archived events that follow into a file of this installation's storage; its name."""
        storage = archive_files.archive_storage()
        session_id = self.renames.ids.get(columns["session_id"], columns["session_id"])
        first, last = columns["first_seq"], columns["last_seq"]
        lines = self._archived_events(reader, first, last)
        name, _ = archive_files.write_file(storage, session_id, first, last, lines)
        self.files.add(name)
        return name

    def _archived_events(self, reader: "_Reader", first: int, last: int) -> Iterator[str]:
        for seq in range(first, last + 1):
            found = reader.next()
            if found["kind"] != '"archived_event"':
                raise InvalidExport("An archived range is not complete.")
            documents.load_foreign(found.get("event", "null"), wrapped=True)
            event = export_rows.split(found.get("event", ""))
            if event.get("seq") != str(seq) or not {"type", "data", "created_at"} <= event.keys():
                raise InvalidExport("An archived event is not in its place.")
            kind = inputs.identifier(json.loads(event["type"]), "The type of an event")
            data = self.renames.event_data(kind, event["data"])
            event["data"] = data or "null"
            yield f"{{{','.join(f'{documents.write(name)}:{text}' for name, text in event.items())}}}"


class _Reader:
    """The lines of an export, with the number of the one that was read last."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self.number = 0

    def line(self) -> str:
        line = next(self._lines, None)
        if line is None:
            raise InvalidExport("The export ends too early; was it cut off?")
        self.number += 1
        return line.rstrip("\r\n")

    def next(self) -> dict[str, str]:
        found = export_rows.split(self.line())
        if "kind" not in found:
            raise InvalidExport("A record has no kind.")
        return found

    def skip_tree(self) -> None:
        while not self.line().startswith('{"kind":"end_tree"'):
            pass

    @contextmanager
    def located(self) -> Iterator[None]:
        """Errors that the file causes say where."""
        try:
            yield
        except (InvalidExport, InvalidDocument, InvalidInput) as error:
            raise InvalidExport(f"Line {self.number}: {error}") from error
        except (DataError, IntegrityError) as error:
            raise InvalidExport(f"Line {self.number}: the database refuses this record.") from error


class _Files:
    """Archives that were written, to be deleted if the import fails."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def add(self, name: str) -> None:
        self._names.append(name)

    def delete(self) -> None:
        for name in self._names:
            archive_files.archive_storage().delete(name)


def _members(found: dict[str, str]) -> list[str]:
    """The ids a tree's first line names."""
    members = json.loads(found.get("sessions", "null"))
    if found["kind"] != '"tree"' or not isinstance(members, list) or not members:
        raise InvalidExport("A tree of sessions should begin here.")
    for key in members:
        inputs.identifier(key, "A session id")
    if len(set(members)) != len(members):
        raise InvalidExport("A tree names a session twice.")
    return members


def _counted(summary: TransferSummary, **more: int) -> TransferSummary:
    names = ("trees", "sessions", "records", "renewed", "skipped")
    return TransferSummary(**{name: getattr(summary, name) + more.get(name, 0) for name in names})
