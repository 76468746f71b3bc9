"""What must be true of a session's rows at any moment, whoever died while writing them."""

from collections.abc import Collection
from typing import Any

from django.apps import apps
from django.db import connection, models

from helix_sessions.content import documents, encryption
from helix_sessions.models import (
    Checkpoint,
    Event,
    EventKey,
    Message,
    Run,
    Session,
    StagedChange,
    StateSnapshot,
    SubSessionRef,
)
from helix_sessions.store import SessionStore
from helix_sessions.transcripts import calls_in, open_tool_calls, results_in
from helix_sessions.types import TERMINAL_STATUSES
from helix_sessions.writes import apply_writes
from tests import citus


def tables() -> list[type[models.Model]]:
    """Every table of the app."""
    return list(apps.get_app_config("helix_sessions").get_models())


def dump() -> dict[str, list[Any]]:
    """Every row of every table, as the database shows it."""
    rows: dict[str, list[Any]] = {model._meta.db_table: [] for model in tables()}
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql" and not citus.WORKERS:  # a round trip for each takes a while
            parts = (f"SELECT '{name}', t::text FROM \"{name}\" t" for name in rows)
            cursor.execute(" UNION ALL ".join(parts))
            for name, row in cursor.fetchall():
                rows[name].append(row)
        else:
            for name in rows:
                rows[name] = cursor.execute(f'SELECT * FROM "{name}"').fetchall()
    return {name: sorted(found, key=repr) for name, found in rows.items()}


def assert_no_orphans() -> None:
    """No row of any table belongs to a session that is gone."""
    for model in tables():
        names = {field.name for field in model._meta.get_fields() if field.is_relation}
        if model is not Session and "session" in names:
            alive = Session.objects.values("session_id")
            orphans = model._default_manager.exclude(session_id__in=alive)
            assert not list(orphans.values_list("session_id", flat=True)), model.__name__


def assert_invariants(session_id: str, *, examined: bool = False) -> None:
    """Log, transcript, runs, checkpoints, staging and snapshots of the session agree with its row.
    `examined`: the caller asks the doctor, of many sessions at once."""
    session = Session.objects.get(session_id=session_id)
    types = _assert_log(session)
    _assert_transcript(session, types)
    _assert_runs(session, types)
    _assert_checkpoints(session, types)
    _assert_snapshots(session)
    _assert_waiting(session)
    staged = StagedChange.objects.filter(session_id=session_id)
    assert session.staged_count == staged.count()
    for seq in SubSessionRef.objects.filter(session_id=session_id).values_list("seq", flat=True):
        assert types[seq] == "subagent_spawned"
    for seq in EventKey.objects.filter(session_id=session_id).values_list("seq", flat=True):
        assert seq in types
    if not examined:
        assert_healthy(session_id)


def assert_healthy(*session_ids: str) -> None:
    """The doctor finds nothing wrong; also where the log begins later, because it was archived."""
    found = SessionStore().examine_sessions(session_ids=session_ids, deep=True)
    wrong = [finding for finding in found if finding.severity == "error"]
    assert not wrong, wrong


def _assert_log(session: Session) -> dict[int, str]:
    """The types of the events by number, which go from 1 to the head without a gap."""
    rows = list(Event.objects.filter(session_id=session.session_id).order_by("seq"))
    assert [row.seq for row in rows] == list(range(1, session.head_seq + 1))
    assert rows[0].type == "session_started"
    assert session.version <= session.head_seq, "a version without an event of its own"
    times = [session.created_at, *(row.created_at for row in rows), session.updated_at]
    assert times == sorted(times), "the time went back"
    records = SessionStore().get_events(session.session_id)
    assert [record.seq for record in records] == [row.seq for row in rows]
    for row, record in zip(rows, records, strict=True):
        if row.message_position is not None:
            assert isinstance(record.data, dict), "the data of a message's event is gone"
            assert row.type == f"{record.data['role']}_message"
    return {row.seq: row.type for row in rows}


def _assert_transcript(session: Session, types: dict[int, str]) -> None:
    rows = Message.objects.filter(session_id=session.session_id)
    visible = list(rows.visible().order_by("position"))
    assert [row.position for row in visible] == list(range(session.message_count))
    events = Event.objects.filter(session_id=session.session_id, message_position__isnull=False)
    assert set(events.values_list("seq", "message_position")) == set(rows.values_list("seq", "position"))
    seqs = [row.seq for row in visible]
    assert seqs == sorted(seqs), "the transcript is not in the order of the log"
    for row in rows:
        assert types[row.seq] == f"{row.role}_message"
        if row.truncated_seq is not None:
            assert row.truncated_seq > row.seq
            assert types[row.truncated_seq] == "messages_truncated"
    page = SessionStore().get_messages(session.session_id)
    assert page.messages == [row.content for row in visible]
    assert page.total == session.message_count


def _assert_runs(session: Session, types: dict[int, str]) -> None:
    rows = list(Run.objects.filter(session_id=session.session_id).order_by("turn"))
    assert [row.turn for row in rows] == list(range(1, session.turn_count + 1))
    running = [row.run_id for row in rows if row.status == "running"]
    assert running == ([] if session.run_id is None else [session.run_id])
    for row in rows:
        assert types[row.start_sequence + 1] == "run_started"
        if row.status == "running":
            assert (row.end_sequence, row.ended_at) == (None, None)
        else:
            assert row.ended_at is not None
            assert types[row.end_sequence or 0] == "run_finished"


def _assert_checkpoints(session: Session, types: dict[int, str]) -> None:
    rows = list(Checkpoint.objects.filter(session_id=session.session_id).newest_first())
    if not rows:
        assert (session.checkpoint_id, session.checkpointed_at, session.checkpoint_source) == (None,) * 3
        return
    rewound = [row.seq for row in Event.objects.filter(session_id=session.session_id, type="session_rewound")]
    last = rows[0]
    if max(rewound, default=0) > last.seq:
        [last] = [row for row in rows if row.checkpoint_id == session.checkpoint_id]
    assert session.checkpoint_id == last.checkpoint_id, "the pointer is not at the last checkpoint"
    assert (session.checkpointed_at, session.checkpoint_source) == (last.created_at, last.source)
    for row in rows:
        assert types[row.seq] == "checkpoint_created"


def _assert_snapshots(session: Session) -> None:
    rows = StateSnapshot.objects.filter(session_id=session.session_id).in_bulk(field_name="pk")
    snapshots = {row.number: row for row in rows.values()}
    checkpoints = Checkpoint.objects.filter(session_id=session.session_id)
    pinned = [(row.state_base, row.state_number) for row in checkpoints]
    assert session.state_pinned == max((number for _, number in pinned), default=0)
    for base, number in {(session.state_base, session.state_number), *pinned} - {(0, 0)}:
        assert snapshots[base].base == base, "a base is not whole"
        assert all(snapshots[step].base == base for step in range(base, number + 1)), "a chain is broken"
    kept = [number for number in snapshots if number > session.state_pinned]
    assert all(number >= session.state_base for number in kept), "a snapshot nobody needs was left behind"
    assert max(snapshots, default=0) == session.state_number
    if session.state_number:
        state = snapshots[session.state_base].document
        for number in range(session.state_base + 1, session.state_number + 1):
            state = apply_writes(state, snapshots[number].document)
        stored = encryption.unveil(session.session_id, session.state_digest)
        assert documents.digest(documents.dump(state)) == stored
        assert SessionStore().load_state(session.session_id).custom_state == state


def _assert_waiting(session: Session) -> None:
    """What the row says is open and waits follows from its transcript and its pending calls."""
    transcript = SessionStore().get_messages(session.session_id).messages
    found = [[call["id"], call["name"]] for call in open_tool_calls(transcript)]
    assert [call[:2] for call in session.open_calls or []] == found
    unanswered = [
        entry
        for entry in (session.pending_client_tool_calls or {}).values()
        if not (isinstance(entry, dict) and entry.get("submitted_at"))
    ]
    assert session.awaiting_client == bool(unanswered)
    unsettled = [
        wait
        for wait in (session.suspended_awaiting_children or {}).values()
        if not (isinstance(wait, dict) and wait.get("status") in TERMINAL_STATUSES)
    ]
    assert session.awaiting_children == bool(unsettled)
    waits = bool(unanswered or unsettled) and session.status not in TERMINAL_STATUSES
    assert (session.waiting_since is not None) == waits
    deadlines = [
        entry["deadline"] for entry in unanswered if isinstance(entry, dict) and entry.get("deadline")
    ]
    assert (session.next_deadline is not None) == bool([at for at in deadlines if at != "never"])


def assert_valid_transcript(session_id: str, *, waiting: Collection[str] = ()) -> None:
    """What a model is given: one result for each call, before anything else is said.

    The calls `waiting` have none yet, and then nothing may come after them.
    """
    wanted: list[str] = []
    for message in SessionStore().get_messages(session_id).messages:
        answered = results_in(message)
        for call_id in answered:
            assert call_id in wanted, f"a result of no open call: {call_id}"
            wanted.remove(call_id)
        if not answered:
            assert not wanted, f"said before the results of {wanted}"
        wanted.extend(call["id"] for call in calls_in(message))
    assert sorted(wanted) == sorted(waiting)
