"""The statements behind what a model sees."""

from functools import cache

from helix_sessions.models import Compaction, ContextEpoch, ContextUpdate, Message, Session
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.dialect import Dialect
from helix_sessions.store.engine.session_rows import present
from helix_sessions.store.engine.tables import table

COPIED = (
    *("number", "started_at", "reason", "fence", "compacted_at"),
    *("from_position", "kept_position", "end_position"),
)
"""What of a compaction is the same in a branch."""


def latest_compaction(session: str) -> str:
    """The number of the latest compaction, as a part of a query about the session with that alias."""
    return (
        f'(SELECT l."number" FROM {table(Compaction).name} l WHERE l."session_id" = {session}."session_id"'  # noqa: S608
        ' AND l."compacted_seq" IS NOT NULL AND l."truncated_seq" IS NULL ORDER BY l."number" DESC LIMIT 1)'
    )


@cache
def epoch(dialect: Dialect) -> str:
    """The epoch of a session, the number of its latest compaction, and how many characters the updates since
    its baseline have."""
    names = ("baseline", "snapshot", "baseline_seq", "compaction_number")
    content = dialect.as_text('m."content"')
    return (
        f"SELECT {table(ContextEpoch).selection(dialect, names, 'e.')}, {latest_compaction('s')},"  # noqa: S608
        f" (SELECT SUM(LENGTH({content})) FROM {table(ContextUpdate).name} u JOIN {_message_of_update()}"
        ' WHERE u."session_id" = s."session_id" AND u."seq" > e."baseline_seq")'
        f" FROM {table(Session).name} s LEFT JOIN {table(ContextEpoch).name} e"
        ' ON e."session_id" = s."session_id" WHERE s."session_id" = %s'
    )


@cache
def context(dialect: Dialect) -> str:
    """First the baseline with the place of the context, then the compaction with its number, then messages
    with theirs, as of one moment. Without an epoch no update is seen: it told of changes to what the model
    does not know any more.

    The messages are found by the session's id itself, three times a parameter, and not by a join with the
    head, for which SQLite may read every message there is. PostgreSQL's planner does not see it: among long
    transcripts it would expect less of this session than of the average one, and plan anew for each."""
    number, session, baseline = dialect.number, dialect.any_value, dialect.as_text('"baseline"')
    summary, content = dialect.as_text('"content"'), dialect.as_text('m."content"')
    messages, updates = table(Message).name, table(ContextUpdate).name
    return (
        f'WITH seen AS (SELECT {number} AS "compaction", {number} AS "baseline_seq", {number} AS "position",'  # noqa: S608
        f' {number} AS "seq"), head AS (SELECT s."session_id", s."owner_id", e."baseline", c."content",'
        ' COALESCE(c."number", 0) AS "number", COALESCE(e."baseline_seq", 0) AS "baseline_seq",'
        f' COALESCE(e."baseline_seq", {inputs.MAX_INTEGER}) AS "since",'
        ' COALESCE(c."end_position", 0) AS "start", seen."position" AS "seen_position",'
        ' CASE WHEN seen."compaction" = COALESCE(c."number", 0)'
        ' AND seen."baseline_seq" = COALESCE(e."baseline_seq", 0)'
        f' AND (seen."seq" = 0 OR EXISTS (SELECT 1 FROM {messages} m WHERE m."session_id" = s."session_id"'
        ' AND m."position" = seen."position" - 1 AND m."seq" = seen."seq" AND m."truncated_seq" IS NULL))'
        ' THEN 1 ELSE 0 END AS "same"'
        f" FROM {table(Session).name} s CROSS JOIN seen"
        f' LEFT JOIN {table(ContextEpoch).name} e ON e."session_id" = s."session_id"'
        f' LEFT JOIN {table(Compaction).name} c ON c."session_id" = s."session_id"'
        f' AND c."number" = {latest_compaction("s")} WHERE s."session_id" = %s AND {present("s.")})'
        f' SELECT -2 AS "place", "number", "owner_id",'
        f' CASE WHEN "same" = 0 THEN {baseline} END AS "text", "baseline_seq", "start", "same" FROM head'
        f' UNION ALL SELECT -1, "number", NULL, {summary}, NULL, NULL, NULL FROM head'
        ' WHERE "start" > 0 AND "same" = 0'
        f' UNION ALL SELECT m."position", m."seq", NULL, {content}, NULL, NULL, NULL'
        f" FROM {messages} m"
        f' WHERE m."session_id" = {session}'
        ' AND m."position" >= (SELECT CASE WHEN "same" = 1 THEN "seen_position" ELSE "start" END FROM head)'
        ' AND m."truncated_seq" IS NULL AND NOT (m."role" = \'system\' AND EXISTS ('
        f'SELECT 1 FROM {updates} u WHERE u."session_id" = m."session_id" AND u."seq" = m."seq"'
        ' AND u."seq" <= (SELECT "since" FROM head)))'
        f' UNION ALL SELECT m."position", m."seq", NULL, {content}, NULL, NULL, NULL'
        f" FROM {updates} u CROSS JOIN {messages} m"
        f' WHERE u."session_id" = {session} AND u."seq" > (SELECT "since" FROM head)'
        ' AND u."position" < (SELECT CASE WHEN "same" = 1 THEN 0 ELSE "start" END FROM head)'
        ' AND m."session_id" = u."session_id"'
        ' AND m."position" = u."position" AND m."seq" = u."seq" AND m."truncated_seq" IS NULL'
        ' ORDER BY "place"'
    )


TRUNCATE = (
    f'UPDATE {table(Message).name} SET "truncated_seq" = %s'  # noqa: S608
    ' WHERE "session_id" = %s AND "position" >= %s AND "seq" < %s AND "truncated_seq" IS NULL'
)
"""Hide the messages from a position on, by an event."""

TRUNCATE_COMPACTIONS = (
    f'UPDATE {table(Compaction).name} SET "truncated_seq" = %s WHERE "session_id" = %s'  # noqa: S608
    ' AND "end_position" > %s AND "compacted_seq" IS NOT NULL AND "truncated_seq" IS NULL'
)
"""Forget the compactions that replaced messages from a position on."""

FORGET_UPDATES = (
    f'UPDATE {table(ContextUpdate).name} SET "before" = NULL WHERE "session_id" = %s AND "before" IS NOT NULL'  # noqa: S608
)
"""What the model knew before an update is of no use once there is a new baseline."""


@cache
def take_back_updates() -> str:
    """Let the model know what it knew before the updates from a position on."""
    epochs = table(ContextEpoch).name
    return (
        f'UPDATE {epochs} SET "snapshot" = (SELECT u."before" {_going(epochs)} ORDER BY u."seq" LIMIT 1)'  # noqa: S608
        f' WHERE "session_id" = %s AND EXISTS (SELECT 1 {_going(epochs)})'
    )


def _going(epoch: str) -> str:
    """The updates since the baseline that are at a position or after it. What the model knew before the
    first of them is what it knows without them."""
    return (
        f"FROM {table(ContextUpdate).name} u JOIN {_message_of_update()}"
        f' WHERE u."session_id" = {epoch}."session_id" AND u."position" >= %s'
        f' AND u."seq" > {epoch}."baseline_seq" AND u."before" IS NOT NULL'
    )


def _message_of_update() -> str:
    return (
        f'{table(Message).name} m ON m."session_id" = u."session_id"'
        ' AND m."position" = u."position" AND m."seq" = u."seq" AND m."truncated_seq" IS NULL'
    )


@cache
def copy_updates(dialect: Dialect) -> str:
    """Give a branch the updates before a position."""
    updates = table(ContextUpdate).name
    return (
        f'INSERT INTO {updates} ("session_id", "seq", "position", "before")'  # noqa: S608
        f' SELECT %s, u."position" + {dialect.number}, u."position", u."before" FROM {updates} u'
        f' JOIN {_message_of_update()} WHERE u."session_id" = %s AND u."position" < %s'
    )


@cache
def copy_compactions(dialect: Dialect) -> str:
    """A branch has no events of its source's compactions; each counts as made at its last message."""
    names = ", ".join(f'"{name}"' for name in (*COPIED, "summary", "content"))
    number = dialect.number
    last = f'"end_position" - 1 + {number}'
    return (
        f'INSERT INTO {table(Compaction).name} ("session_id", "started_seq", "compacted_seq", "from_seq",'  # noqa: S608
        f' "to_seq", {names}) SELECT %s, {last}, {last}, "from_position" + {number}, {last}, {names}'
        f' FROM {table(Compaction).name} WHERE "session_id" = %s AND "end_position" <= %s'
        ' AND "compacted_seq" IS NOT NULL AND "truncated_seq" IS NULL'
    )


@cache
def copy_epoch(dialect: Dialect) -> str:
    """Give a branch the epoch as it was when its first messages were all there were."""
    epochs, number = table(ContextEpoch).name, dialect.number
    known = (
        f'COALESCE((SELECT MAX(c."number") FROM {table(Compaction).name} c'  # noqa: S608
        f' WHERE c."session_id" = e."session_id" AND c."end_position" <= {number}'
        ' AND c."number" <= e."compaction_number" AND c."compacted_seq" IS NOT NULL'
        ' AND c."truncated_seq" IS NULL), 0)'
    )
    position = f'CASE WHEN e."baseline_position" < {number} THEN e."baseline_position" ELSE {number} END'
    return (
        f'INSERT INTO {epochs} ("session_id", "baseline", "snapshot", "baseline_seq", "baseline_position",'  # noqa: S608
        ' "compaction_number", "updated_at") SELECT %s, e."baseline",'
        f' COALESCE((SELECT u."before" {_going("e")} ORDER BY u."seq" LIMIT 1), e."snapshot"),'
        f' {number} - 1 + {position}, {position}, {known}, e."updated_at"'
        f' FROM {epochs} e WHERE e."session_id" = %s'
    )


@cache
def known_before(dialect: Dialect) -> str:
    """What the model knew before the first update since the baseline that is at a position or after it."""
    updates = table(ContextUpdate)
    return (
        f"SELECT {updates.selection(dialect, ('seq', 'before'), 'u.')}"  # noqa: S608
        f" FROM {updates.name} u JOIN {_message_of_update()}"
        f' JOIN {table(ContextEpoch).name} e ON e."session_id" = u."session_id"'
        ' WHERE u."session_id" = %s AND u."position" >= %s AND u."seq" > e."baseline_seq"'
        ' AND u."before" IS NOT NULL ORDER BY u."seq" LIMIT 1'
    )


@cache
def updates(dialect: Dialect) -> str:
    """The updates before a position."""
    found = table(ContextUpdate)
    return (
        f"SELECT {found.selection(dialect, ('seq', 'position', 'before'), 'u.')}"  # noqa: S608
        f' FROM {found.name} u JOIN {_message_of_update()} WHERE u."session_id" = %s AND u."position" < %s'
    )


@cache
def to_compact(dialect: Dialect) -> str:
    """The session's head and the latest summary, then the messages that no summary covers yet, as of one
    moment."""
    summary, content = dialect.as_text('"summary"'), dialect.as_text('m."content"')
    return (
        'WITH head AS (SELECT s."session_id", s."owner_id", s."version", s."status", c."number", c."summary",'  # noqa: S608
        ' COALESCE(c."end_position", 0) AS "replaced", COALESCE(c."kept_position", 0) AS "start"'
        f" FROM {table(Session).name} s LEFT JOIN {table(Compaction).name} c"
        f' ON c."session_id" = s."session_id" AND c."number" = {latest_compaction("s")}'
        f' WHERE s."session_id" = %s AND {present("s.")})'
        f' SELECT -1 AS "place", "replaced", "number", {summary}, "owner_id", "version", "status"'
        " FROM head"
        f' UNION ALL SELECT m."position", m."seq", u."seq", {content}, NULL, NULL, NULL'
        f" FROM {table(Message).name} m"
        f' LEFT JOIN {table(ContextUpdate).name} u ON u."session_id" = m."session_id" AND u."seq" = m."seq"'
        ' WHERE m."session_id" = %s AND m."position" >= (SELECT "start" FROM head)'
        ' AND m."truncated_seq" IS NULL'
        ' ORDER BY "place"'
    )
