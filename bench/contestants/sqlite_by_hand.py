"""By hand on SQLite: the same six statements with the `sqlite3` module, as durable as ours."""

import json
import sqlite3
from datetime import UTC, datetime
from typing import Any

from bench.contestants import by_hand
from bench.contestants.base import Contestant
from bench.payload import Document, Step
from bench.place import Place, Route

_LOCK = by_hand.LOCK.removesuffix(" FOR UPDATE")
_SCHEMA = (
    by_hand.SCHEMA.format(document="text")
    .replace("jsonb", "text")
    .replace("DEFAULT now()", "DEFAULT CURRENT_TIMESTAMP")
    .replace("CREATE INDEX ON session (created_at", "CREATE INDEX session_newest ON session (created_at")
    .replace("CREATE INDEX ON session (user_id", "CREATE INDEX session_of_user ON session (user_id")
)


class SqliteByHand(Contestant):
    """WAL, `synchronous=FULL`, `BEGIN IMMEDIATE`."""

    name = "sqlite3 by hand"

    def __init__(self, place: Place, through: Route = "direct") -> None:
        self.connection = sqlite3.connect(place.sqlite.with_name("by_hand.sqlite3"), isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            self.connection.execute(f"PRAGMA {pragma}")
        self.versions: dict[str, int] = {}

    @classmethod
    def prepare(cls, place: Place) -> None:
        contestant = cls(place)
        contestant.connection.executescript(_SCHEMA)
        contestant.close()

    def close(self) -> None:
        self.connection.close()

    def _run(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        return self.connection.execute(sql.replace("%s", "?"), parameters)

    def create(self, session_id: str) -> None:
        now = _now()
        self._run("BEGIN IMMEDIATE")
        self._run(
            "INSERT INTO session (session_id, agent_type, head_seq) VALUES (%s, 'bench', 1)", [session_id]
        )
        self._run(by_hand.INSERT_EVENT, (session_id, 1, "session_started", "{}", None, now))
        self._run("COMMIT")
        self.versions[session_id] = 1

    def fill(self, session_id: str, messages: list[Document]) -> None:
        for start in range(0, len(messages) - 1, 2):
            self.append(session_id, messages[start : start + 2])

    def _lock(self, session_id: str) -> Any:
        row = self._run(_LOCK, [session_id]).fetchone()
        if row is None or row[0] != self.versions[session_id]:
            raise by_hand.Stale(session_id)
        return row

    def step(self, session_id: str, step: Step) -> None:
        first, second = step.messages
        state = json.dumps(step.state)
        now = _now()
        self._run("BEGIN IMMEDIATE")
        version, status, steps, count, seq = self._lock(session_id)
        self._run("DELETE FROM staged WHERE session_id = %s", [session_id])
        checkpoint = f"{session_id}-{steps + 1}"
        self._run(
            by_hand.INSERT_MESSAGES,
            (session_id, count, seq + 1, first["role"], json.dumps(first),
             session_id, count + 1, seq + 2, second["role"], json.dumps(second)),
        )  # fmt: skip
        self._run(
            by_hand.INSERT_FOUR_EVENTS,
            (session_id, seq + 1, f"{first['role']}_message", None, count, now,
             session_id, seq + 2, f"{second['role']}_message", None, count + 1, now,
             session_id, seq + 3, "state_saved", json.dumps({"step_count": steps + 1}), None, now,
             session_id, seq + 4, "checkpoint_created", json.dumps({"checkpoint_id": checkpoint}), None, now),
        )  # fmt: skip
        self._run(
            by_hand.INSERT_CHECKPOINT,
            (session_id, checkpoint, seq + 4, steps + 1, count + 2, status, state, now),
        )
        self._run(
            by_hand.UPDATE_AFTER_STEP, (steps + 1, count + 2, seq + 4, checkpoint, state, now, session_id)
        )
        self._run("COMMIT")
        self.versions[session_id] = version + 1

    def append(self, session_id: str, messages: list[Document]) -> None:
        first, second = messages
        now = _now()
        self._run("BEGIN IMMEDIATE")
        version, _, _, count, seq = self._lock(session_id)
        self._run(
            by_hand.INSERT_MESSAGES,
            (session_id, count, seq + 1, first["role"], json.dumps(first),
             session_id, count + 1, seq + 2, second["role"], json.dumps(second)),
        )  # fmt: skip
        self._run(
            by_hand.INSERT_TWO_EVENTS,
            (session_id, seq + 1, f"{first['role']}_message", None, count, now,
             session_id, seq + 2, f"{second['role']}_message", None, count + 1, now),
        )  # fmt: skip
        self._run(by_hand.UPDATE_AFTER_APPEND, (count + 2, seq + 2, now, session_id))
        self._run("COMMIT")
        self.versions[session_id] = version + 1

    def latest(self, session_id: str, count: int) -> list[Any]:
        return [json.loads(content) for (content,) in self._run(by_hand.LATEST, [session_id, count])]


def _now() -> str:
    return datetime.now(UTC).isoformat(" ")
