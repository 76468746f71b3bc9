"""The rows behind what a model sees: read as of one moment, copied with a branch, taken back."""

from functools import cache

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions import documents
from helix_sessions.exceptions import SessionNotFound
from helix_sessions.models import Compaction, ContextEpoch, ContextUpdate, Message, Session
from helix_sessions.store import inputs
from helix_sessions.store.database import fetch
from helix_sessions.store.epochs import StoredEpoch
from helix_sessions.store.tables import table
from helix_sessions.store.unit import Work


def take_back(work: Work, kept: int, seq: int) -> None:
    """Before the messages from position `kept` on are truncated by event `seq`: forget the compactions that
    replaced some of them, and that the model was told of changes by some of them."""
    key, as_text = work.session.session_id, str if work.connection.vendor == "postgresql" else int
    work.statement(_compactions_truncated_sql(), [as_text(seq), key, as_text(kept)])
    work.statement(_updates_truncated_sql(), [as_text(kept), key, as_text(kept)])


def copy(work: Work, source_id: str, count: int, first_seq: int) -> None:
    """Give a new branch what the model saw of the first `count` messages of its source, whose numbers in
    the branch begin at `first_seq`. What an update after them told is not known in the branch."""
    key, number = work.session.session_id, "%s::bigint" if work.connection.vendor == "postgresql" else "%s"
    texts = [str(value) if work.connection.vendor == "postgresql" else value for value in (first_seq, count)]
    offset, most = texts
    work.statement(_copy_updates_sql(number), [key, offset, source_id, most])
    work.statement(_copy_compactions_sql(number), [key, *[offset] * 4, source_id, most])
    work.statement(_copy_epoch_sql(number), [key, most, offset, *[most] * 5, source_id])


def stored(connection: BaseDatabaseWrapper, session_id: str) -> tuple[StoredEpoch | None, int]:
    """The epoch, and the number of the latest compaction."""
    rows = fetch(connection, _epoch_sql(connection.vendor), [session_id])
    if not rows:
        raise SessionNotFound(f"There is no session {session_id!r}.")
    baseline, snapshot, seq, known, latest = rows[0]
    if baseline is None:
        return None, latest or 0
    return StoredEpoch(documents.load(baseline), snapshot, seq, known), latest or 0


def latest_compaction(session: str) -> str:
    """The number of the latest compaction, as a part of a query about the session with that alias."""
    return (
        f'(SELECT l."number" FROM {table(Compaction).name} l WHERE l."session_id" = {session}."session_id"'  # noqa: S608
        ' AND l."compacted_seq" IS NOT NULL AND l."truncated_seq" IS NULL ORDER BY l."number" DESC LIMIT 1)'
    )


@cache
def _epoch_sql(vendor: str) -> str:
    names = ("baseline", "snapshot", "baseline_seq", "compaction_number")
    return (
        f"SELECT {table(ContextEpoch).selection(vendor, names, 'e.')}, {latest_compaction('s')}"  # noqa: S608
        f" FROM {table(Session).name} s LEFT JOIN {table(ContextEpoch).name} e"
        ' ON e."session_id" = s."session_id" WHERE s."session_id" = %s'
    )


@cache
def context_sql(vendor: str) -> str:
    """First the baseline, then the compaction, then messages, as of one moment. Without an epoch no update
    is seen: it told of changes to what the model does not know any more."""
    cast = "::text" if vendor == "postgresql" else ""
    messages, updates = table(Message).name, table(ContextUpdate).name
    return (
        'WITH head AS (SELECT s."session_id", s."owner_id", e."baseline", c."content",'  # noqa: S608
        f' COALESCE(e."baseline_seq", {inputs.MAX_INTEGER}) AS "since",'
        ' COALESCE(c."end_position", 0) AS "start"'
        f" FROM {table(Session).name} s"
        f' LEFT JOIN {table(ContextEpoch).name} e ON e."session_id" = s."session_id"'
        f' LEFT JOIN {table(Compaction).name} c ON c."session_id" = s."session_id"'
        f' AND c."number" = {latest_compaction("s")} WHERE s."session_id" = %s)'
        f' SELECT -2 AS "place", "owner_id", "baseline"{cast} FROM head'
        f' UNION ALL SELECT -1, NULL, "content"{cast} FROM head WHERE "start" > 0'
        f' UNION ALL SELECT m."position", NULL, m."content"{cast} FROM head h JOIN {messages} m'
        ' ON m."session_id" = h."session_id" AND m."position" >= h."start" AND m."truncated_seq" IS NULL'
        f" WHERE NOT (m.\"role\" = 'system' AND EXISTS (SELECT 1 FROM {updates} u"
        ' WHERE u."session_id" = m."session_id" AND u."seq" = m."seq" AND u."seq" <= h."since"))'
        f' UNION ALL SELECT m."position", NULL, m."content"{cast} FROM head h JOIN {updates} u'
        ' ON u."session_id" = h."session_id" AND u."seq" > h."since" AND u."position" < h."start"'
        f' JOIN {messages} m ON m."session_id" = u."session_id" AND m."position" = u."position"'
        ' AND m."seq" = u."seq" AND m."truncated_seq" IS NULL ORDER BY "place"'
    )


@cache
def _compactions_truncated_sql() -> str:
    return (
        f'UPDATE {table(Compaction).name} SET "truncated_seq" = %s WHERE "session_id" = %s'  # noqa: S608
        ' AND "end_position" > %s AND "compacted_seq" IS NOT NULL AND "truncated_seq" IS NULL'
    )


@cache
def _updates_truncated_sql() -> str:
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
def _copy_updates_sql(number: str) -> str:
    updates = table(ContextUpdate).name
    return (
        f'INSERT INTO {updates} ("session_id", "seq", "position", "before")'  # noqa: S608
        f' SELECT %s, u."position" + {number}, u."position", u."before" FROM {updates} u'
        f' JOIN {_message_of_update()} WHERE u."session_id" = %s AND u."position" < %s'
    )


@cache
def _copy_compactions_sql(number: str) -> str:
    """A branch has no events of its source's compactions; each counts as made at its last message."""
    kept = (
        *("number", "started_at", "reason", "from_position", "kept_position", "end_position"),
        *("compacted_at", "summary", "content", "fence"),
    )
    names = ", ".join(f'"{name}"' for name in kept)
    last = f'"end_position" - 1 + {number}'
    return (
        f'INSERT INTO {table(Compaction).name} ("session_id", "started_seq", "compacted_seq", "from_seq",'  # noqa: S608
        f' "to_seq", {names}) SELECT %s, {last}, {last}, "from_position" + {number}, {last}, {names}'
        f' FROM {table(Compaction).name} WHERE "session_id" = %s AND "end_position" <= %s'
        ' AND "compacted_seq" IS NOT NULL AND "truncated_seq" IS NULL'
    )


@cache
def _copy_epoch_sql(number: str) -> str:
    epochs = table(ContextEpoch).name
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
