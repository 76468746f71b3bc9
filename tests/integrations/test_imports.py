"""Sessions of the OpenAI Agents SDK and of ADK move over from their own databases."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents")
pytest.importorskip("google.adk")
pytest.importorskip("sqlalchemy")

from agents.extensions.memory import SQLAlchemySession
from agents.memory import SQLiteSession
from google.adk.events import Event, EventActions
from google.adk.sessions import BaseSessionService, DatabaseSessionService, InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai.types import Content, FunctionCall, Part

from helix_sessions.exceptions import InvalidInput
from helix_sessions.integrations import google_adk_import, openai_agents_import
from helix_sessions.integrations.google_adk import DjangoSessionService
from helix_sessions.integrations.openai_agents import DjangoSession
from helix_sessions.store import SessionStore
from tests.integrations.their_databases import their_engines

pytestmark = pytest.mark.django_db(transaction=True)

ITEMS: list[Any] = [
    {"role": "user", "content": "look"},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "seen \u2713"},
    {"type": "reasoning", "id": "r", "summary": []},
]


class TestOpenAI:
    @staticmethod
    def database(path: Path, **sessions: list[Any]) -> sqlite3.Connection:
        for name, items in sessions.items():
            session = SQLiteSession(name, path)
            asyncio.run(session.add_items(items))
            session.close()
        return sqlite3.connect(path)

    def test_every_item_comes_over_and_the_session_goes_on(self, store: SessionStore, tmp_path: Path) -> None:
        source = self.database(tmp_path / "a", one=ITEMS, two=ITEMS[:1])
        assert openai_agents_import.import_sessions(source, user_id="ada") == ["one", "two"]
        assert asyncio.run(DjangoSession("one").get_items()) == ITEMS
        assert store.load_state("one").user_id == "ada"
        assert store.load_state("one").agent_type == "openai_agents"
        asyncio.run(DjangoSession("one").add_items(ITEMS[:1]))
        assert openai_agents_import.import_sessions(source) == [], "they are here"
        assert len(asyncio.run(DjangoSession("one").get_items())) == 5
        source.close()

    def test_chosen_ones_and_one_that_was_interrupted(self, store: SessionStore, tmp_path: Path) -> None:
        source = self.database(tmp_path / "a", one=ITEMS, two=ITEMS, three=ITEMS)
        store.create_session("two", agent_type="openai_agents")
        store.create_session("three", agent_type="support")
        assert openai_agents_import.import_sessions(source, ["two", "three", "missing"]) == ["two"]
        assert asyncio.run(DjangoSession("two").get_items()) == ITEMS
        assert store.get_message_count("three") == 0
        with pytest.raises(InvalidInput):
            openai_agents_import.import_sessions(source, messages_table="a; DROP TABLE b")
        source.close()

    def test_the_tables_of_sqlalchemy(self, store: SessionStore, tmp_path: Path) -> None:
        """What `SQLAlchemySession` wrote, on the engine's own kind of database."""
        with their_engines(tmp_path / "theirs") as (awaited, engine):
            for name, items in (("one", ITEMS), ("two", ITEMS[:1])):
                session = SQLAlchemySession(name, engine=awaited, create_tables=True)
                asyncio.run(session.add_items(items))
            connection = engine.raw_connection()
            assert openai_agents_import.import_sessions(connection) == ["one", "two"]
            connection.close()
        assert asyncio.run(DjangoSession("one").get_items()) == ITEMS


def event(text: str, **delta: Any) -> Event:
    part = Part(text=text) if text else Part(function_call=FunctionCall(id="c", name="look", args={}))
    return Event(
        author="user", content=Content(parts=[part]), actions=EventActions(state_delta=delta), timestamp=7.5
    )


class TestADK:
    @pytest.mark.parametrize("kind", ["memory", "database", "sqlite"])
    def test_events_and_all_scopes_come_over(self, kind: str, store: SessionStore, tmp_path: Path) -> None:
        async def move(source: BaseSessionService) -> None:
            target = DjangoSessionService()
            session = await source.create_session(
                app_name="app", user_id="ada", session_id="s", state={"a": 1, "user:b": 2, "app:c": 3}
            )
            for each in (event("hi", a=4), event(""), event("ho", **{"user:b": 5})):
                await source.append_event(session, each)
            await source.create_session(app_name="app", user_id="bob", session_id="t")
            moved = await google_adk_import.import_sessions(source, target, app_name="app")
            assert moved == ["s", "t"]
            names: Any = {"app_name": "app", "user_id": "ada", "session_id": "s"}
            theirs, ours = await source.get_session(**names), await target.get_session(**names)
            assert theirs is not None
            assert ours is not None
            assert ours.events == theirs.events
            assert ours.state == theirs.state == {"a": 4, "user:b": 5, "app:c": 3}
            assert ours.last_update_time == 7.5
            assert await google_adk_import.import_sessions(source, target, app_name="app") == ["t"]
            await target.append_event(ours, event("more"))
            assert (
                await google_adk_import.import_sessions(
                    source, target, app_name="app", user_id="ada", session_ids=["s"]
                )
                == []
            )

        with their_engines(tmp_path / "theirs") as (awaited, _):
            made: dict[str, Callable[[], BaseSessionService]] = {
                "memory": InMemorySessionService,
                "database": lambda: DatabaseSessionService(db_engine=awaited),
                "sqlite": lambda: SqliteSessionService(str(tmp_path / "sqlite")),
            }
            asyncio.run(move(made[kind]()))
        assert store.examine_sessions(deep=True) == []

    def test_padded_ids_are_chosen_without_spaces(self, tmp_path: Path) -> None:
        """ADK's database service keeps ids as they are given."""

        async def move(source: BaseSessionService) -> None:
            await source.create_session(app_name="app", user_id="ada", session_id=" s ")
            target, chosen = DjangoSessionService(), {"app_name": "app", "session_ids": ["s"]}
            assert await google_adk_import.import_sessions(source, target, **chosen) == [" s "]  # type: ignore[arg-type]
            assert await target.get_session(app_name="app", user_id="ada", session_id="s")

        with their_engines(tmp_path / "theirs") as (awaited, _):
            asyncio.run(move(DatabaseSessionService(db_engine=awaited)))

    def test_an_interrupted_copy_is_completed(self, store: SessionStore) -> None:
        async def move() -> None:
            source, target = InMemorySessionService(), DjangoSessionService()  # type: ignore[no-untyped-call]
            names: Any = {"app_name": "app", "user_id": "ada", "session_id": "s"}
            session = await source.create_session(**names)
            for text in "abc":
                await source.append_event(session, event(text))
            ours = await target.create_session(**names)
            await target.append_event(ours, session.events[0].model_copy(deep=True))
            assert await google_adk_import.import_sessions(source, target, app_name="app") == ["s"]
            found = await target.get_session(**names)
            assert found is not None
            assert [each.id for each in found.events] == [each.id for each in session.events]

        asyncio.run(move())
