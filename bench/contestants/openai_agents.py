"""OpenAI Agents SDK: `SQLAlchemySession` on asyncpg, as its documentation has it."""

import asyncio
from typing import Any, ClassVar

from bench.contestants.base import Contestant
from bench.payload import Document, Step
from bench.place import Place, Route


class OpenAIAgents(Contestant):
    """One `add_items` of the step's two messages."""

    name = "OpenAI SQLAlchemySession"
    database = "openai_agents"
    less = "messages only: no state, no checkpoint, no event log, no version check"
    lazy = True
    packages: ClassVar[tuple[str, ...]] = ("agents", "sqlalchemy", "asyncpg")

    def __init__(self, place: Place, through: Route = "direct") -> None:
        from sqlalchemy.ext.asyncio import create_async_engine

        url = place.url(self.database, through).replace("postgresql://", "postgresql+asyncpg://")
        self.runner = asyncio.Runner()
        self.engine = create_async_engine(url)
        self.sessions: dict[str, Any] = {}

    @classmethod
    def prepare(cls, place: Place) -> None:
        from agents.extensions.memory import SQLAlchemySession

        contestant = cls(place)
        session = SQLAlchemySession("first", engine=contestant.engine, create_tables=True)
        contestant.runner.run(session.get_items())
        contestant.close()

    def close(self) -> None:
        self.runner.run(self.engine.dispose())
        self.runner.close()

    def create(self, session_id: str) -> None:
        from agents.extensions.memory import SQLAlchemySession

        self.sessions[session_id] = SQLAlchemySession(session_id, engine=self.engine)

    def fill(self, session_id: str, messages: list[Document]) -> None:
        self.append(session_id, messages)

    def step(self, session_id: str, step: Step) -> None:
        self.append(session_id, step.messages)

    def append(self, session_id: str, messages: list[Document]) -> None:
        self.runner.run(self.sessions[session_id].add_items(messages))

    def latest(self, session_id: str, count: int) -> Any:
        return self.runner.run(self.sessions[session_id].get_items(limit=count))

    def load_all(self, session_id: str) -> Any:
        return self.runner.run(self.sessions[session_id].get_items())

    def delete(self, session_id: str) -> None:
        self.runner.run(self.sessions[session_id].clear_session())
