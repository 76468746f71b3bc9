"""What a session must look like after the calls made so far, in plain values, and what it does look like."""

import time
from dataclasses import dataclass, field, fields
from typing import Any

from django.db import connection

from helix_sessions.exceptions import SessionNotFound
from helix_sessions.models import Session
from helix_sessions.store import SessionStore

NOTE = "note"
STEP = "step"


@dataclass
class Expected:
    """A session as its only writer believes it to be. Every call marks what it writes with its number."""

    exists: bool = False
    version: int = 0
    status: str = "active"
    step_count: int = 0
    resume_count: int = 0
    done: list[int] = field(default_factory=list)
    """What calls wrote into the state."""
    messages: list[list[Any]] = field(default_factory=list)
    """Role and number of each message."""
    notes: list[int] = field(default_factory=list)
    """What calls wrote into the log."""
    checkpoints: dict[str, list[Any]] = field(default_factory=dict)
    """The number of messages and the state at each."""
    runs: dict[str, str] = field(default_factory=dict)
    staged: list[int] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    """The metadata."""
    flag: str | None = None
    waiting: dict[str, int | None] = field(default_factory=dict)
    """Pending calls and their answers."""
    branches: dict[str, list[Any]] = field(default_factory=dict)
    """The state and the messages of each clone."""

    @property
    def running(self) -> str | None:
        return next((run for run, status in self.runs.items() if status == "running"), None)

    @property
    def is_suspended(self) -> bool:
        return next(reversed(self.runs.values()), "") == "suspended_client_tool"

    def say(self, number: int, *roles: str) -> None:
        self.messages += [[role, number] for role in roles]

    def point(self, number: int) -> None:
        """A checkpoint of what is now."""
        self.checkpoints[f"c{number}"] = [len(self.messages), list(self.done)]

    def promote(self) -> None:
        self.done += self.staged
        self.staged = []

    def differences(self, other: "Expected") -> dict[str, tuple[Any, Any]]:
        """What differs, by name."""
        pairs = {item.name: (getattr(self, item.name), getattr(other, item.name)) for item in fields(self)}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def observed(store: SessionStore, session_id: str) -> Expected:
    """The session as the store shows it to anybody."""
    try:
        state = store.load_state(session_id)
    except SessionNotFound:
        return Expected()
    flag = store.peek_interrupt_flag(session_id)
    checkpoints = reversed(store.list_checkpoints(session_id, limit=500).items)
    runs = reversed(store.list_runs(session_id, limit=500).items)
    return Expected(
        exists=True,
        version=state.version,
        status=state.status,
        step_count=state.step_count,
        resume_count=state.resume_count,
        done=state.custom_state["done"],
        messages=transcript(store, session_id),
        notes=[event.data["n"] for event in store.get_events(session_id, types=[NOTE])],
        checkpoints={
            item.checkpoint_id: [item.message_count, item.state.custom_state["done"]] for item in checkpoints
        },
        runs={run.run_id: run.status for run in runs},
        staged=[change.writes[0]["values"][0] for change in store.get_staged_changes(session_id)],
        marks=state.metadata,
        flag=None if flag is None else flag.reason,
        waiting={
            call: entry["response"]["result"] if entry.get("submitted_at") else None
            for call, entry in (state.pending_client_tool_calls or {}).items()
        },
        branches={
            name: [store.load_state(name).custom_state["done"], transcript(store, name)]
            for name in _branches(session_id)
        },
    )


def _branches(session_id: str) -> list[str]:
    rows = Session.objects.filter(session_id__startswith=f"{session_id}.")
    return list(rows.order_by("created_at").values_list("session_id", flat=True))


def transcript(store: SessionStore, session_id: str) -> list[list[Any]]:
    return [[message["role"], message["content"]] for message in store.get_messages(session_id).messages]


def assert_healthy(store: SessionStore, *session_ids: str) -> None:
    """The doctor finds nothing, in these sessions or in all."""
    found = store.examine_sessions(session_ids=session_ids or None, deep=True)
    assert not found, found


def wait_until_gone(backend: int | None) -> None:
    """PostgreSQL ends what a dead client began when it notices that the client is gone."""
    deadline = time.monotonic() + 60
    while backend is not None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [backend])
            if cursor.fetchone() is None:
                return
        assert time.monotonic() < deadline, f"The server process {backend} does not end."
        time.sleep(0.001)
