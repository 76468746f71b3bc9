"""Imports sessions from JSON Lines, each tree in one transaction."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import DataError, IntegrityError, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from helix_sessions.conf import conf
from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidDocument, InvalidExport, InvalidInput, SessionExists
from helix_sessions.models import ArchivedRange, Input, Message, Session, SubSessionRef
from helix_sessions.store.engine import inputs, message_words
from helix_sessions.store.engine.connection import execute
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.ids import new_id
from helix_sessions.store.engine.session_columns import NOT_IMPORTED
from helix_sessions.store.engine.session_rows import SessionRow
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.tables import insert_sql, table
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.inbox import inbox
from helix_sessions.store.keyed import blobs
from helix_sessions.store.limits.spend_transfer import KINDS, SpendImporter
from helix_sessions.store.maintenance import doctor, export_rows, import_gate
from helix_sessions.store.maintenance.import_ids import NewIds
from helix_sessions.store.maintenance.job import Job
from helix_sessions.store.memory.transfer import MemoryImporter
from helix_sessions.store.schedules.transfer import ScheduleImporter
from helix_sessions.store.state import runnable
from helix_sessions.store.transcript import archive_files
from helix_sessions.types import COLLISIONS, UNSET, Collision, TransferSummary

_ABOVE = ("parent_session_id", "root_session_id")
_ROWS_AT_ONCE = 200
_BYTES_AT_ONCE = 4 * 1024 * 1024


def import_sessions(
    store: Store,
    lines: Iterable[str],
    *,
    on_collision: Collision = "fail",
    owner: Any = UNSET,
    check: bool = True,
    on_progress: Callable[[TransferSummary], None] | None = None,
) -> TransferSummary:
    """Import the sessions, memories and schedules that `export_sessions` wrote, exactly as they were.

    Each tree is one transaction. When one of its ids exists, `fail` raises `SessionExists`, `skip` skips
    the tree, and `renew` gives each of its sessions a new id, everywhere it is named. `owner` replaces
    the owners, because their keys are other people in another installation; `None` is no owner. With
    `check` a tree that breaks an invariant is refused. A memory whose key exists raises `MemoryExists`,
    is skipped, or gets a new key. The memories of an owner go to the new one; with `None` they are
    skipped. Schedules are treated as sessions are, and fire from now on. Spend limits that exist stay,
    and of two totals of what was spent the larger one stands.

    A store of one owner imports for that owner. It skips memories of no owner, limits and what was spent,
    and refuses a tree that hangs on a session of another owner.
    """
    inputs.choice(on_collision, COLLISIONS, "on_collision")
    new_owner = store._owner if owner is UNSET else store._owner_key(owner)
    confined = store._owner is not UNSET
    reader = Lines(lines)
    job = Job(TransferSummary(), on_progress=on_progress)
    memories = MemoryImporter(store.using, on_collision, new_owner, confined=confined)
    schedules = ScheduleImporter(store.using, on_collision, new_owner)
    spend = SpendImporter(store.using, new_owner, confined=confined)
    others = {"memory": memories.add, "schedule": schedules.add, **dict.fromkeys(KINDS, spend.add)}
    with reader.located():
        export_rows.check_header(reader.line())
        for members in job.over(reader.trees(others)):
            _import_tree(store, reader, members, on_collision, new_owner, check, job)
        memories.flush()
        spend.flush()
    job.count(memories=memories.written, schedules=schedules.written)
    job.count(skipped=memories.skipped + schedules.skipped)
    return job.summary


def _import_tree(
    store: Store,
    reader: "Lines",
    members: list[str],
    on_collision: Collision,
    owner: Any,
    check: bool,
    job: Job[TransferSummary],
) -> None:
    rows = Session.with_tombstones.using(store.using)
    taken = rows.filter(session_id__among=members).order_by("session_id").values_list("session_id", flat=True)
    collision = taken.first()
    if collision is not None and on_collision == "fail":
        raise SessionExists(f"There is a session {collision!r} already.")
    if collision is not None and on_collision == "skip":
        reader.skip_tree()
        job.count(skipped=len(members))
        return
    new_ids = NewIds({key: new_id() for key in members} if collision is not None else {}, owner)
    written = ArchiveFiles()
    try:
        with locking_transaction(store.using) as connection:
            count = TreeRows(connection, members, new_ids, written).read(reader)
            _refuse_foreign(store, [new_ids.ids.get(key, key) for key in members])
            if check:
                _refuse_broken(store, [new_ids.ids.get(key, key) for key in members])
    except BaseException:
        written.delete()
        raise
    renewed = len(members) if new_ids.ids else 0
    job.count(trees=1, sessions=len(members), records=count, renewed=renewed)


def _refuse_foreign(store: Store, session_ids: list[str]) -> None:
    """In a store of one owner a tree hangs on no session of another, above or below."""
    if store._owner is UNSET:
        return
    sessions = Session.with_tombstones.using(store.using)
    named: set[str | None] = set()
    for above in sessions.filter(session_id__among=session_ids).values_list(*_ABOVE):
        named.update(above)
    refs = SubSessionRef.objects.using(store.using).filter(session__session_id__among=session_ids)
    named.update(refs.filter(location="local").values_list("sub_session_id", flat=True))
    foreign = sessions.filter(session_id__among=list(named - {None})).exclude(owner_id=store._owner)
    if (key := foreign.values_list("session_id", flat=True).first()) is not None:
        raise InvalidExport(f"This tree hangs on the session {key!r}, which this store does not have.")


def _refuse_broken(store: Store, session_ids: list[str]) -> None:
    for finding in doctor.examine_sessions(store, session_ids=session_ids):
        if finding.severity == "error":
            raise InvalidExport(f"Session {finding.session_id!r}: {finding.code}, {finding.detail}")


class TreeRows:
    """Inserts the rows of one tree, a few hundred per statement."""

    def __init__(
        self, connection: BaseDatabaseWrapper, members: list[str], new_ids: NewIds, files: "ArchiveFiles"
    ) -> None:
        self.connection = connection
        self.missing = set(members)
        self.new_ids = new_ids
        self.files = files
        self.session_id: str | None = None
        self.owner_id: Any = None
        self.model: type[models.Model] | None = None
        self.rows: list[list[Any]] = []
        self.size = 0

    def read(self, reader: "Lines") -> int:
        """Insert the records up to the tree's end; return how many lines they were."""
        begin = reader.number
        while (found := reader.next())["kind"] != '"end_tree"':
            self._record(reader, found)
        self.flush()
        count = reader.number - begin - 1
        if self.missing or found.get("records") != str(count):
            raise InvalidExport("This tree is not complete.")
        return count

    def _record(self, reader: "Lines", found: dict[str, str]) -> None:
        kind = json.loads(found["kind"])
        if kind == "blob":
            self._blob(found)
            return
        if not isinstance(kind, str) or kind not in export_rows.tables():
            raise InvalidExport(f"There are no {kind!r:.80} records; was this made by a newer version?")
        model = export_rows.tables()[kind]
        if model is ArchivedRange:
            found = {**found, "storage": documents.write(conf.ARCHIVE_STORAGE), "name": '""'}
        columns = import_gate.admit(kind, model, export_rows.read(kind, found))
        if model is Session:
            columns.update(dict.fromkeys(NOT_IMPORTED))
            if "run_requested" not in found:  # it was made before sessions said when they want to run
                columns["runnable_at"] = runnable.due_at(
                    SessionRow(columns, columns.values()), timezone.now()
                )
            self._begin(columns["session_id"])
        elif columns["session_id"] != self.session_id:
            raise InvalidExport(f"A {kind} belongs to another session.")
        if model is ArchivedRange:
            columns["name"] = self._archive(reader, columns)
        if self.new_ids:
            columns = self.new_ids.row(model, columns)
        if model is Session:
            self.owner_id = columns["owner_id"]
        self.add(model, [columns[name] for name in table(model).columns], sum(map(len, found.values())))

    def _blob(self, found: dict[str, str]) -> None:
        """Keep a posted attachment, and let the session have it."""
        record = {name: json.loads(text) for name, text in found.items()}
        if record.get("session_id") != self.session_id or self.session_id is None:
            raise InvalidExport("A blob belongs to another session.")
        try:
            data = b64decode(record["data"], validate=True)
        except (KeyError, TypeError, ValueError):
            raise InvalidExport("A blob has no content.") from None
        self.flush()
        key = self.new_ids.ids.get(self.session_id, self.session_id)
        blobs.import_posted(self.connection, key, data, record.get("media_type"))

    def _begin(self, session_id: str) -> None:
        if session_id not in self.missing:
            raise InvalidExport(f"The session {session_id!r:.80} does not belong here.")
        self.flush()
        self.missing.discard(session_id)
        self.session_id = session_id

    def add(self, model: type[models.Model], row: list[Any], size: int) -> None:
        if model is not self.model or len(self.rows) >= _ROWS_AT_ONCE or self.size >= _BYTES_AT_ONCE:
            self.flush()
        self.model = model
        self.rows.append(row)
        self.size += size

    def flush(self) -> None:
        if self.model is not None and self.rows:
            columns = table(self.model).columns
            encode = table(self.model).encoder(dialect_of(self.connection), columns)
            params = [value for row in self.rows for value in encode(row)]
            sql = insert_sql(self.model, columns, len(self.rows), skipping=self.model is Session)
            full = len(self.rows) == _ROWS_AT_ONCE  # the size that most statements have
            if execute(self.connection, sql, params, prepare=full) != len(self.rows):
                raise SessionExists(f"The session {self.session_id!r} was created meanwhile.")
            if self.model is Message and message_words.are_kept():
                key, seq, content = (columns.index(name) for name in ("session_id", "seq", "content"))
                message_words.add(self.connection, [(row[key], row[seq], row[content]) for row in self.rows])
            if self.model is Input:
                rows = [dict(zip(columns, row, strict=True)) for row in self.rows]
                inbox.claim(self.connection, self.owner_id, rows)
        self.model, self.rows, self.size = None, [], 0

    def _archive(self, reader: "Lines", columns: dict[str, Any]) -> str:
        """Write the archived events that follow to a file of this installation's storage; return its name."""
        storage = archive_files.archive_storage()
        session_id = self.new_ids.ids.get(columns["session_id"], columns["session_id"])
        first, last = columns["first_seq"], columns["last_seq"]
        lines = self._archived_events(reader, first, last)
        name, _ = archive_files.write_file(storage, session_id, first, last, lines)
        self.files.add(name)
        return name

    def _archived_events(self, reader: "Lines", first: int, last: int) -> Iterator[str]:
        for seq in range(first, last + 1):
            found = reader.next()
            if found["kind"] != '"archived_event"':
                raise InvalidExport("An archived range is not complete.")
            documents.load_foreign(found.get("event", "null"), wrapped=True)
            event = export_rows.split(found.get("event", ""))
            if event.get("seq") != str(seq) or not {"type", "data", "created_at"} <= event.keys():
                raise InvalidExport("An archived event is not in its place.")
            kind = inputs.identifier(json.loads(event["type"]), "The type of an event")
            data = self.new_ids.event_data(kind, event["data"])
            event["data"] = data or "null"
            yield f"{{{','.join(f'{documents.write(name)}:{text}' for name, text in event.items())}}}"


class Lines:
    """Reads the lines of an export, and knows the number of the last one."""

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

    def trees(self, others: Mapping[str, Callable[[Any], None]]) -> Iterator[list[str]]:
        """The ids of each tree; the caller reads or skips its records before the next. What lies between
        trees goes to the others, by its kind."""
        while (found := self.next())["kind"] != '"end"':
            if (add := others.get(found["kind"].strip('"'))) is not None:
                add(found)
            else:
                yield _members(found)

    def skip_tree(self) -> None:
        while not self.line().startswith('{"kind":"end_tree"'):
            pass

    @contextmanager
    def located(self) -> Iterator[None]:
        """Errors that the file causes name the line."""
        try:
            yield
        except (InvalidExport, InvalidDocument, InvalidInput) as error:
            raise InvalidExport(f"Line {self.number}: {error}") from error
        except (DataError, IntegrityError) as error:
            raise InvalidExport(f"Line {self.number}: the database refuses this record.") from error


class ArchiveFiles:
    """Archives that were written, to be deleted if the import fails."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def add(self, name: str) -> None:
        self._names.append(name)

    def delete(self) -> None:
        for name in self._names:
            archive_files.archive_storage().delete(name)


def _members(found: dict[str, str]) -> list[str]:
    """The ids in the first line of a tree."""
    members = json.loads(found.get("sessions", "null"))
    if found["kind"] != '"tree"' or not isinstance(members, list) or not members:
        raise InvalidExport("A tree of sessions should begin here.")
    for key in members:
        inputs.identifier(key, "A session id")
    if len(set(members)) != len(members):
        raise InvalidExport("A tree names a session twice.")
    return members
