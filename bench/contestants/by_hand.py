"""SQL by hand: what a careful programmer writes with psycopg, six prepared statements for a step.

The tables have the keys and foreign keys of a sensible design of one's own: the state is in the session's
row and is copied into each checkpoint. A step writes as many message and event rows as ours.
"""

import json
from datetime import UTC, datetime
from typing import Any

import psycopg

from bench.contestants.base import Contestant
from bench.payload import Document, Step
from bench.place import Place, Route

EVENTS_PER_STEP = 4
"""Two for the messages, one for the state, one for the checkpoint, as ours."""

SCHEMA = """
CREATE TABLE session (
    session_id text PRIMARY KEY,
    agent_type text NOT NULL,
    status text NOT NULL DEFAULT 'active'
        CHECK (status IN ('active', 'completed', 'failed', 'interrupted', 'paused')),
    version bigint NOT NULL DEFAULT 1,
    step_count bigint NOT NULL DEFAULT 0,
    message_count bigint NOT NULL DEFAULT 0,
    head_seq bigint NOT NULL DEFAULT 0,
    checkpoint_id text,
    user_id text,
    state {document} NOT NULL DEFAULT '{{}}',
    metadata jsonb NOT NULL DEFAULT '{{}}',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON session (created_at DESC, session_id DESC);
CREATE INDEX ON session (user_id, created_at DESC);
CREATE TABLE message (
    session_id text NOT NULL REFERENCES session,
    position bigint NOT NULL,
    seq bigint NOT NULL,
    role text NOT NULL,
    content {document} NOT NULL,
    PRIMARY KEY (session_id, position)
);
CREATE TABLE event (
    session_id text NOT NULL REFERENCES session,
    seq bigint NOT NULL,
    type text NOT NULL,
    data {document},
    message_position bigint,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (session_id, seq)
);
CREATE TABLE checkpoint (
    session_id text NOT NULL REFERENCES session,
    checkpoint_id text NOT NULL,
    seq bigint NOT NULL,
    step_count bigint NOT NULL,
    message_count bigint NOT NULL,
    status text NOT NULL,
    state {document} NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (session_id, checkpoint_id)
);
CREATE TABLE staged (
    session_id text NOT NULL REFERENCES session,
    tool_call_id text NOT NULL,
    writes {document} NOT NULL,
    PRIMARY KEY (session_id, tool_call_id)
);
"""

LOCK = (
    "SELECT version, status, step_count, message_count, head_seq FROM session"
    " WHERE session_id = %s FOR UPDATE"
)
PROMOTE = "DELETE FROM staged WHERE session_id = %s RETURNING writes"
INSERT_MESSAGES = "INSERT INTO message VALUES (%s, %s, %s, %s, %s), (%s, %s, %s, %s, %s)"
INSERT_EVENT = "INSERT INTO event VALUES (%s, %s, %s, %s, %s, %s)"
INSERT_TWO_EVENTS = f"{INSERT_EVENT}, (%s, %s, %s, %s, %s, %s)"
INSERT_FOUR_EVENTS = f"{INSERT_TWO_EVENTS}, (%s, %s, %s, %s, %s, %s), (%s, %s, %s, %s, %s, %s)"
INSERT_CHECKPOINT = "INSERT INTO checkpoint VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
UPDATE_AFTER_STEP = (
    "UPDATE session SET version = version + 1, step_count = %s, message_count = %s, head_seq = %s,"
    " checkpoint_id = %s, state = %s, updated_at = %s WHERE session_id = %s"
)
UPDATE_AFTER_APPEND = (
    "UPDATE session SET version = version + 1, message_count = %s, head_seq = %s, updated_at = %s"
    " WHERE session_id = %s"
)
UPDATE_AFTER_EVENT = "UPDATE session SET head_seq = %s, updated_at = %s WHERE session_id = %s"
UPDATE_STATUS = (
    "UPDATE session SET version = version + 1, status = %s, head_seq = %s, updated_at = %s"
    " WHERE session_id = %s"
)
LATEST = "SELECT content FROM message WHERE session_id = %s ORDER BY position DESC LIMIT %s"
ALL = "SELECT content FROM message WHERE session_id = %s ORDER BY position"
LIST = (
    "SELECT session_id, agent_type, status, version, step_count, message_count, user_id,"
    " created_at, updated_at FROM session ORDER BY created_at DESC, session_id DESC LIMIT 51"
)


class Stale(Exception):
    """Another writer wrote in between."""


class ByHand(Contestant):
    """Statement after statement in one transaction."""

    name = "SQL by hand"
    database = "by_hand"
    document = "json"

    def __init__(self, place: Place, through: Route = "direct", database: str | None = None) -> None:
        self.connection = psycopg.connect(place.url(database or self.database, through), autocommit=True)
        self.versions: dict[str, int] = {}

    @classmethod
    def prepare(cls, place: Place, database: str | None = None) -> None:
        place.execute(SCHEMA.format(document=cls.document), database or cls.database)

    def close(self) -> None:
        self.connection.close()

    def _run(self, sql: str, parameters: Any = ()) -> psycopg.Cursor[Any]:
        return self.connection.execute(sql, parameters, prepare=True)

    def ping(self) -> None:
        """The shortest way there and back."""
        self._run("SELECT 1").fetchone()

    def create(self, session_id: str) -> None:
        now = datetime.now(UTC)
        with self.connection.transaction():
            self._run(
                "INSERT INTO session (session_id, agent_type, head_seq) VALUES (%s, 'bench', 1)", [session_id]
            )
            self._run(INSERT_EVENT, (session_id, 1, "session_started", '{"agent_type":"bench"}', None, now))
        self.versions[session_id] = 1

    def open(self, session_id: str) -> None:
        row = self._run("SELECT version FROM session WHERE session_id = %s", [session_id]).fetchone()
        assert row
        self.versions[session_id] = row[0]

    def fill(self, session_id: str, messages: list[Document]) -> None:
        now = datetime.now(UTC)
        with self.connection.transaction(), self.connection.cursor() as cursor:
            with cursor.copy("COPY message FROM STDIN") as copy:
                for position, message in enumerate(messages):
                    copy.write_row((session_id, position, position + 2, message["role"], json.dumps(message)))
            with cursor.copy("COPY event FROM STDIN") as copy:
                for position, message in enumerate(messages):
                    copy.write_row(
                        (session_id, position + 2, f"{message['role']}_message", None, position, now)
                    )
            cursor.execute(UPDATE_AFTER_APPEND, (len(messages), len(messages) + 1, now, session_id))
        self.open(session_id)

    def _lock(self, session_id: str) -> Any:
        row = self._run(LOCK, [session_id]).fetchone()
        if row is None or row[0] != self.versions[session_id]:
            raise Stale(session_id)
        return row

    def step(self, session_id: str, step: Step) -> None:
        first, second = step.messages
        state = json.dumps(step.state)
        now = datetime.now(UTC)
        with self.connection.transaction():
            version, status, steps, count, seq = self._lock(session_id)
            self._run(PROMOTE, [session_id]).fetchall()
            checkpoint = f"{session_id}-{steps + 1}"
            self._run(
                INSERT_MESSAGES,
                (session_id, count, seq + 1, first["role"], json.dumps(first),
                 session_id, count + 1, seq + 2, second["role"], json.dumps(second)),
            )  # fmt: skip
            self._run(
                INSERT_FOUR_EVENTS,
                (session_id, seq + 1, f"{first['role']}_message", None, count, now,
                 session_id, seq + 2, f"{second['role']}_message", None, count + 1, now,
                 session_id, seq + 3, "state_saved", json.dumps({"step_count": steps + 1}), None, now,
                 session_id, seq + 4, "checkpoint_created", json.dumps({"checkpoint_id": checkpoint}),
                 None, now),
            )  # fmt: skip
            self._run(
                INSERT_CHECKPOINT,
                (session_id, checkpoint, seq + 4, steps + 1, count + 2, status, state, now),
            )
            self._run(UPDATE_AFTER_STEP, (steps + 1, count + 2, seq + 4, checkpoint, state, now, session_id))
        self.versions[session_id] = version + 1

    def append(self, session_id: str, messages: list[Document]) -> None:
        first, second = messages
        now = datetime.now(UTC)
        with self.connection.transaction():
            version, _, _, count, seq = self._lock(session_id)
            self._run(
                INSERT_MESSAGES,
                (session_id, count, seq + 1, first["role"], json.dumps(first),
                 session_id, count + 1, seq + 2, second["role"], json.dumps(second)),
            )  # fmt: skip
            self._run(
                INSERT_TWO_EVENTS,
                (session_id, seq + 1, f"{first['role']}_message", None, count, now,
                 session_id, seq + 2, f"{second['role']}_message", None, count + 1, now),
            )  # fmt: skip
            self._run(UPDATE_AFTER_APPEND, (count + 2, seq + 2, now, session_id))
        self.versions[session_id] = version + 1

    def emit_event(self, session_id: str, data: Document) -> None:
        now = datetime.now(UTC)
        with self.connection.transaction():
            *_, seq = self._lock(session_id)
            self._run(INSERT_EVENT, (session_id, seq + 1, "progress", json.dumps(data), None, now))
            self._run(UPDATE_AFTER_EVENT, (seq + 1, now, session_id))

    def compare_and_set(self, session_id: str, expected: str, status: str) -> None:
        now = datetime.now(UTC)
        with self.connection.transaction():
            version, before, _, _, seq = self._lock(session_id)
            if before != expected:
                raise Stale(session_id)
            told = json.dumps({"from": before, "to": status})
            self._run(INSERT_EVENT, (session_id, seq + 1, "status_changed", told, None, now))
            self._run(UPDATE_STATUS, (status, seq + 1, now, session_id))
        self.versions[session_id] = version + 1

    def load_state(self, session_id: str) -> object:
        return self._run("SELECT * FROM session WHERE session_id = %s", [session_id]).fetchone()

    def latest(self, session_id: str, count: int) -> list[Any]:
        return [content for (content,) in self._run(LATEST, [session_id, count])]

    def load_all(self, session_id: str) -> list[Any]:
        return [content for (content,) in self._run(ALL, [session_id])]

    def list_newest(self) -> list[Any]:
        return self._run(LIST).fetchall()

    def clone(self, session_id: str, copy: str) -> None:
        with self.connection.transaction():
            self._lock(session_id)
            self._run(
                "INSERT INTO session (session_id, agent_type, message_count, head_seq, step_count, state)"
                " SELECT %s, agent_type, message_count, message_count + 1, step_count, state FROM session"
                " WHERE session_id = %s",
                [copy, session_id],
            )
            self._run(
                "INSERT INTO message SELECT %s, position, position + 2, role, content FROM message"
                " WHERE session_id = %s",
                [copy, session_id],
            )
            self._run(
                "INSERT INTO event SELECT %s, position + 2, role || '_message', NULL, position, now()"
                " FROM message WHERE session_id = %s",
                [copy, session_id],
            )
            self._run(INSERT_EVENT, (copy, 1, "session_started", "{}", None, datetime.now(UTC)))

    def delete(self, session_id: str) -> None:
        with self.connection.transaction():
            for table in ("staged", "checkpoint", "event", "message", "session"):
                self._run(f"DELETE FROM {table} WHERE session_id = %s", [session_id])


class ByHandJsonb(ByHand):
    """The same with `jsonb` columns, which many a hand-made design would have."""

    name = "SQL by hand, jsonb"
    database = "by_hand_jsonb"
    document = "jsonb"
