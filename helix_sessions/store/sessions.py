"""The life of a session: created, branched, listed, described, deleted."""

import os
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions import documents, encryption
from helix_sessions.exceptions import CheckpointNotFound, InvalidInput, SessionNotFound
from helix_sessions.models import Checkpoint, Event, Input, InputClaim, Message, Session, SubSessionRef
from helix_sessions.models.sessions import SessionQuerySet
from helix_sessions.store import (
    agent_records,
    archives,
    context_rows,
    cursors,
    frames,
    inputs,
    notes,
    open_calls,
    snapshots,
    tracing,
)
from helix_sessions.store.base import StoreBase, session_key
from helix_sessions.store.belongings import every_table
from helix_sessions.store.database import execute, fetch, let_go_if_broken
from helix_sessions.store.tables import table
from helix_sessions.store.tombstones import GONE
from helix_sessions.store.unit import (
    ALL_COLUMNS,
    SessionRow,
    Work,
    check_fence,
    check_row_version,
    lock_row,
    locking_transaction,
    read_row,
)
from helix_sessions.stream.wakeups import wake_after_commit
from helix_sessions.types import (
    JSON,
    MODES,
    SESSION_STATUSES,
    TOMBSTONE,
    UNSET,
    Page,
    SessionHead,
    SessionState,
    SessionSummary,
)

_SUMMARY = (
    "session_id",
    "agent_type",
    "status",
    "version",
    "step_count",
    "message_count",
    "user_id",
    "owner_id",
    "tags",
    "parent_session_id",
    "expires_at",
    "created_at",
    "updated_at",
)
_GIVE_CLAIMS_BACK = (
    f'DELETE FROM {table(InputClaim).name} WHERE "session_id" = %s AND "input_id" IN'  # noqa: S608
    f' (SELECT "input_id" FROM {table(Input).name} WHERE "session_id" = %s)'
)
_FOR_DELETION = ("session_id", "version", "status", "fence", "lease_owner", "lease_token")
_COPIED_AT_ONCE = 500
_DEFAULTS: dict[str, Any] = {
    field.attname: field.get_default() for field in Session._meta.local_concrete_fields if field.has_default()
}


class Sessions(StoreBase):
    """Lifecycle."""

    def create_session(
        self,
        session_id: str | None,
        *,
        agent_type: str,
        custom_state: Mapping[str, JSON] | None = None,
        owner: Any = None,
        user_id: str | None = None,
        stream_id: str | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, JSON] | None = None,
        parent_session_id: str | None = None,
        root_session_id: str | None = None,
        mode: str = "standard",
        expires_at: datetime | None = None,
        tracing_context: JSON = None,
        workspace_ref: JSON = None,
    ) -> SessionState:
        """Create a session; of N callers with one id exactly one wins, the rest get `SessionExists`.

        Without an id it gets a UUIDv7. With a parent, the root is worked out from it. A store of one owner
        knows neither a parent nor a root that is somebody else's.
        """
        key = new_id() if session_id is None else session_key(session_id)
        self._refuse_to_recreate(key)
        state = {} if custom_state is None else custom_state
        text = inputs.mapping(state, "custom_state")
        columns = {
            "session_id": key,
            "agent_type": inputs.identifier(agent_type, "agent_type"),
            "owner_id": self._new_owner(owner),
            "user_id": inputs.optional_identifier(user_id, "user_id"),
            "stream_id": inputs.optional_identifier(stream_id, "stream_id"),
            "tags": documents.write(inputs.tags(tags)),
            "metadata": inputs.metadata({} if metadata is None else metadata),
            "parent_session_id": inputs.optional_identifier(parent_session_id, "parent_session_id"),
            "root_session_id": inputs.optional_identifier(root_session_id, "root_session_id"),
            "mode": inputs.choice(mode, MODES, "The mode"),
            "expires_at": inputs.optional_moment(expires_at, "expires_at"),
            "tracing_context": inputs.document(
                tracing.current() if tracing_context is None else tracing_context
            ),
            "workspace_ref": inputs.document(workspace_ref),
        }
        with locking_transaction(self.using) as connection:
            if columns["parent_session_id"] is not None:
                parent = lock_row(connection, columns["parent_session_id"], owner=self._owner)
                columns["root_session_id"] = parent.root_session_id or parent.session_id
            elif columns["root_session_id"] not in (None, key) and self._owner is not UNSET:
                read_row(connection, columns["root_session_id"], ("session_id",), self._owner)
            work = new_work(connection, columns)
            snapshots.record(work, dict(state), text)
            started = {"agent_type": agent_type, "parent_session_id": parent_session_id}
            work.event("session_started", {name: value for name, value in started.items() if value})
            work.flush()
        return frames.state_of(work.session, documents.load(text))

    def session_exists(self, session_id: str) -> bool:
        """Whether there is a session with this id."""
        try:
            self._read(session_id, ("session_id",))
        except SessionNotFound:
            return False
        return True

    def get_session_head(self, session_id: str) -> SessionHead:
        """What may change about a session with each call, and whose it is, without any document."""
        names = tuple(known.name for known in fields(SessionHead))
        row = self._read(session_id, names)
        return SessionHead(**{name: getattr(row, name) for name in names})

    def check_session_version(self, session_id: str, expected_version: int) -> None:
        """Raise `StaleState` unless the session has this version."""
        row = self._read(session_id, ("version", "status"))
        check_row_version(row, inputs.expected_version(expected_version))

    def get_metadata(self, session_id: str) -> tuple[dict[str, JSON], int]:
        """The metadata, and the version they are of."""
        row = self._read(session_id, ("metadata", "version"))
        return documents.load(row.metadata), row.version

    def _new_owner(self, owner: Any) -> Any:
        """Who owns what this store creates; a store of one owner creates for nobody else."""
        key = inputs.owner_key(owner)
        if self._owner is UNSET:
            return key
        if key not in (None, self._owner):
            raise InvalidInput("This store creates sessions of its own owner only.")
        return self._owner

    def delete_session(self, session_id: str, *, expected_version: int | None = None) -> None:
        """Remove a session, what belongs to it, and its tree of sub-sessions. An unknown id is no error."""
        version = inputs.expected_version(expected_version)
        level = {session_key(session_id)}
        seen: set[str] = set()
        with locking_transaction(self.using) as connection:
            while level:
                seen |= level
                present = {key for key in sorted(level) if self._locked(connection, key, version)}
                version = None
                below = children_of(self.using, present)
                for key in sorted(present):
                    remove(connection, key)
                level = below - seen

    def _locked(
        self, connection: BaseDatabaseWrapper, session_id: str, expected_version: int | None = None
    ) -> bool:
        try:
            row = lock_row(connection, session_id, _FOR_DELETION, self._owner, tombstones=True)
        except SessionNotFound:
            return False
        check_fence(row, self._lease)
        check_row_version(row, expected_version)
        return True

    def clone_session(
        self,
        source_id: str,
        new_id: str,
        *,
        checkpoint_id: str | None = None,
        message_count: int | None = None,
    ) -> SessionState:
        """Branch: a new session with the state at the checkpoint (or now) and the first messages up to it."""
        source_key, key = session_key(source_id), session_key(new_id)
        self._refuse_to_recreate(key)
        checkpoint = inputs.optional_identifier(
            checkpoint_id, "The checkpoint id", limit=inputs.MAX_CHECKPOINT_ID
        )
        most = inputs.optional_integer(message_count, "message_count")
        with locking_transaction(self.using) as connection:
            work, custom = branch(connection, source_key, key, checkpoint, most, owner=self._owner)
            work.flush()
        return frames.state_of(work.session, custom)

    def query_sessions(self) -> SessionQuerySet:
        """The sessions this store knows, newest first; to be narrowed, and read with `page_of_sessions`."""
        return self._query()

    def _query(self, *, tombstones: bool = False) -> SessionQuerySet:
        let_go_if_broken(self._connection)
        sessions = Session.with_tombstones if tombstones else Session.objects
        rows = sessions.using(self.using).newest_first()
        return rows if self._owner is UNSET else rows.owned_by(self._owner)

    def page_of_sessions(
        self, rows: SessionQuerySet, *, limit: int = 50, cursor: str | None = None
    ) -> Page[SessionSummary]:
        """A page of what `query_sessions` was narrowed to."""
        return page_of_summaries(rows, limit=limit, cursor=cursor)

    def list_sessions(
        self,
        *,
        status: str | None = None,
        agent_type: str | None = None,
        user_id: str | None = None,
        owner: Any = None,
        tag: str | None = None,
        parent_session_id: str | None = None,
        updated_after: datetime | None = None,
        expires_before: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[SessionSummary]:
        """Sessions, newest first, without their documents."""
        rows = self._query(tombstones=status is GONE)
        if status is GONE:
            rows = rows.filter(status=TOMBSTONE)
        elif status is not None:
            rows = rows.filter(status=inputs.choice(status, SESSION_STATUSES, "The status"))
        if agent_type is not None:
            rows = rows.filter(agent_type=inputs.identifier(agent_type, "agent_type"))
        if user_id is not None:
            rows = rows.filter(user_id=inputs.identifier(user_id, "user_id"))
        if owner is not None:
            rows = rows.owned_by(inputs.owner_key(owner))
        if tag is not None:
            rows = rows.tagged(inputs.identifier(tag, "A tag"))
        if parent_session_id is not None:
            rows = rows.children_of(inputs.identifier(parent_session_id, "parent_session_id"))
        if updated_after is not None:
            rows = rows.filter(updated_at__gt=inputs.moment(updated_after, "updated_after"))
        if expires_before is not None:
            rows = rows.filter(expires_at__lt=inputs.moment(expires_before, "expires_before"))
        return page_of_summaries(rows, limit=limit, cursor=cursor)

    def patch_metadata(
        self, session_id: str, patch: Mapping[str, JSON], *, expected_version: int | None = None
    ) -> int:
        """Set top-level keys of the metadata; a `None` value removes the key. Returns the version."""
        inputs.metadata(patch)
        with self._write(session_id, expected_version) as work:
            if patch:
                merged = {**documents.load(work.session.metadata), **patch}
                kept = {key: value for key, value in merged.items() if key not in patch or value is not None}
                work.change(metadata=documents.dump(kept))
                work.event("metadata_patched", {"keys": list(patch)})
        return int(work.session.version)

    def set_expiry(
        self, session_id: str, expires_at: datetime | None, *, expected_version: int | None = None
    ) -> int:
        """Say when the session expires, or that it never does; returns the version. Setting the moment it
        has already changes nothing."""
        moment = inputs.optional_moment(expires_at, "expires_at")
        with self._write(session_id, expected_version) as work:
            before = work.session.expires_at
            if moment != before:
                work.change(expires_at=moment)
                told = {"from": before, "to": moment}
                work.event("expiry_changed", {name: at and at.isoformat() for name, at in told.items()})
        return int(work.session.version)


_KEPT_BY_A_BRANCH = ("agent_type", "mode", "owner_id", "user_id", "tags", "metadata", "location")


def new_id() -> str:
    """A UUIDv7: unique, and sorting by the time it was made."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    high, low = random >> 68, random & (1 << 62) - 1
    return str(uuid.UUID(int=milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low))


def new_work(connection: BaseDatabaseWrapper, columns: dict[str, Any]) -> Work:
    """A session that the flush inserts, as `Work`."""
    values = dict.fromkeys(ALL_COLUMNS) | _DEFAULTS | {"tags": "[]", "metadata": "{}"} | columns
    work = Work(connection, SessionRow(ALL_COLUMNS, [values[name] for name in ALL_COLUMNS]), new=True)
    work.change(created_at=work.now, updated_at=work.now, status_since=work.now)
    return work


def page_of_summaries(rows: Any, *, limit: int, cursor: str | None) -> Page[SessionSummary]:
    """A page of sessions of a queryset that is in the order `newest_first`."""
    inputs.integer(limit, "limit", minimum=1)
    if cursor is not None:
        created_at, key = cursors.decode("sessions", cursor, datetime, str)
        rows = rows.filter(created_at__lte=created_at).exclude(created_at=created_at, session_id__gte=key)
    found = summaries(rows[: min(limit, inputs.MAX_INTEGER - 1) + 1])
    items, more = found[:limit], len(found) > limit
    return Page(
        items=items,
        next_cursor=cursors.encode("sessions", items[-1].created_at, items[-1].session_id) if more else None,
    )


def summaries(rows: Any) -> list[SessionSummary]:
    """The sessions of a queryset without their documents."""
    found = [dict(zip(_SUMMARY, values, strict=True)) for values in rows.values_list(*_SUMMARY)]
    return [SessionSummary(**{**summary, "tags": tuple(summary["tags"])}) for summary in found]


def branch(
    connection: BaseDatabaseWrapper,
    source_id: str,
    new_id: str,
    checkpoint_id: str | None,
    message_count: int | None = None,
    *,
    custom: dict[str, Any] | None = None,
    owner: Any = UNSET,
    with_agent: bool = True,
) -> tuple[Work, dict[str, Any]]:
    """A session that branches from another, which is locked, and its custom state: the source's, or this."""
    source = lock_row(connection, source_id, ALL_COLUMNS, owner)
    boundary = _boundary(connection.alias, source, checkpoint_id)
    if custom is None:
        custom = snapshots.read(connection, source_id, boundary["state_base"], boundary["state_number"])
    count = min(source.message_count, boundary["message_count"])
    if message_count is not None:
        count = min(count, message_count)
    work = new_work(
        connection,
        {
            "session_id": new_id,
            "forked_from_session_id": source_id,
            "forked_from_checkpoint_id": checkpoint_id,
            "step_count": boundary["step_count"],
            "open_calls": open_calls.at(
                connection, source_id, source.open_calls, source.message_count, count
            ),
            **{name: boundary[name] for name in _KEPT_BY_A_BRANCH},
        },
    )
    snapshots.record(work, custom, documents.dump(custom))
    forked = {"agent_type": source.agent_type, "forked_from": [source_id, checkpoint_id]}
    work.event("session_started", forked)
    context_rows.copy(work, source_id, count, work.session.head_seq + 1)
    _copy_messages(work, source_id, count)
    if with_agent:
        agent_records.give(work, source_id)
    if checkpoint_id is None and message_count is None:  # notes are of the present
        notes.copy(work, source_id)
    return work, custom


def _boundary(using: str, source: SessionRow, checkpoint_id: str | None) -> dict[str, Any]:
    """What a branch takes over, as it is now or as it was at a checkpoint."""
    if checkpoint_id is None:
        names = ("state_base", "state_number", "step_count", "message_count", *_KEPT_BY_A_BRANCH)
        return {name: getattr(source, name) for name in names}
    checkpoint = (
        Checkpoint.objects.using(using)
        .filter(session_id=source.session_id, checkpoint_id=checkpoint_id)
        .first()
    )
    if checkpoint is None:
        raise CheckpointNotFound(f"Session {source.session_id!r} has no checkpoint {checkpoint_id!r}.")
    then = {name: checkpoint.frame.get(name) for name in _KEPT_BY_A_BRANCH}
    location = then.pop("location")
    return {
        **then,
        "tags": documents.write(then["tags"]),
        "metadata": documents.write(then["metadata"]),
        "location": None if location is None else documents.write(location),
        "owner_id": source.owner_id,
        "state_base": checkpoint.state_base,
        "state_number": checkpoint.state_number,
        "step_count": checkpoint.step_count,
        "message_count": checkpoint.message_count,
    }


def _copy_messages(work: Work, source_id: str, count: int) -> None:
    """Copy the first messages of the source, each with its event: inside the database, but for content that
    has to be sealed for its new place."""
    if not count:
        return
    if encryption.keyring() is not None:
        _seal_copies(work, source_id, count)
        return
    first_seq = work.session.head_seq + 1
    integer, moment = (
        ("%s::bigint", "%s::timestamptz") if work.connection.vendor == "postgresql" else ("%s", "%s")
    )
    as_text = str if work.connection.vendor == "postgresql" else int
    [now] = table(Event).encoder(work.connection.vendor, ("created_at",))([work.now])
    key, offset, most = work.session.session_id, as_text(first_seq), as_text(count)
    visible = (
        f'FROM {table(Message).name} WHERE "session_id" = %s AND "truncated_seq" IS NULL AND "position" < %s'
    )
    work.statement(
        f'INSERT INTO {table(Message).name} ("session_id", "position", "seq", "role", "content")'
        f' SELECT %s, "position", "position" + {integer}, "role", "content" {visible}',
        [key, offset, source_id, most],
    )
    work.statement(
        f'INSERT INTO {table(Event).name} ("session_id", "seq", "type", "message_position", "created_at")'
        f""" SELECT %s, "position" + {integer}, "role" || '_message', "position", {moment} {visible}""",
        [key, offset, now, source_id, most],
    )
    work.change(message_count=count, head_seq=work.session.head_seq + count)


def _seal_copies(work: Work, source_id: str, count: int) -> None:
    first_seq, messages = work.session.head_seq + 1, table(Message)
    for start in range(0, count, _COPIED_AT_ONCE):
        rows = fetch(
            work.connection,
            f"SELECT {messages.selection(work.connection.vendor, ('position', 'seq', 'role', 'content'))}"  # noqa: S608
            f' FROM {messages.name} WHERE "session_id" = %s AND "truncated_seq" IS NULL'
            ' AND "position" >= %s AND "position" < %s ORDER BY "position"',
            [source_id, start, min(count, start + _COPIED_AT_ONCE)],
        )
        for position, seq, role, content in rows:
            text = messages.open_text("content", content, source_id, position, seq)
            place = {"seq": first_seq + position, "position": position}
            work.insert(Message, role=role, content=text, **place)
            work.insert(
                Event,
                seq=place["seq"],
                type=f"{role}_message",
                message_position=position,
                created_at=work.now,
            )
    work.change(message_count=count, head_seq=work.session.head_seq + count)


def children_of(using: str, parents: Iterable[str]) -> set[str]:
    """The ids of the next level of a tree, tombstones included: children by parent, and by local
    reference."""
    keys = list(parents)
    children = Session.with_tombstones.using(using).filter(parent_session_id__in=keys)
    refs = SubSessionRef.objects.using(using).filter(session_id__in=keys, location="local")
    return {
        *children.values_list("session_id", flat=True),
        *refs.values_list("sub_session_id", flat=True),
    }


def remove(connection: BaseDatabaseWrapper, session_id: str) -> None:
    """Remove one locked session and what belongs to it, but not its tree. Archives of its log go after
    the commit.

    The session's row goes first: the log may be removed only when its session is gone.
    """
    archives.forget(connection, session_id)
    execute(connection, _GIVE_CLAIMS_BACK, [session_id, session_id])
    for model in every_table():
        execute(connection, f'DELETE FROM {table(model).name} WHERE "session_id" = %s', [session_id])  # noqa: S608
    wake_after_commit(connection, session_id, None)
