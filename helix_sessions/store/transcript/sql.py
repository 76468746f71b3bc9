"""The statements of the transcript and of the log."""

from functools import cache, lru_cache

from helix_sessions.models import ArchivedRange, ContextUpdate, Event, FragmentBatch, Message, Session
from helix_sessions.store.engine.dialect import Dialect
from helix_sessions.store.engine.session_rows import present
from helix_sessions.store.engine.tables import table

MESSAGE_OF_EVENT = (
    f'LEFT JOIN {table(Message).name} m ON m."session_id" = e."session_id"'
    ' AND m."position" = e."message_position" AND m."seq" = e."seq"'
)
"""The message `m` of an event `e`."""


@cache
def event_data(dialect: Dialect) -> str:
    """The data of an event `e` as text: its own, or its message's."""
    return dialect.as_text('COALESCE(e."data", m."content")')


@cache
def event_columns(dialect: Dialect) -> str:
    """Number, type, data, turn, run and time of an event `e`, and the position of its message `m`."""
    return (
        f'e."seq", e."type", {event_data(dialect)},'
        ' e."turn_id", e."run_id", e."created_at", e."message_position"'
    )


@lru_cache(maxsize=64)
def events(dialect: Dialect, types: int | None, named: tuple[str, ...] = ()) -> str:
    """A range of the log, with conditions on the columns that are `named`. Events before `first_seq` are
    archived, and about to be removed."""
    conditions = ""
    if types is not None:
        conditions += f' AND e."type" IN ({", ".join(["%s"] * types)})' if types else " AND 1 = 0"
    conditions += "".join(f' AND e."{name}" = %s' for name in named)
    return (
        f"SELECT {event_columns(dialect)} FROM {table(Event).name} e {MESSAGE_OF_EVENT}"  # noqa: S608
        ' WHERE e."session_id" = %s AND e."seq" >= %s AND e."seq" < %s'
        f' AND e."seq" >= (SELECT s."first_seq" FROM {table(Session).name} s'
        f' WHERE s."session_id" = %s AND {present("s.")})'
        f'{conditions} ORDER BY e."seq" LIMIT %s'
    )


@cache
def events_to_archive(dialect: Dialect) -> str:
    """A range of the log, wherever it begins."""
    return (
        f"SELECT {event_columns(dialect)} FROM {table(Event).name} e {MESSAGE_OF_EVENT}"  # noqa: S608
        ' WHERE e."session_id" = %s AND e."seq" BETWEEN %s AND %s ORDER BY e."seq"'
    )


@cache
def next_events(dialect: Dialect) -> str:
    """A session's next events with when it was created and its head, which a replica does not know: without
    events one row, without a session none."""
    head = dialect.on_primary('s."head_seq"')
    return (
        f'SELECT s."created_at", {head}, {event_columns(dialect)}'  # noqa: S608
        f" FROM {table(Session).name} s LEFT JOIN (SELECT * FROM {table(Event).name}"
        ' WHERE "session_id" = %s AND "seq" > %s AND "seq" >='
        f' (SELECT "first_seq" FROM {table(Session).name} WHERE "session_id" = %s)'
        ' ORDER BY "seq" LIMIT %s) e ON e."session_id" = s."session_id"'
        f' {MESSAGE_OF_EVENT} WHERE s."session_id" = %s AND {present("s.")} ORDER BY e."seq"'
    )


@cache
def messages(dialect: Dialect, newest_first: bool, from_the_end: bool) -> str:
    """A range of the transcript with its total, as of one moment. Without rows there is no session."""
    if from_the_end:
        positions = '"position" < s."message_count" - %s AND m."position" >= s."message_count" - %s'
    else:
        positions = '"position" >= %s AND m."position" < %s'
    return (
        'SELECT s."message_count", s."version", s."owner_id",'  # noqa: S608
        f" {table(Message).selection(dialect, ['content', 'position', 'seq'], 'm.')}"
        f" FROM {table(Session).name} s LEFT JOIN {table(Message).name} m"
        f' ON m."session_id" = s."session_id" AND m."truncated_seq" IS NULL AND m.{positions}'
        f' WHERE s."session_id" = %s AND {present("s.")}'
        f' ORDER BY m."position"{" DESC" if newest_first else ""}'
    )


@cache
def hidden_messages(dialect: Dialect) -> str:
    """A range of the transcript as it was at an event, of what was truncated since; and of each message
    whether it told the model of a change of its context."""
    columns = table(Message).selection(dialect, ("role", "content", "position", "seq"), "m.")
    return (
        f"SELECT {columns}, EXISTS (SELECT 1 FROM {table(ContextUpdate).name} u"  # noqa: S608
        ' WHERE u."session_id" = m."session_id" AND u."seq" = m."seq")'
        f" FROM {table(Message).name} m"
        ' WHERE m."session_id" = %s AND m."position" >= %s AND m."position" < %s'
        ' AND m."seq" <= %s AND m."truncated_seq" > %s ORDER BY m."position"'
    )


@cache
def kept_fragments(dialect: Dialect) -> str:
    """What is kept of the messages of the run under way."""
    columns = ("message_id", "first_index", "turn_id", "after_seq", "fragments")
    return (
        f"SELECT {table(FragmentBatch).selection(dialect, columns, 'f.')} FROM {table(FragmentBatch).name} f"  # noqa: S608
        f' WHERE f."session_id" = %s AND f."run_id" = (SELECT s."run_id" FROM {table(Session).name} s'
        f' WHERE s."session_id" = %s AND {present("s.")}) ORDER BY f."message_id", f."first_index"'
    )


REMOVE_ARCHIVES = (
    f'DELETE FROM {table(ArchivedRange).name} WHERE "session_id" = %s RETURNING "storage", "name"'  # noqa: S608
)
