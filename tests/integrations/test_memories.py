"""The memory of the frameworks: LangGraph's store, ADK's memory service, tools for pydantic-ai."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from google.adk.events import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session
from google.genai.types import Content, FunctionCall, Part
from langgraph.graph import START, StateGraph
from langgraph.store.base import BaseStore, GetOp, InvalidNamespaceError, PutOp, SearchOp
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from helix_sessions.agents import ScriptedAgent
from helix_sessions.exceptions import ForeignNamespace, InvalidInput
from helix_sessions.integrations import google_adk_memory
from helix_sessions.integrations.google_adk import DjangoMemoryService
from helix_sessions.integrations.langgraph import DjangoStore
from helix_sessions.integrations.pydantic_ai import memory_toolset
from helix_sessions.memory import MemoryStore
from helix_sessions.runtime import SessionRunner, TurnContext
from helix_sessions.store import SessionStore
from helix_sessions.store.memory import operations
from tests.memory.conftest import Clock, embed

pytestmark = pytest.mark.django_db(transaction=True)

HOME = ("users", "ada")
T = TypeVar("T")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def wait(awaitable: Awaitable[T]) -> T:
    async def main() -> T:
        return await awaitable

    return async_to_sync(main)()


class TestLangGraph:
    def test_its_rows_are_those_of_the_memory_store(self) -> None:
        store = DjangoStore()
        store.put(HOME, "k", {"text": "Green tea"}, ttl=2)
        found = MemoryStore().get(HOME, "k")
        assert found is not None
        assert found.value == {"text": "Green tea"}
        assert found.expires_at is not None
        assert (found.expires_at - found.updated_at).total_seconds() == 120
        MemoryStore().put(HOME, "l", {"text": "coffee"})
        assert [item.key for item in store.search(HOME, query="COFFEE")] == ["l"]
        assert [item.key for item in store.search(HOME, query="tea")] == ["k"]

    def test_a_node_of_a_graph_uses_it(self) -> None:
        def remember(state: dict[str, Any], *, store: BaseStore) -> dict[str, Any]:
            store.put(HOME, "seen", {"n": state["n"]})
            return {"n": state["n"] + 1}

        graph: Any = StateGraph(dict)
        graph.add_node("remember", remember)
        graph.add_edge(START, "remember")
        graph.compile(store=DjangoStore()).invoke({"n": 1})
        assert MemoryStore().get(HOME, "seen").value == {"n": 1}  # type: ignore[union-attr]

    def test_a_batch_reads_what_was_before(self) -> None:
        store = DjangoStore()
        store.put(HOME, "k", {"n": 1})
        found = store.batch(
            [
                PutOp(HOME, "k", {"n": 2}),
                GetOp(HOME, "k"),
                PutOp(HOME, "k", {"n": 3}),
                SearchOp(HOME),
                PutOp(HOME, "l", None),
            ]
        )
        assert found[0] is found[2] is found[4] is None
        assert found[1].value == {"n": 1}  # type: ignore[union-attr]
        assert [item.value for item in found[3]] == [{"n": 1}]  # type: ignore[union-attr]
        assert store.get(HOME, "k").value == {"n": 3}  # type: ignore[union-attr]

    def test_names_are_as_in_langgraph(self) -> None:
        store = DjangoStore()
        for bad in ((), ("a.b",), ("",), ("langgraph", "x")):
            with pytest.raises(InvalidNamespaceError):
                store.put(bad, "k", {})

    def test_reading_begins_the_time_anew(self, clock: Clock) -> None:
        store = DjangoStore(ttl={"default_ttl": 1, "refresh_on_read": True})
        store.put(HOME, "k", {"text": "tea"})
        store.put(HOME, "l", {"text": "tea"}, ttl=None)
        for read in (
            lambda: store.get(HOME, "k"),
            lambda: len(store.search(HOME, query="tea")) == 2,
            lambda: wait(store.aget(HOME, "k")),
        ):
            clock.forward(50)
            assert read()
        clock.forward(50)
        assert store.get(HOME, "k", refresh_ttl=False)
        clock.forward(11)
        assert store.get(HOME, "k") is None
        assert store.sweep_ttl() == 1
        assert store.get(HOME, "l")

    def test_async_embeddings(self) -> None:
        async def aembed(texts: list[str]) -> list[list[float]]:
            await asyncio.sleep(0)
            return embed(texts)

        index: Any = {"dims": 3, "embed": aembed, "fields": ["title", "tags[*]"]}
        store = DjangoStore(index=index)
        wait(store.aput(HOME, "k", {"title": "music", "tags": ["tea", "travel"]}))
        wait(store.aput(HOME, "l", {"title": "music"}))
        found = wait(store.asearch(HOME, query="tea"))
        assert [item.key for item in found] == ["k", "l"]
        assert found[0].score == pytest.approx(1)

    def test_a_store_of_an_owner(self) -> None:
        ada = get_user_model().objects.create_user("ada")
        store = DjangoStore(MemoryStore(owned_by=ada))
        store.put(("owner", str(ada.pk)), "k", {})
        with pytest.raises(ForeignNamespace):
            store.put(("team",), "k", {})
        assert store.list_namespaces() == [("owner", str(ada.pk))]


PLACE: dict[str, Any] = {"app_name": "app", "user_id": "ada"}


def said(event_id: str, text: str) -> Event:
    return Event(
        id=event_id,
        author="user",
        timestamp=1_700_000_000,
        content=Content(role="user", parts=[Part(text=text)]),
    )


class TestGoogleAdk:
    def texts(self, service: DjangoMemoryService, query: str, **place: str) -> list[str]:
        found = wait(service.search_memory(**{**PLACE, **place}, query=query))
        return [memory.content.parts[0].text for memory in found.memories]  # type: ignore[index,misc]

    def test_a_session_is_remembered(self) -> None:
        service = DjangoMemoryService()
        events = [said("1", "I like green tea"), said("2", "My dog is called Rex"), Event(author="agent")]
        session = Session(id="s", events=events, **PLACE)
        wait(service.add_session_to_memory(session))
        wait(service.add_session_to_memory(session))
        assert self.texts(service, "Which tea do I like?") == ["I like green tea"]
        assert self.texts(service, "dog tea") in (
            ["I like green tea", "My dog is called Rex"],
            ["My dog is called Rex", "I like green tea"],
        )
        assert self.texts(service, "green tea dog")[0] == "I like green tea"
        assert self.texts(service, "!!") == []
        assert self.texts(service, "tea", user_id="bob") == self.texts(service, "tea", app_name="x") == []
        [found] = wait(service.search_memory(**PLACE, query="tea")).memories
        assert (found.id, found.author) == ("1", "user")
        assert found.timestamp == "2023-11-14T22:13:20+00:00"
        assert len(MemoryStore().search(("google_adk", "app", "ada"))) == 2

    def test_a_deleted_memory_does_not_come_back(self) -> None:
        service = DjangoMemoryService()
        events: dict[str, Any] = {"events": [said("1", "tea")], "session_id": "s"}
        wait(service.add_events_to_memory(**PLACE, **events))
        wait(service.delete_memory(**PLACE, memory_id="1"))
        wait(service.add_events_to_memory(**PLACE, **events))
        assert self.texts(service, "tea") == []

    def test_a_deleted_memory_is_added_on_purpose(self) -> None:
        service = DjangoMemoryService()
        entry = MemoryEntry(id="1", content=Content(parts=[Part(text="tea")]))
        wait(service.add_memory(**PLACE, memories=[entry]))
        wait(service.delete_memory(**PLACE, memory_id="1"))
        assert self.texts(service, "tea") == []
        wait(service.add_memory(**PLACE, memories=[entry]))
        assert self.texts(service, "tea") == ["tea"]

    def test_more_events_than_a_batch_has(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (operations, google_adk_memory):
            monkeypatch.setattr(module, "MAX_OPERATIONS", 5)
        service = DjangoMemoryService()
        events = [said(str(number), f"tea {number}") for number in range(12)]
        wait(service.add_session_to_memory(Session(id="s", events=events, **PLACE)))
        assert len(MemoryStore().search(("google_adk", "app", "ada"), limit=20)) == 12

    def test_values_that_are_not_json_become_text(self) -> None:
        service = DjangoMemoryService()
        odd: dict[str, Any] = {"bytes": b"\xff", "nan": float("nan"), "type": int}
        call = FunctionCall(name="f", args={"thing": int, "bytes": b"\xff"})
        entry = MemoryEntry(
            content=Content(parts=[Part(text="tea"), Part(function_call=call)]), custom_metadata=odd
        )
        wait(service.add_memory(**PLACE, memories=[entry]))
        [found] = wait(service.search_memory(**PLACE, query="tea")).memories
        assert found.custom_metadata == {"bytes": "_w==", "nan": "NaN", "type": str(int)}
        assert found.content.parts[1].function_call.args == {"thing": str(int), "bytes": "_w=="}  # type: ignore[index,union-attr]

    def test_memories_are_kept_as_they_are(self) -> None:
        service = DjangoMemoryService(namespace=lambda app, user: ("owner", "7", app, user))
        entry = MemoryEntry(
            content=Content(parts=[Part(text="tea")]), author="me", custom_metadata={"n": 1}, timestamp="now"
        )
        wait(service.add_memory(**PLACE, memories=[entry]))
        [found] = wait(service.search_memory(**PLACE, query="tea")).memories
        assert (found.author, found.custom_metadata, found.timestamp) == ("me", {"n": 1}, "now")
        assert len(MemoryStore().search(("owner", "7", "app", "ada"))) == 1

    def test_by_meaning(self) -> None:
        service = DjangoMemoryService(store=MemoryStore(embed=embed))
        wait(service.add_events_to_memory(**PLACE, events=[said("1", "tea"), said("2", "music")]))
        assert self.texts(service, "something about music")[0] == "music"


class TestPydanticAi:
    def run(self, toolset: Any, *calls: ToolCallPart, deps: Any = None) -> list[Any]:
        """What the tools answer to these calls, one in each turn."""
        waiting = list(calls)

        def model(messages: Any, info: Any) -> ModelResponse:
            assert {tool.name for tool in info.function_tools} == {
                "save_memory",
                "search_memories",
                "delete_memory",
            }
            return ModelResponse(parts=[waiting.pop(0) if waiting else TextPart("done")])

        agent = Agent(FunctionModel(model), toolsets=[toolset], deps_type=object)
        result = async_to_sync(agent.run)("go", deps=deps)
        return [
            part
            for message in result.all_messages()
            for part in message.parts
            if isinstance(part, ToolReturnPart) or part.part_kind == "retry-prompt"
        ]

    def test_an_agent_remembers(self) -> None:
        tools = memory_toolset(namespace=HOME)
        self.run(
            tools,
            ToolCallPart("save_memory", {"key": "tea", "value": "Likes green tea"}),
            ToolCallPart("save_memory", {"key": "dog", "value": {"name": "Rex"}}),
        )
        assert MemoryStore().get(HOME, "tea").value == {"text": "Likes green tea"}  # type: ignore[union-attr]
        assert MemoryStore().get(HOME, "dog").value == {"name": "Rex"}  # type: ignore[union-attr]
        [found] = self.run(tools, ToolCallPart("search_memories", {"query": "TEA"}))
        assert found.content == [{"key": "tea", "value": {"text": "Likes green tea"}}]
        self.run(tools, ToolCallPart("delete_memory", {"key": "tea"}))
        assert MemoryStore().get(HOME, "tea") is None

    def test_the_namespace_comes_from_the_run(self) -> None:
        tools = memory_toolset(namespace=lambda ctx: ("owner", ctx.deps))
        self.run(tools, ToolCallPart("save_memory", {"key": "k", "value": "v"}), deps="7")
        assert MemoryStore().get(("owner", "7"), "k") is not None

    def turn(self, store: SessionStore, session_id: str, *calls: ToolCallPart) -> list[Any]:
        """What the tools of `memory_toolset()` answer in a turn of this session."""
        told: list[Any] = []

        def speak(turn: TurnContext) -> str:
            told.extend(self.run(memory_toolset(), *calls))
            return "done"

        store.admit_input(session_id, "go")
        assert SessionRunner(ScriptedAgent([speak])).wake(session_id).kind == "completed"
        return told

    def test_without_a_namespace_it_is_that_of_the_session_s_owner(self, store: SessionStore) -> None:
        users = [get_user_model().objects.create_user(name) for name in ("ada", "grace")]
        for user in users:
            store.create_session(user.username, agent_type="test", owner=user)
            call = ToolCallPart("save_memory", {"key": "name", "value": user.username})
            self.turn(store, user.username, call)
        for user in users:
            found = MemoryStore().get(("owner", str(user.pk)), "name")
            assert found is not None
            assert found.value == {"text": user.username}
            search = ToolCallPart("search_memories", {"query": ""})
            [told] = self.turn(store, user.username, search)
            assert [memory["value"] for memory in told.content] == [{"text": user.username}]

    def test_without_an_owner_the_model_is_told(self, store: SessionStore) -> None:
        store.create_session("s", agent_type="test")
        for call in (
            ToolCallPart("save_memory", {"key": "k", "value": "v"}),
            ToolCallPart("search_memories", {"query": "v"}),
            ToolCallPart("delete_memory", {"key": "k"}),
        ):
            [told] = self.turn(store, "s", call)
            assert "no owner" in str(told.content), call.tool_name
        assert MemoryStore().search(()) == []

    def test_without_a_namespace_and_a_turn_it_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="needs a namespace"):
            self.run(memory_toolset(), ToolCallPart("search_memories", {"query": ""}))

    def test_the_model_is_told_of_what_is_refused(self) -> None:
        [told] = self.run(
            memory_toolset(namespace=HOME), ToolCallPart("save_memory", {"key": "", "value": "x"})
        )
        assert "empty" in str(told.content)


def test_an_export_has_what_frameworks_remember(store: SessionStore) -> None:
    import io

    DjangoStore().put(HOME, "k", {"text": "tea"})
    file = io.StringIO()
    assert store.export_sessions(file).memories == 1
