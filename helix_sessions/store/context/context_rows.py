"""The rows behind what a model sees: read as of one moment, copied with a branch, taken back."""

from functools import cache

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.content import documents, encryption
from helix_sessions.exceptions import SessionNotFound
from helix_sessions.models import Compaction, ContextEpoch, ContextUpdate, Message, Session
from helix_sessions.store.context.epochs import StoredEpoch
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.tombstones import present
from helix_sessions.store.engine.unit_of_work import UnitOfWork

_COPIED = (
    *("number", "started_at", "reason", "fence", "compacted_at"),
    *("from_position", "kept_position", "end_position"),
)
"""What of a compaction is the same in a branch."""


def take_back(work: UnitOfWork, kept: int, seq: int) -> None:
    """Before the messages from position `kept` on are truncated by event `seq`: forget the compactions that
    replaced some of them, and that the model was told of changes by some of them."""
    key, as_text = work.session.session_id, str if work.connection.vendor == "postgresql" else int
    work.statement(_compactions_truncated_sql(), [as_text(seq), key, as_text(kept)])
    if encryption.keyring() is None:
        work.statement(_updates_truncated_sql(), [as_text(kept), key, as_text(kept)])
        return
    before = _known_before(work.connection, key, kept)
    if before is not None:
        work.update(ContextEpoch, {}, snapshot=before)


def copy(work: UnitOfWork, source_id: str, count: int, first_seq: int) -> None:
    """Give a new branch what the model saw of the first `count` messages of its source, whose numbers in
    the branch begin at `first_seq`. What an update after them told is not known in the branch."""
    if encryption.keyring() is not None:
        _seal_copies(work, source_id, count, first_seq)
        return
    key, number = work.session.session_id, "%s::bigint" if work.connection.vendor == "postgresql" else "%s"
    texts = [str(value) if work.connection.vendor == "postgresql" else value for value in (first_seq, count)]
    offset, most = texts
    work.statement(_copy_updates_sql(number), [key, offset, source_id, most])
    work.statement(_copy_compactions_sql(number), [key, *[offset] * 4, source_id, most])
    work.statement(_copy_epoch_sql(number), [key, most, offset, *[most] * 5, source_id])


def _known_before(connection: BaseDatabaseWrapper, session_id: str, position: int) -> str | None:
    """What the model knew before the first update at this position or after it, if there is one."""
    updates = table(ContextUpdate)
    rows = fetch(
        connection,
        f"SELECT {updates.selection(connection.vendor, ('seq', 'before'), 'u.')}"  # noqa: S608
        f" FROM {updates.name} u JOIN {_message_of_update()}"
        f' JOIN {table(ContextEpoch).name} e ON e."session_id" = u."session_id"'
        ' WHERE u."session_id" = %s AND u."position" >= %s AND u."seq" > e."baseline_seq"'
        ' AND u."before" IS NOT NULL ORDER BY u."seq" LIMIT 1',
        [session_id, position],
    )
    return updates.open_text("before", rows[0][1], session_id, rows[0][0]) if rows else None


def _seal_copies(work: UnitOfWork, source_id: str, count: int, first_seq: int) -> None:
    """The same as `copy` for content that has to be sealed for its new place."""
    connection, updates = work.connection, table(ContextUpdate)
    known = 0
    for seq, position, before in fetch(
        connection,
        f"SELECT {updates.selection(connection.vendor, ('seq', 'position', 'before'), 'u.')}"  # noqa: S608
        f' FROM {updates.name} u JOIN {_message_of_update()} WHERE u."session_id" = %s AND u."position" < %s',
        [source_id, count],
    ):
        text = None if before is None else updates.open_text("before", before, source_id, seq)
        work.insert(ContextUpdate, seq=first_seq + position, position=position, before=text)
    epoch = ContextEpoch.objects.using(connection.alias).filter(session_id=source_id).first()
    standing = Compaction.objects.using(connection.alias).standing()
    for row in standing.filter(session_id=source_id, end_position__lte=count).order_by("number"):
        last = first_seq + row.end_position - 1
        work.insert(
            Compaction,
            **{name: getattr(row, name) for name in _COPIED},
            summary=documents.write(row.summary),
            content=documents.write(row.content),
            from_seq=first_seq + row.from_position,
            **dict.fromkeys(("started_seq", "compacted_seq", "to_seq"), last),
        )
        if epoch is not None and row.number <= epoch.compaction_number:
            known = row.number
    if epoch is None:
        return
    position = min(epoch.baseline_position, count)
    work.insert(
        ContextEpoch,
        baseline=documents.write(epoch.baseline),
        snapshot=_known_before(connection, source_id, count) or documents.write(epoch.snapshot),
        baseline_seq=first_seq - 1 + position,
        baseline_position=position,
        compaction_number=known,
        updated_at=epoch.updated_at,
    )


def stored(connection: BaseDatabaseWrapper, session_id: str) -> tuple[StoredEpoch | None, int]:
    """The epoch, and the number of the latest compaction."""
    rows = fetch(connection, _epoch_sql(connection.vendor), [session_id])
    if not rows:
        raise SessionNotFound(f"There is no session {session_id!r}.")
    baseline, snapshot, seq, known, latest = rows[0]
    if baseline is None:
        return None, latest or 0
    rows_of = table(ContextEpoch)
    text = rows_of.open_text("baseline", baseline, session_id)
    snapshot = rows_of.open_text("snapshot", snapshot, session_id)
    return StoredEpoch(documents.load(text), snapshot, seq, known), latest or 0


def latest_compaction(session: str) -> str:
    """The number of the latest compaction, as a part of a query about the session with that alias."""
    return (
        f'(SELECT l."number" FROM {table(Compaction).name} l WHERE l."session_id" = {session}."session_id"'  # noqa: S608
        ' AND l."compacted_seq" IS NOT NULL AND l."truncated_seq" IS NULL ORDER BY l."number" DESC LIMIT 1)'
    )


def opened(session_id: str, place: int, number: int, text: str) -> str:
    """A message of what `context_sql` found: the compaction, or one of the transcript."""
    if place < 0:
        return table(Compaction).open_text("content", text, session_id, number)
    return table(Message).open_text("content", text, session_id, place, number)


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
    """First the baseline, then the compaction with its number, then messages with theirs, as of one moment.
    Without an epoch no update is seen: it told of changes to what the model does not know any more.

    The messages are found by the session's id itself, three times a parameter, and not by a join with the
    head, for which SQLite may read every message there is."""
    cast = "::text" if vendor == "postgresql" else ""
    messages, updates = table(Message).name, table(ContextUpdate).name
    return (
        'WITH head AS (SELECT s."session_id", s."owner_id", e."baseline", c."content", c."number",'  # noqa: S608
        f' COALESCE(e."baseline_seq", {inputs.MAX_INTEGER}) AS "since",'
        ' COALESCE(c."end_position", 0) AS "start"'
        f" FROM {table(Session).name} s"
        f' LEFT JOIN {table(ContextEpoch).name} e ON e."session_id" = s."session_id"'
        f' LEFT JOIN {table(Compaction).name} c ON c."session_id" = s."session_id"'
        f' AND c."number" = {latest_compaction("s")} WHERE s."session_id" = %s AND {present("s.")})'
        f' SELECT -2 AS "place", 0 AS "number", "owner_id", "baseline"{cast} FROM head'
        f' UNION ALL SELECT -1, "number", NULL, "content"{cast} FROM head WHERE "start" > 0'
        f' UNION ALL SELECT m."position", m."seq", NULL, m."content"{cast} FROM {messages} m'
        ' WHERE m."session_id" = %s AND m."position" >= (SELECT "start" FROM head)'
        ' AND m."truncated_seq" IS NULL AND NOT (m."role" = \'system\' AND EXISTS ('
        f'SELECT 1 FROM {updates} u WHERE u."session_id" = m."session_id" AND u."seq" = m."seq"'
        ' AND u."seq" <= (SELECT "since" FROM head)))'
        f' UNION ALL SELECT m."position", m."seq", NULL, m."content"{cast} FROM {updates} u'
        f" CROSS JOIN {messages} m"
        ' WHERE u."session_id" = %s AND u."seq" > (SELECT "since" FROM head)'
        ' AND u."position" < (SELECT "start" FROM head) AND m."session_id" = u."session_id"'
        ' AND m."position" = u."position" AND m."seq" = u."seq" AND m."truncated_seq" IS NULL'
        ' ORDER BY "place"'
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
    names = ", ".join(f'"{name}"' for name in (*_COPIED, "summary", "content"))
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
