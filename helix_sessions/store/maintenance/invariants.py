"""The invariants of a session's rows, each a query for the sessions that break it.

A query selects the session's id and what is wrong. `IN_SCOPE(x)` stands for the sessions to check. Each is
one statement, so it sees one snapshot and needs no lock. A repair consists of statements about one session,
under its lock; it derives what it writes from other rows and guesses nothing.
"""

# ruff: noqa: S608 - nothing but names of tables is put into these texts

from functools import cache

from helix_sessions.models import (
    ArchivedRange,
    Checkpoint,
    Event,
    EventKey,
    Input,
    Message,
    Run,
    Session,
    StagedChange,
    StateSnapshot,
    SubSessionRef,
)
from helix_sessions.store.engine.session_tables import child_tables, kind_of
from helix_sessions.store.engine.tables import table
from helix_sessions.store.maintenance.context_invariants import CONTEXT
from helix_sessions.store.maintenance.invariant import Invariant

ARCHIVES, CHECKPOINTS, EVENTS, KEYS = (table(m).name for m in (ArchivedRange, Checkpoint, Event, EventKey))
INPUTS, MESSAGES, REFS, RUNS = (table(m).name for m in (Input, Message, SubSessionRef, Run))
SESSIONS, STAGED, STATES = table(Session).name, table(StagedChange).name, table(StateSnapshot).name


@cache
def invariants() -> tuple[Invariant, ...]:
    """All invariants, in the order of repair."""
    return (
        *_orphans(),
        *_LOG,
        *_TRANSCRIPT,
        *_RUNS,
        *_STATES,
        *_CHECKPOINTS,
        *_STAGING,
        *_INBOX,
        *CONTEXT,
        *_TREE,
    )


def _orphans() -> list[Invariant]:
    """Rows whose session does not exist."""
    found = []
    for model in child_tables():
        name, kind = table(model).name, kind_of(model)
        found.append(
            Invariant(
                code=f"orphan_{kind}",
                sql=f"SELECT x.session_id, 'rows: ' || COUNT(*) FROM {name} x"
                f" LEFT JOIN {SESSIONS} s ON s.session_id = x.session_id"
                " WHERE IN_SCOPE(x) AND s.session_id IS NULL GROUP BY x.session_id",
                repair=(f"DELETE FROM {name} WHERE session_id = %s",),
            )
        )
    return found


_LAST_EVENT = f"(SELECT MAX(e.seq) FROM {EVENTS} e WHERE e.session_id = {SESSIONS}.session_id)"

_LOG = (
    Invariant(
        code="archived_events_left",
        sql="SELECT s.session_id, 'events below first_seq ' || s.first_seq || ': ' || COUNT(*)"
        f" FROM {SESSIONS} s JOIN {EVENTS} e ON e.session_id = s.session_id AND e.seq < s.first_seq"
        " WHERE IN_SCOPE(s) GROUP BY s.session_id",
        severity="warning",
        repair=(
            f"DELETE FROM {EVENTS} WHERE session_id = %s AND seq <"
            f" (SELECT s.first_seq FROM {SESSIONS} s WHERE s.session_id = %s)",
        ),
    ),
    Invariant(
        code="archive_gap",
        sql="SELECT s.session_id, 'the log begins at ' || s.first_seq || ', archived are '"
        " || COALESCE(SUM(a.last_seq - a.first_seq + 1), 0) || ' events'"
        f" FROM {SESSIONS} s LEFT JOIN {ARCHIVES} a ON a.session_id = s.session_id"
        " WHERE IN_SCOPE(s) GROUP BY s.session_id"
        " HAVING COALESCE(SUM(a.last_seq - a.first_seq + 1), 0) <> s.first_seq - 1"
        " OR COALESCE(MAX(a.last_seq), 0) <> s.first_seq - 1",
    ),
    Invariant(
        code="head_seq_behind",
        sql="SELECT s.session_id, 'head_seq is ' || s.head_seq || ', the last event is ' || MAX(e.seq)"
        f" FROM {SESSIONS} s JOIN {EVENTS} e ON e.session_id = s.session_id"
        " WHERE IN_SCOPE(s) GROUP BY s.session_id HAVING MAX(e.seq) > s.head_seq",
        repair=(
            f"UPDATE {SESSIONS} SET head_seq = {_LAST_EVENT} WHERE session_id = %s"
            f" AND head_seq < {_LAST_EVENT}",
        ),
    ),
    Invariant(
        code="head_seq_ahead",
        sql="SELECT s.session_id, 'head_seq is ' || s.head_seq || ', the last event is '"
        " || COALESCE(MAX(e.seq), s.first_seq - 1)"
        f" FROM {SESSIONS} s LEFT JOIN {EVENTS} e ON e.session_id = s.session_id AND e.seq >= s.first_seq"
        " WHERE IN_SCOPE(s) GROUP BY s.session_id HAVING COALESCE(MAX(e.seq), s.first_seq - 1) < s.head_seq",
    ),
    Invariant(
        code="log_gap",
        sql="SELECT s.session_id, 'from ' || MIN(e.seq) || ' to ' || MAX(e.seq) || ' there are ' || COUNT(*)"
        " || ' events; the log begins at ' || s.first_seq"
        f" FROM {SESSIONS} s JOIN {EVENTS} e ON e.session_id = s.session_id AND e.seq >= s.first_seq"
        " WHERE IN_SCOPE(s) GROUP BY s.session_id"
        " HAVING COUNT(*) <> MAX(e.seq) - MIN(e.seq) + 1 OR MIN(e.seq) <> s.first_seq",
    ),
    Invariant(
        code="log_start",
        sql="SELECT s.session_id, 'the first event is ' || e.type"
        f" FROM {SESSIONS} s JOIN {EVENTS} e ON e.session_id = s.session_id AND e.seq = 1"
        " WHERE IN_SCOPE(s) AND s.first_seq = 1 AND e.type <> 'session_started'",
    ),
    Invariant(
        code="version_without_event",
        sql="SELECT s.session_id, 'version ' || s.version || ' is above head_seq ' || s.head_seq"
        f" FROM {SESSIONS} s WHERE IN_SCOPE(s) AND s.version > s.head_seq",
    ),
    Invariant(
        code="time_went_back",
        sql="SELECT t.session_id, 'events older than the one before: ' || COUNT(*) FROM"
        " (SELECT e.session_id, e.created_at, LAG(e.created_at) OVER"
        f" (PARTITION BY e.session_id ORDER BY e.seq) AS earlier FROM {EVENTS} e WHERE IN_SCOPE(e)) t"
        " WHERE t.earlier > t.created_at GROUP BY t.session_id",
    ),
    Invariant(
        code="event_key_dangling",
        sql="SELECT k.session_id, 'idempotency keys whose event is not there: ' || COUNT(*)"
        f" FROM {KEYS} k JOIN {SESSIONS} s ON s.session_id = k.session_id"
        f" LEFT JOIN {EVENTS} e ON e.session_id = k.session_id AND e.seq = k.seq"
        " WHERE IN_SCOPE(k) AND k.record IS NULL AND (e.seq IS NULL OR k.seq < s.first_seq)"
        " GROUP BY k.session_id",
    ),
)

_VISIBLE = f"FROM {MESSAGES} m WHERE m.session_id = {SESSIONS}.session_id AND m.truncated_seq IS NULL"

_TRANSCRIPT = (
    Invariant(
        code="message_positions",
        sql="SELECT m.session_id, 'positions ' || MIN(m.position) || ' to ' || MAX(m.position) || ' for '"
        f" || COUNT(*) || ' messages' FROM {MESSAGES} m WHERE IN_SCOPE(m) AND m.truncated_seq IS NULL"
        " GROUP BY m.session_id HAVING MIN(m.position) <> 0 OR MAX(m.position) <> COUNT(*) - 1"
        " OR COUNT(DISTINCT m.position) <> COUNT(*)",
    ),
    Invariant(
        code="message_count",
        sql="SELECT s.session_id, 'message_count is ' || s.message_count || ', messages are '"
        " || COUNT(m.position)"
        f" FROM {SESSIONS} s LEFT JOIN {MESSAGES} m ON m.session_id = s.session_id"
        " AND m.truncated_seq IS NULL"
        " WHERE IN_SCOPE(s) GROUP BY s.session_id HAVING COUNT(m.position) <> s.message_count",
        repair=(
            f"UPDATE {SESSIONS} SET message_count = (SELECT COUNT(*) {_VISIBLE}) WHERE session_id = %s"
            f" AND (SELECT COUNT(*) {_VISIBLE}) = (SELECT COALESCE(MAX(m.position) + 1, 0) {_VISIBLE})",
        ),
    ),
    Invariant(
        code="message_without_event",
        sql="SELECT m.session_id, 'messages without their event: ' || COUNT(*)"
        f" FROM {MESSAGES} m JOIN {SESSIONS} s ON s.session_id = m.session_id"
        f" LEFT JOIN {EVENTS} e ON e.session_id = m.session_id AND e.seq = m.seq"
        " AND e.message_position = m.position AND e.type = m.role || '_message'"
        " WHERE IN_SCOPE(m) AND m.seq >= s.first_seq AND e.seq IS NULL GROUP BY m.session_id",
    ),
    Invariant(
        code="event_without_message",
        sql="SELECT e.session_id, 'events whose message is not there: ' || COUNT(*)"
        f" FROM {EVENTS} e JOIN {SESSIONS} s ON s.session_id = e.session_id"
        f" LEFT JOIN {MESSAGES} m ON m.session_id = e.session_id AND m.seq = e.seq"
        " AND m.position = e.message_position"
        " WHERE IN_SCOPE(e) AND e.seq >= s.first_seq AND e.message_position IS NOT NULL AND m.seq IS NULL"
        " GROUP BY e.session_id",
    ),
    Invariant(
        code="message_order",
        sql="SELECT t.session_id, 'messages written before the one they follow: ' || COUNT(*) FROM"
        " (SELECT m.session_id, m.seq, LAG(m.seq) OVER (PARTITION BY m.session_id ORDER BY m.position)"
        f" AS earlier FROM {MESSAGES} m WHERE IN_SCOPE(m) AND m.truncated_seq IS NULL) t"
        " WHERE t.earlier > t.seq GROUP BY t.session_id",
    ),
    Invariant(
        code="truncation_without_event",
        sql="SELECT m.session_id, 'truncated messages without the event that says so: ' || COUNT(*)"
        f" FROM {MESSAGES} m JOIN {SESSIONS} s ON s.session_id = m.session_id"
        f" LEFT JOIN {EVENTS} e ON e.session_id = m.session_id AND e.seq = m.truncated_seq"
        " WHERE IN_SCOPE(m) AND m.truncated_seq >= s.first_seq AND m.truncated_seq > m.seq"
        " AND e.seq IS NULL GROUP BY m.session_id",
    ),
)

_RUNNING = f"FROM {RUNS} r WHERE r.session_id = {SESSIONS}.session_id AND r.status = 'running'"

_RUNS = (
    Invariant(
        code="several_running_runs",
        sql=f"SELECT r.session_id, 'running: ' || COUNT(*) FROM {RUNS} r"
        " WHERE IN_SCOPE(r) AND r.status = 'running' GROUP BY r.session_id HAVING COUNT(*) > 1",
    ),
    Invariant(
        code="run_pointer",
        sql="SELECT s.session_id, 'running is ' || COALESCE(r.run_id, 'none') || ', the session says '"
        f" || COALESCE(s.run_id, 'none') FROM {SESSIONS} s"
        f" LEFT JOIN {RUNS} r ON r.session_id = s.session_id AND r.status = 'running'"
        " WHERE IN_SCOPE(s) AND COALESCE(s.run_id, '') <> COALESCE(r.run_id, '')",
        repair=(
            f"UPDATE {SESSIONS} SET run_id = (SELECT MAX(r.run_id) {_RUNNING}) WHERE session_id = %s"
            f" AND (SELECT COUNT(*) {_RUNNING}) <= 1",
        ),
    ),
    Invariant(
        code="turn_count",
        sql="SELECT s.session_id, 'turn_count is ' || s.turn_count || ', runs are ' || COUNT(r.turn)"
        f" FROM {SESSIONS} s LEFT JOIN {RUNS} r ON r.session_id = s.session_id"
        " WHERE IN_SCOPE(s) GROUP BY s.session_id"
        " HAVING COUNT(r.turn) <> s.turn_count OR COALESCE(MAX(r.turn), 0) <> s.turn_count",
        repair=(
            f"UPDATE {SESSIONS} SET turn_count = (SELECT COALESCE(MAX(r.turn), 0) FROM {RUNS} r"
            f" WHERE r.session_id = {SESSIONS}.session_id) WHERE session_id = %s",
        ),
    ),
    Invariant(
        code="run_end",
        sql="SELECT r.session_id, 'runs that end without having ended, or the reverse: ' || COUNT(*)"
        f" FROM {RUNS} r WHERE IN_SCOPE(r)"
        " AND (r.status = 'running') <> (r.ended_at IS NULL AND r.end_sequence IS NULL)"
        " GROUP BY r.session_id",
    ),
    Invariant(
        code="run_without_event",
        sql="SELECT r.session_id, 'runs without the event that started them: ' || COUNT(*)"
        f" FROM {RUNS} r JOIN {SESSIONS} s ON s.session_id = r.session_id"
        f" LEFT JOIN {EVENTS} e ON e.session_id = r.session_id AND e.seq > r.start_sequence"
        " AND e.seq <= r.start_sequence + 1000 AND e.type = 'run_started' AND e.run_id = r.run_id"
        " WHERE IN_SCOPE(r) AND r.start_sequence >= s.first_seq - 1 AND e.seq IS NULL GROUP BY r.session_id",
        severity="warning",
    ),
)

_HIGHEST_PINNED = (
    f"(SELECT MAX(c.state_number) FROM {CHECKPOINTS} c WHERE c.session_id = {SESSIONS}.session_id)"
)
_UNNEEDED = (
    f"DELETE FROM {STATES} WHERE session_id = %s AND number > (SELECT s.state_pinned FROM {SESSIONS} s"
    " WHERE s.session_id = %s) AND"
)

_STATES = (
    Invariant(
        code="state_missing",
        sql="SELECT s.session_id, 'snapshots ' || s.state_base || ' to ' || s.state_number || ' are '"
        f" || COUNT(d.number) FROM {SESSIONS} s LEFT JOIN {STATES} d ON d.session_id = s.session_id"
        " AND d.number BETWEEN s.state_base AND s.state_number AND d.base = s.state_base"
        " WHERE IN_SCOPE(s) AND s.state_number > 0 GROUP BY s.session_id"
        " HAVING COUNT(d.number) <> s.state_number - s.state_base + 1",
    ),
    Invariant(
        code="checkpoint_state_missing",
        sql="SELECT t.session_id, 'checkpoints whose state is not there: ' || COUNT(*) FROM"
        f" (SELECT c.session_id, c.checkpoint_id FROM {CHECKPOINTS} c"
        f" LEFT JOIN {STATES} d ON d.session_id = c.session_id"
        " AND d.number BETWEEN c.state_base AND c.state_number AND d.base = c.state_base"
        " WHERE IN_SCOPE(c) AND c.state_number > 0"
        " GROUP BY c.session_id, c.checkpoint_id, c.state_number, c.state_base"
        " HAVING COUNT(d.number) <> c.state_number - c.state_base + 1) t GROUP BY t.session_id",
    ),
    Invariant(
        code="state_pinned",
        sql="SELECT s.session_id, 'state_pinned is ' || s.state_pinned || ', a checkpoint is at '"
        f" || MAX(c.state_number) FROM {SESSIONS} s JOIN {CHECKPOINTS} c ON c.session_id = s.session_id"
        " WHERE IN_SCOPE(s) GROUP BY s.session_id HAVING MAX(c.state_number) > s.state_pinned",
        repair=(
            f"UPDATE {SESSIONS} SET state_pinned = {_HIGHEST_PINNED} WHERE session_id = %s"
            f" AND state_pinned < {_HIGHEST_PINNED}",
        ),
    ),
    Invariant(
        code="state_left_over",
        sql="SELECT s.session_id, 'snapshots nothing points at: ' || COUNT(*)"
        f" FROM {SESSIONS} s JOIN {STATES} d ON d.session_id = s.session_id AND d.number > s.state_pinned"
        " AND (d.number < s.state_base OR d.number > s.state_number)"
        " WHERE IN_SCOPE(s) GROUP BY s.session_id",
        repair=(
            f"{_UNNEEDED} number < (SELECT s.state_base FROM {SESSIONS} s WHERE s.session_id = %s)",
            f"{_UNNEEDED} number > (SELECT s.state_number FROM {SESSIONS} s WHERE s.session_id = %s)",
        ),
    ),
)

_CHECKPOINTS = (
    Invariant(
        code="checkpoint_pointer",
        sql=f"SELECT s.session_id, 'there is no checkpoint ' || s.checkpoint_id FROM {SESSIONS} s"
        f" LEFT JOIN {CHECKPOINTS} c ON c.session_id = s.session_id AND c.checkpoint_id = s.checkpoint_id"
        " WHERE IN_SCOPE(s) AND s.checkpoint_id IS NOT NULL AND c.seq IS NULL",
        repair=(
            f"UPDATE {SESSIONS} SET checkpoint_id = NULL, checkpointed_at = NULL, checkpoint_source = NULL"
            f" WHERE session_id = %s AND NOT EXISTS (SELECT 1 FROM {CHECKPOINTS} c"
            f" WHERE c.session_id = {SESSIONS}.session_id AND c.checkpoint_id = {SESSIONS}.checkpoint_id)",
        ),
    ),
    Invariant(
        code="checkpoint_without_event",
        sql="SELECT c.session_id, 'checkpoints without their event: ' || COUNT(*)"
        f" FROM {CHECKPOINTS} c JOIN {SESSIONS} s ON s.session_id = c.session_id"
        f" LEFT JOIN {EVENTS} e ON e.session_id = c.session_id AND e.seq = c.seq"
        " AND e.type = 'checkpoint_created'"
        " WHERE IN_SCOPE(c) AND c.seq >= s.first_seq AND e.seq IS NULL GROUP BY c.session_id",
    ),
)

_STAGING = (
    Invariant(
        code="staged_count",
        sql="SELECT s.session_id, 'staged_count is ' || s.staged_count || ', staged are ' || COUNT(g.place)"
        f" FROM {SESSIONS} s LEFT JOIN {STAGED} g ON g.session_id = s.session_id"
        " WHERE IN_SCOPE(s) GROUP BY s.session_id HAVING COUNT(g.place) <> s.staged_count",
        repair=(
            f"UPDATE {SESSIONS} SET staged_count = (SELECT COUNT(*) FROM {STAGED} g"
            f" WHERE g.session_id = {SESSIONS}.session_id) WHERE session_id = %s",
        ),
    ),
)

_SETTLED = "COALESCE(i.promoted_seq, i.cancelled_seq)"
_PENDING = f"(SELECT COUNT(*) FROM {INPUTS} i WHERE i.session_id = %s.session_id AND {_SETTLED} IS NULL)"

_INBOX = (
    Invariant(
        code="pending_inputs",
        sql="SELECT s.session_id, 'pending_inputs is ' || s.pending_inputs || ', pending are ' || "
        f"{_PENDING % 's'} FROM {SESSIONS} s WHERE IN_SCOPE(s) AND s.pending_inputs <> {_PENDING % 's'}",
        repair=(f"UPDATE {SESSIONS} SET pending_inputs = {_PENDING % SESSIONS} WHERE session_id = %s",),
    ),
    Invariant(
        code="input_without_message",
        sql="SELECT i.session_id, 'promoted inputs whose message is not there: ' || COUNT(*)"
        f" FROM {INPUTS} i LEFT JOIN {MESSAGES} m ON m.session_id = i.session_id AND m.seq = i.promoted_seq"
        " WHERE IN_SCOPE(i) AND i.promoted_seq IS NOT NULL AND m.seq IS NULL GROUP BY i.session_id",
    ),
)

_TREE = (
    Invariant(
        code="ref_without_event",
        sql="SELECT r.session_id, 'references without their event: ' || COUNT(*)"
        f" FROM {REFS} r JOIN {SESSIONS} s ON s.session_id = r.session_id"
        f" LEFT JOIN {EVENTS} e ON e.session_id = r.session_id AND e.seq = r.seq"
        " AND e.type = 'subagent_spawned'"
        " WHERE IN_SCOPE(r) AND r.seq >= s.first_seq AND e.seq IS NULL GROUP BY r.session_id",
    ),
)
