"""The event log: append, read ranges."""

from collections.abc import Iterable, Sequence
from datetime import UTC
from typing import Any

from helix_sessions.content import documents
from helix_sessions.exceptions import EventsArchived, InvalidInput
from helix_sessions.models import EventKey
from helix_sessions.store.engine import cursors, inputs
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.tables import aware
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.transcript import archive_files, log_rows, sql
from helix_sessions.types import JSON, ROLES, UNSET, EventRecord, EventTexts

_MAX_TYPES = 500


MESSAGE_TYPES = {f"{role}_message": role for role in ROLES}


def emit_event(
    store: Store,
    session_id: str,
    type: str,
    data: JSON = None,
    *,
    turn_id: str | None = None,
    run_id: str | None = None,
    idempotency_key: str | None = None,
) -> EventRecord:
    """Append an event. A message type with a `content` is a message too. The same idempotency
    key again returns the first record."""
    kind = inputs.identifier(type, "The type of an event")
    turn = inputs.optional_identifier(turn_id, "turn_id")
    run = inputs.optional_identifier(run_id, "run_id")
    key = inputs.optional_identifier(idempotency_key, "idempotency_key")
    role = MESSAGE_TYPES.get(kind) if isinstance(data, dict) and "content" in data else None
    if role is not None:
        if data.get("role", role) != role:
            raise InvalidInput(f"A {kind} event cannot have the role {inputs.shown(data['role'])}.")
        data = data if "role" in data else {"role": role, **data}
    text = inputs.document(data)

    def emit(work: UnitOfWork) -> EventRecord:
        if key is not None:
            before = EventKey.objects.using(store.using).filter(session_id=work.session.session_id, key=key)
            made = before.first()
            if made is not None:
                if made.record is not None:
                    return archive_files.event_of(work.session.session_id, made.record)
                return get_events(store, session_id, made.seq, made.seq + 1)[0]
        work.versioned = role is not None
        work.note_activity()
        given = UNSET if run is None else run
        if role is not None and text is not None:
            seq = work.message(role, text, run_id=given, turn_id=turn)
        else:
            seq = work.event(kind, text=text, run_id=given, turn_id=turn)
        if key is not None:
            work.insert(EventKey, key=key, seq=seq)
        return EventRecord(
            session_id=work.session.session_id,
            seq=seq,
            type=kind,
            data=None if text is None else documents.load(text),
            turn_id=turn,
            run_id=run if run is not None else work.session.run_id,
            created_at=work.now,
        )

    return store._decide(session_id, emit)[1]


def get_events(
    store: Store,
    session_id: str,
    from_seq: int | None = None,
    to_seq: int | None = None,
    *,
    types: Iterable[str] | None = None,
    run_id: str | None = None,
    turn_id: str | None = None,
    limit: int | None = None,
) -> list[EventRecord]:
    """Read the events of the half-open range `[from_seq, to_seq)`, oldest first.

    Without `from_seq` the first is the first there is. One before that, in the part of the log that was
    archived, raises `EventsArchived`.
    """
    key = session_key(session_id)
    rows = _event_rows(store, key, from_seq, to_seq, types, limit, run_id=run_id, turn_id=turn_id)
    return [record(key, row) for row in rows]


def get_event_texts(
    store: Store,
    session_id: str,
    from_seq: int | None = None,
    to_seq: int | None = None,
    *,
    types: Iterable[str] | None = None,
    run_id: str | None = None,
    turn_id: str | None = None,
    limit: int,
    cursor: str | None = None,
) -> EventTexts:
    """`get_events` as a page of JSON texts, for callers that pass them on unparsed."""
    key = session_key(session_id)
    most = min(inputs.integer(limit, "limit", minimum=1), inputs.MAX_INTEGER - 1)
    if cursor is not None:
        [from_seq] = cursors.decode("events", cursor, int)
    rows = _event_rows(store, key, from_seq, to_seq, types, most + 1, run_id=run_id, turn_id=turn_id)
    page = rows[:most]
    beginning = f'{{"session_id":{documents.write(key)},"seq":'
    return EventTexts(
        texts=[_text(beginning, row) for row in page],
        next_cursor=cursors.encode("events", page[-1][0] + 1) if len(rows) > most else None,
    )


def _event_rows(
    store: Store,
    key: str,
    from_seq: int | None,
    to_seq: int | None,
    types: Iterable[str] | None,
    limit: int | None,
    *,
    run_id: str | None,
    turn_id: str | None,
) -> list[Sequence[Any]]:
    asked = inputs.optional_integer(from_seq, "from_seq")
    first = asked or 0
    end = inputs.MAX_INTEGER if to_seq is None else inputs.integer(to_seq, "to_seq")
    most = inputs.MAX_INTEGER if limit is None else inputs.integer(limit, "limit")
    given = {"run_id": run_id, "turn_id": turn_id}
    named = {name: inputs.identifier(value, name) for name, value in given.items() if value is not None}
    kinds = None if types is None else _types(types)
    connection = store._connection
    found = sql.events(store._dialect, None if kinds is None else len(kinds), tuple(named))
    params = [key, first, end, key, *(kinds or ()), *named.values(), most]
    if store._owner is not UNSET:
        store._read(key, ("session_id",))
    rows = fetch(connection, found, params, prepare=not kinds)
    if not rows or rows[0][0] > max(first, 1):
        # Something is missing at the start: left out by a filter, or archived.
        begin: int = store._read(key, ("first_seq",)).first_seq
        if max(first, 1) < begin and (asked is not None or end <= begin) and first < end:
            raise EventsArchived(first_available_seq=begin)
        if rows and rows[0][0] < begin:  # archived, and about to be removed
            return _event_rows(store, key, begin, to_seq, kinds, limit, run_id=run_id, turn_id=turn_id)
    return log_rows.opened(key, rows)


def record(session_id: str, row: Sequence[Any]) -> EventRecord:
    """The event of a row of the log."""
    seq, kind, data, turn_id, run_id, created_at = row[:6]
    return EventRecord(
        session_id=session_id,
        seq=seq,
        type=kind,
        data=None if data is None else documents.load(data),
        turn_id=turn_id,
        run_id=run_id,
        created_at=aware(created_at),
    )


def event_text(session_id: str, row: Sequence[Any]) -> str:
    """The event of a row as JSON, its data as they are stored."""
    return _text(f'{{"session_id":{documents.write(session_id)},"seq":', row)


def _text(beginning: str, row: Sequence[Any]) -> str:
    """The event of a row as JSON; its data are joined in as they are stored."""
    seq, kind, data, turn_id, run_id, created_at = row[:6]
    moment = aware(created_at).astimezone(UTC).isoformat()
    rest = documents.write({"turn_id": turn_id, "run_id": run_id, "created_at": moment})
    return f'{beginning}{seq},"type":{documents.write(kind)},"data":{data or "null"},{rest[1:]}'


def _types(values: Iterable[str]) -> list[str]:
    if isinstance(values, str):
        values = [values]
    if not isinstance(values, Iterable):
        raise InvalidInput("types must be a list of event types.")
    kinds = sorted({inputs.identifier(value, "The type of an event") for value in values})
    if len(kinds) > _MAX_TYPES:
        raise InvalidInput(f"At most {_MAX_TYPES} types can be asked for, not {len(kinds)}.")
    return kinds
