"""The invariants of a model's context; see `invariants`."""

# ruff: noqa: S608 - nothing but names of tables is put into these texts

from helix_sessions.models import Compaction, Session
from helix_sessions.store.engine.tables import table
from helix_sessions.store.maintenance.invariant import Invariant

COMPACTIONS, SESSIONS = table(Compaction).name, table(Session).name

CONTEXT = (
    Invariant(
        code="compaction_beyond_transcript",
        sql="SELECT c.session_id, 'compactions: ' || COUNT(*)"
        f" FROM {COMPACTIONS} c JOIN {SESSIONS} s ON s.session_id = c.session_id"
        " WHERE IN_SCOPE(c) AND c.compacted_seq IS NOT NULL AND c.truncated_seq IS NULL"
        " AND c.end_position > s.message_count GROUP BY c.session_id",
        repair=(
            f"UPDATE {COMPACTIONS} SET truncated_seq = (SELECT s.head_seq FROM {SESSIONS} s"
            f" WHERE s.session_id = {COMPACTIONS}.session_id)"
            " WHERE session_id = %s AND compacted_seq IS NOT NULL AND truncated_seq IS NULL"
            f" AND end_position > (SELECT s.message_count FROM {SESSIONS} s"
            f" WHERE s.session_id = {COMPACTIONS}.session_id)",
        ),
    ),
)
