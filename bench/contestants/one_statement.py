"""The same rows in the same tables as by hand, in one statement that commits by itself."""

import json

from bench.contestants.by_hand import ByHand, Stale
from bench.payload import Step
from bench.place import Place

STEP = """
WITH locked AS (
    SELECT session_id, status, step_count + 1 AS step_count, message_count, head_seq
    FROM session WHERE session_id = %(id)s AND version = %(version)s FOR UPDATE
), promoted AS (
    DELETE FROM staged USING locked WHERE staged.session_id = locked.session_id
), messages AS (
    INSERT INTO message
    SELECT session_id, message_count + n, head_seq + 1 + n, role, content
    FROM locked, (VALUES (0, %(role_0)s, %(content_0)s::json), (1, %(role_1)s, %(content_1)s::json))
        AS given (n, role, content)
), events AS (
    INSERT INTO event
    SELECT session_id, head_seq + 1 + n, type, data,
        CASE WHEN n < 2 THEN message_count + n END, now()
    FROM locked, LATERAL (VALUES
        (0, %(role_0)s || '_message', NULL::json),
        (1, %(role_1)s || '_message', NULL),
        (2, 'state_saved', json_build_object('step_count', step_count)),
        (3, 'checkpoint_created', json_build_object('checkpoint_id', session_id || '-' || step_count))
    ) AS given (n, type, data)
), checkpoint AS (
    INSERT INTO checkpoint
    SELECT session_id, session_id || '-' || step_count, head_seq + 4, step_count, message_count + 2, status,
        %(state)s::json, now()
    FROM locked
)
UPDATE session SET version = version + 1, step_count = locked.step_count,
    message_count = locked.message_count + 2, head_seq = locked.head_seq + 4,
    checkpoint_id = locked.session_id || '-' || locked.step_count, state = %(state)s::json, updated_at = now()
FROM locked WHERE session.session_id = locked.session_id
"""


class OneStatement(ByHand):
    """Data-modifying common table expressions: nothing cheaper is known for a step."""

    name = "SQL by hand, one statement"

    @classmethod
    def prepare(cls, place: Place, database: str | None = None) -> None:
        """The tables are those of `ByHand`."""

    def step(self, session_id: str, step: Step) -> None:
        first, second = step.messages
        written = self._run(
            STEP,
            {
                "id": session_id,
                "version": self.versions[session_id],
                "role_0": first["role"],
                "content_0": json.dumps(first),
                "role_1": second["role"],
                "content_1": json.dumps(second),
                "state": json.dumps(step.state),
            },
        )
        if written.rowcount != 1:
            raise Stale(session_id)
        self.versions[session_id] += 1
