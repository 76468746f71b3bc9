"""The rows behind what a model sees: the epoch, copies for a branch, and what a truncation takes back."""

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.content import documents, encryption
from helix_sessions.exceptions import SessionNotFound
from helix_sessions.models import Compaction, ContextEpoch, ContextUpdate
from helix_sessions.store.context import sql
from helix_sessions.store.context.epochs import StoredEpoch
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.unit_of_work import UnitOfWork


def take_back(work: UnitOfWork, kept: int, seq: int) -> None:
    """Before the messages from position `kept` on are truncated by event `seq`: undo the compactions and the
    context updates among them."""
    key = work.session.session_id
    work.statement(sql.TRUNCATE_COMPACTIONS, [seq, key, kept])
    if encryption.keyring() is None:
        work.statement(sql.take_back_updates(), [kept, key, kept])
        return
    before = _known_before(work.connection, key, kept)
    if before is not None:
        work.update(ContextEpoch, {}, snapshot=before)


def copy(work: UnitOfWork, source_id: str, count: int, first_seq: int) -> None:
    """Give a new branch what the model saw of the first `count` messages of its source, whose numbers in the
    branch begin at `first_seq`. Updates after them are not part of the branch."""
    if encryption.keyring() is not None:
        _seal_copies(work, source_id, count, first_seq)
        return
    key, dialect = work.session.session_id, work.dialect
    work.statement(sql.copy_updates(dialect), [key, first_seq, source_id, count])
    work.statement(sql.copy_compactions(dialect), [key, *[first_seq] * 4, source_id, count])
    work.statement(sql.copy_epoch(dialect), [key, count, first_seq, *[count] * 5, source_id])


def _known_before(connection: BaseDatabaseWrapper, session_id: str, position: int) -> str | None:
    """The snapshot before the first update at this position or after it, if there is one."""
    rows = fetch(connection, sql.known_before(dialect_of(connection)), [session_id, position])
    return table(ContextUpdate).open_text("before", rows[0][1], session_id, rows[0][0]) if rows else None


def _seal_copies(work: UnitOfWork, source_id: str, count: int, first_seq: int) -> None:
    """The same as `copy` for content that has to be sealed for its new place."""
    connection, updates = work.connection, table(ContextUpdate)
    known = 0
    for seq, position, before in fetch(connection, sql.updates(work.dialect), [source_id, count]):
        text = None if before is None else updates.open_text("before", before, source_id, seq)
        work.insert(ContextUpdate, seq=first_seq + position, position=position, before=text)
    epoch = ContextEpoch.objects.using(connection.alias).filter(session_id=source_id).first()
    standing = Compaction.objects.using(connection.alias).standing()
    for row in standing.filter(session_id=source_id, end_position__lte=count).order_by("number"):
        last = first_seq + row.end_position - 1
        work.insert(
            Compaction,
            **{name: getattr(row, name) for name in sql.COPIED},
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
    rows = fetch(connection, sql.epoch(dialect_of(connection)), [session_id])
    if not rows:
        raise SessionNotFound(session_id=session_id)
    baseline, snapshot, seq, known, latest, grown = rows[0]
    if baseline is None:
        return None, latest or 0
    rows_of = table(ContextEpoch)
    text = rows_of.open_text("baseline", baseline, session_id)
    snapshot = rows_of.open_text("snapshot", snapshot, session_id)
    return StoredEpoch(documents.load(text), snapshot, seq, known, grown or 0), latest or 0
