"""Answer a message once more: rewind to before its answer, keep the message, and run."""

from django.utils import timezone

from helix_sessions import models
from helix_sessions.exceptions import InvalidInput
from helix_sessions.store.context import truncate
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.session_columns import ALL_COLUMNS
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.transactions import check_version, write_tree
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import ownership, statuses
from helix_sessions.store.sessions import rewind
from helix_sessions.store.state import checkpoints, pending_calls, runnable, snapshots, staging, state_rows
from helix_sessions.store.transcript import exchanges, lines
from helix_sessions.types import SessionState


def regenerate(
    store: Store, session_id: str, message_id: str | None = None, *, expected_version: int | None = None
) -> SessionState:
    """Answer the last message of a user once more, or that with an id, and forget what came after it.

    The state is that of the last checkpoint before the message, if there is one; what was staged is
    discarded, and a run is asked for, which begins with the message.
    """
    key = session_key(session_id)
    wanted = inputs.optional_identifier(message_id, "The message id")
    version = inputs.expected_version(expected_version)
    with write_tree(store.using, store._lease) as tree:
        work = tree.lock(key, ALL_COLUMNS, store._owner)
        store._check_head(work)
        check_version(work, version)
        asked = exchanges.find(store, key, message_id=wanted)
        if asked is None:
            raise InvalidInput("There is no such message of a user in the transcript.")
        ownership.take_away(work, "interrupted", "session_rewound")
        row = _checkpoint_before(work, asked)
        if row is None:
            _forget_waits(work)
        else:
            rewind.restore_state(tree, work, checkpoints.value_of(work.connection, row).state)
            rewind.point_at(work, row)
        truncate.truncate(work, asked.position + 1)
        staging.discard(work)
        work.event("session_rewound", {"checkpoint_id": None if row is None else row.checkpoint_id})
        runnable.request(work, timezone.now())
        work.event("run_requested", {})
        custom = snapshots.read(work.connection, key, work.session.state_base, work.session.state_number)
    return state_rows.state_of(work.session, custom)


def _checkpoint_before(work: UnitOfWork, asked: exchanges.Exchange) -> models.Checkpoint | None:
    """The last checkpoint of the transcript's own line that a message comes after."""
    rows = models.Checkpoint.objects.using(work.connection.alias).filter(
        session_id=work.session.session_id, message_count__lte=asked.position, seq__lt=asked.answered_from
    )
    for row in rows.order_by("-seq").iterator(chunk_size=20):
        line = lines.at(work.connection, work.session, seq=row.seq, message_count=row.message_count)
        if not line.hidden:
            return row
    return None


def _forget_waits(work: UnitOfWork) -> None:
    """The session as it was before it had a checkpoint waited for nothing."""
    waits = {"suspended_awaiting_children": None, "suspended_step_id": None, "suspension_context": None}
    work.change(**pending_calls.columns(None), **waits, awaiting_children=False)
    if work.session.status != "active":
        statuses.enter(work, {"status": "active"})
