"""helix_sessions: the public calls of `SessionStore`, as an application makes them."""

from dataclasses import replace
from typing import Any

from bench.contestants.base import Contestant
from bench.payload import Document, Step
from bench.place import Place, Route

CHUNK = 500
ALIASES: dict[Route, str] = {"direct": "default", "counted": "counted", "delayed": "delayed"}
SECOND_ALIASES: dict[Route, str] = {"direct": "second", "counted": "counted_2", "delayed": "delayed_2"}
"""Another connection to the same database by the same way."""


class Ours(Contestant):
    """A store on one database alias."""

    name = "ours"
    database = "ours"

    def __init__(self, place: Place, through: Route = "direct", using: str | None = None) -> None:
        from helix_sessions.store import SessionStore

        self.using = using or ALIASES[through]
        self.store = SessionStore(using=self.using)
        self.states: dict[str, Any] = {}
        self.versions: dict[str, int] = {}

    def close(self) -> None:
        from django.db import connections

        connections[self.using].close()

    def create(self, session_id: str) -> None:
        self._known(self.store.create_session(session_id, agent_type="bench"))

    def open(self, session_id: str) -> None:
        self._known(self.store.load_state(session_id))

    def _known(self, state: Any) -> None:
        self.states[state.session_id] = state
        self.versions[state.session_id] = state.version

    def fill(self, session_id: str, messages: list[Document]) -> None:
        for start in range(0, len(messages), CHUNK):
            self.store.append_messages(session_id, messages[start : start + CHUNK])
        self.open(session_id)

    def step(self, session_id: str, step: Step) -> None:
        before = self.states[session_id]
        state = replace(before, custom_state=step.state, step_count=before.step_count + 1)
        committed = self.store.save_state_and_promote_staging(
            session_id, state, step.messages, expected_version=self.versions[session_id]
        )
        self.states[session_id] = state
        self.versions[session_id] = committed.version

    def append(self, session_id: str, messages: list[Document]) -> None:
        appended = self.store.append_messages(
            session_id, messages, expected_version=self.versions[session_id]
        )
        self.versions[session_id] = appended.version

    def emit_event(self, session_id: str, data: Document) -> None:
        self.store.emit_event(session_id, "progress", data)

    def compare_and_set(self, session_id: str, expected: str, status: str) -> None:
        from helix_sessions.types import CasOk

        version = self.versions[session_id]
        result = self.store.compare_and_set_status(session_id, [expected], status, expected_version=version)
        self.versions[session_id] = result.new_version if isinstance(result, CasOk) else -1

    def load_state(self, session_id: str) -> object:
        return self.store.load_state(session_id)

    def latest(self, session_id: str, count: int) -> list[Any]:
        return self.store.get_messages(session_id, limit=count, newest_first=True).messages

    def load_all(self, session_id: str) -> list[Any]:
        return self.store.get_messages(session_id).messages

    def list_newest(self) -> Any:
        return self.store.list_sessions(limit=50).items

    def clone(self, session_id: str, copy: str) -> None:
        self.store.clone_session(session_id, copy)

    def delete(self, session_id: str) -> None:
        self.store.delete_session(session_id)


class OursOnTwo(Ours):
    """Steps of one session that two connections take in turn, as when workers share the requests.

    What a connection remembers of the session is out of date each time.
    """

    name = "ours, two connections"

    def __init__(self, place: Place, through: Route = "direct") -> None:
        super().__init__(place, through)
        self.other = Ours(place, using=SECOND_ALIASES[through])

    def close(self) -> None:
        super().close()
        self.other.close()

    def step(self, session_id: str, step: Step) -> None:
        super().step(session_id, step)
        self.store, self.other.store = self.other.store, self.store
