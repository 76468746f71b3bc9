"""Google ADK: `DatabaseSessionService` on asyncpg, as its documentation has it."""

import asyncio
from typing import Any, ClassVar

from bench.contestants.base import Contestant
from bench.payload import Document, Step
from bench.place import Place, Route

APP, USER = "bench", "user"

COPY_EVENTS = """
INSERT INTO events (id, app_name, user_id, session_id, invocation_id, timestamp, event_data)
SELECT gen_random_uuid()::text, app_name, user_id, session_id, invocation_id,
    timestamp - n * interval '1 millisecond', event_data
FROM events, generate_series(1, {more}) AS n WHERE session_id = '{session_id}'
"""


class GoogleAdk(Contestant):
    """Two `append_event` calls: what the user said, and what the model said with the state's change."""

    name = "Google ADK append_event"
    database = "google_adk"
    less = "no checkpoint, no numbered event log, one transaction for each message"
    packages: ClassVar[tuple[str, ...]] = ("google.adk.sessions", "sqlalchemy", "asyncpg")
    slow = True

    def __init__(self, place: Place, through: Route = "direct") -> None:
        from google.adk.sessions import DatabaseSessionService

        url = place.url(self.database, through).replace("postgresql://", "postgresql+asyncpg://")
        self.place = place
        self.runner = asyncio.Runner()
        self.service = DatabaseSessionService(url)
        self.sessions: dict[str, Any] = {}

    @classmethod
    def prepare(cls, place: Place) -> None:
        contestant = cls(place)
        contestant.create("first")
        contestant.close()

    def close(self) -> None:
        self.runner.run(self.service.close())
        self.runner.close()

    def create(self, session_id: str) -> None:
        made = self.service.create_session(app_name=APP, user_id=USER, session_id=session_id)
        self.sessions[session_id] = self.runner.run(made)

    def fill(self, session_id: str, messages: list[Document]) -> None:
        self.append(session_id, messages[:1])
        self.place.execute(COPY_EVENTS.format(more=len(messages) - 1, session_id=session_id), self.database)

    def open(self, session_id: str) -> None:
        self.sessions[session_id] = self._loaded(session_id)

    def step(self, session_id: str, step: Step) -> None:
        *first, last = step.messages
        self.append(session_id, first)
        self._append(session_id, last, step.state)

    def append(self, session_id: str, messages: list[Document]) -> None:
        for message in messages:
            self._append(session_id, message, {})

    def load_state(self, session_id: str) -> Any:
        from google.adk.sessions.base_session_service import GetSessionConfig

        return self._loaded(session_id, GetSessionConfig(num_recent_events=0))

    def latest(self, session_id: str, count: int) -> Any:
        from google.adk.sessions.base_session_service import GetSessionConfig

        return self._loaded(session_id, GetSessionConfig(num_recent_events=count))

    def load_all(self, session_id: str) -> Any:
        return self._loaded(session_id)

    def delete(self, session_id: str) -> None:
        self.runner.run(self.service.delete_session(app_name=APP, user_id=USER, session_id=session_id))

    def _loaded(self, session_id: str, config: Any = None) -> Any:
        return self.runner.run(
            self.service.get_session(app_name=APP, user_id=USER, session_id=session_id, config=config)
        )

    def _append(self, session_id: str, message: Document, state: Document) -> None:
        from google.adk.events import Event, EventActions
        from google.genai import types

        user = message["role"] == "user"
        content = types.Content(
            role="user" if user else "model", parts=[types.Part.from_text(text=message["content"])]
        )
        event = Event(
            author="user" if user else "agent",
            invocation_id="invocation",
            content=content,
            actions=EventActions(state_delta=state),
        )
        self.runner.run(self.service.append_event(self.sessions[session_id], event))
