"""The OpenAI Agents SDK on our sessions: its protocol, its runner, its items exactly as given."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from agents import Agent, ModelResponse, RunConfig, Runner, SessionSettings, Usage, function_tool
from agents.extensions.memory.encrypt_session import EncryptedSession
from agents.memory import OpenAIResponsesCompactionSession
from agents.memory import Session as SessionProtocol
from agents.models.interface import Model
from asgiref.sync import async_to_sync
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from helix_sessions.exceptions import InvalidDocument, InvalidInput, SessionNotFound
from helix_sessions.integrations.openai_agents import DjangoSession, message_of
from helix_sessions.integrations.openai_agents import items_of as as_items
from helix_sessions.store import SessionStore
from helix_sessions.transcripts import open_tool_calls

pytestmark = pytest.mark.django_db(transaction=True)

CALL = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "look", "arguments": '{"q": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "found"}
ITEMS: list[Any] = [
    {"role": "user", "content": "hi"},
    {"content": [{"type": "input_text", "text": "\u0000 é"}], "role": "user", "type": "message"},
    {"id": "rs", "summary": [], "type": "reasoning", "encrypted_content": None},
    CALL,
    OUTPUT,
    {"role": "developer", "content": "be brief"},
    {"role": "system", "content": "be kind"},
    {"role": "tool", "content": "not ours", "tool_call_id": "x"},
    {"role": "user", "content": "with an item", "item": {"a": 1}},
    {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": []},
    {"type": "item_reference", "id": "m"},
    {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
    {"type": "compaction", "encrypted_content": "…", "big": 10**30},
    {"anything": None},
]


def add(session: DjangoSession, *items: Any) -> None:
    async_to_sync(session.add_items)(list(items))


def items_of(session: DjangoSession, limit: int | None = None) -> list[Any]:
    return async_to_sync(session.get_items)(limit)


def test_it_is_a_session_of_the_sdk() -> None:
    assert isinstance(DjangoSession("s"), SessionProtocol)


def test_items_come_back_exactly_as_given() -> None:
    session = DjangoSession("s")
    add(session, *ITEMS)

    found = items_of(session)

    assert found == ITEMS
    assert [list(item) for item in found] == [list(item) for item in ITEMS]  # the keys in their order


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.sampled_from(["role", "type", "item", "content", "call_id", "name", "tool_calls", "x"]),
        st.sampled_from(["user", "tool", "function_call", "function_call_output", "developer", None])
        | st.dictionaries(st.sampled_from(["type", "role"]), st.just("function_call")),
    )
)
def test_any_object_is_an_item(item: dict[str, Any]) -> None:
    message = message_of(item)

    assert message["role"] in ("user", "assistant", "tool", "system")
    assert as_items(message, is_foreign=False) == [item]
    open_tool_calls([message])


def test_the_latest_items_are_asked_for_by_a_limit() -> None:
    session = DjangoSession("s", session_settings=SessionSettings(limit=2))
    add(session, *ITEMS)

    assert items_of(session) == ITEMS[-2:]
    assert items_of(session, 5) == ITEMS[-5:]
    assert items_of(session, 99) == ITEMS
    assert items_of(session, 0) == []
    assert items_of(session, -1) == ITEMS


def test_settings_may_be_a_dict() -> None:
    session = DjangoSession("s", session_settings={"limit": 2})
    add(session, *ITEMS)

    assert session.session_settings == SessionSettings(limit=2)
    assert items_of(session) == ITEMS[-2:]
    session.session_settings = {"limit": 1}  # type: ignore[assignment]
    assert items_of(session) == ITEMS[-1:]
    assert DjangoSession("s").session_settings == SessionSettings()
    with pytest.raises(TypeError, match="limitt"):
        DjangoSession("s", session_settings={"limitt": 1})


def test_a_closed_session_is_not_used_again(store: SessionStore) -> None:
    session = DjangoSession("s")
    add(session, *ITEMS[:2])
    session.close()
    session.close()

    calls = (lambda: session.add_items([]), session.get_items, session.pop_item, session.clear_session)
    for call in calls:
        with pytest.raises(RuntimeError, match="DjangoSession is closed"):
            async_to_sync(call)()
    assert items_of(DjangoSession("s")) == ITEMS[:2]


def test_a_cancelled_write_ends_when_it_is_decided(store: SessionStore) -> None:
    began, go_on = threading.Event(), threading.Event()

    class Slow(SessionStore):
        def append_messages(self, *args: Any, **kwargs: Any) -> Any:
            began.set()
            assert go_on.wait(10)
            return super().append_messages(*args, **kwargs)

    store.create_session("s", agent_type="openai_agents")

    async def cancel_while_it_writes() -> list[Any]:
        task = asyncio.create_task(DjangoSession("s", store=Slow()).add_items([ITEMS[0]]))
        await asyncio.to_thread(began.wait, 10)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await DjangoSession("s").get_items()

    assert asyncio.run(cancel_while_it_writes()) == ITEMS[:1]


def test_an_encrypted_session_keeps_only_envelopes_here(store: SessionStore) -> None:
    inner = DjangoSession("s", session_settings={"limit": 2})
    session: Any = EncryptedSession("s", cast(Any, inner), encryption_key="secret", ttl=600)
    async_to_sync(session.add_items)(ITEMS[:4])

    assert async_to_sync(session.get_items)() == ITEMS[2:4]
    assert async_to_sync(session.get_items)(-1) == ITEMS[:4]
    assert all(set(item) == {"__enc__", "v", "kid", "payload"} for item in items_of(inner, -1))
    assert async_to_sync(session.pop_item)() == ITEMS[3]
    other: Any = EncryptedSession("s", cast(Any, inner), encryption_key="another", ttl=600)
    assert async_to_sync(other.get_items)() == []
    async_to_sync(session.clear_session)()
    assert store.get_message_count("s") == 0


def test_the_sdks_compaction_replaces_the_history(store: SessionStore) -> None:
    summary = {"type": "compaction", "encrypted_content": "…"}

    class Responses:
        async def compact(self, **asked: Any) -> Any:
            assert asked["input"] == ITEMS[:1]
            return SimpleNamespace(output=[summary], usage=None)

    client: Any = SimpleNamespace(responses=Responses())
    session = OpenAIResponsesCompactionSession("s", DjangoSession("s"), client=client, model="gpt-5")
    async_to_sync(session.add_items)(ITEMS[:1])
    async_to_sync(session.run_compaction)({"force": True, "compaction_mode": "input"})

    assert items_of(DjangoSession("s")) == [summary]
    assert store.get_events("s", types=["user_message"])[0].data == ITEMS[0]


def test_a_session_begins_with_its_first_item(store: SessionStore) -> None:
    session = DjangoSession("s", user_id="ada", tags=["vip"], metadata={"plan": "pro"})
    add(session)

    assert items_of(session) == []
    assert async_to_sync(session.pop_item)() is None
    async_to_sync(session.clear_session)()
    assert not store.session_exists("s")

    add(session, ITEMS[0])
    state = store.load_state("s")
    assert (state.agent_type, state.user_id, state.tags) == ("openai_agents", "ada", ("vip",))
    assert state.message_count == 1


def test_one_item_that_cannot_be_stored_stores_none(store: SessionStore) -> None:
    session = DjangoSession("s")
    add(session, ITEMS[0])
    with pytest.raises(InvalidDocument):
        add(session, ITEMS[1], {"role": "user", "content": float("nan")})
    with pytest.raises(InvalidInput):
        add(session, ITEMS[1], "hello")

    assert items_of(session) == ITEMS[:1]


def test_popping_takes_the_latest_item(store: SessionStore) -> None:
    session = DjangoSession("s")
    add(session, *ITEMS[:3])

    popped = [async_to_sync(session.pop_item)() for _ in range(4)]

    assert popped == [*ITEMS[2::-1], None]
    assert store.get_message_count("s") == 0
    add(session, ITEMS[3])
    assert items_of(session) == [ITEMS[3]]


def test_each_of_many_poppers_gets_another_item(store: SessionStore, run_threads: Any) -> None:
    add(DjangoSession("s"), *({"role": "user", "content": str(number)} for number in range(24)))

    def pop_three(_: int) -> list[Any]:
        session = DjangoSession("s")
        return [async_to_sync(session.pop_item)() for _ in range(3)]

    popped = [item["content"] for items in run_threads(4, pop_three) for item in items]

    assert sorted(popped, key=int) == [str(number) for number in range(12, 24)]
    assert store.get_message_count("s") == 12


def test_clearing_keeps_the_session_and_its_log(store: SessionStore) -> None:
    session = DjangoSession("s")
    add(session, *ITEMS)
    async_to_sync(session.clear_session)()

    assert items_of(session) == []
    assert store.get_events("s", types=["user_message"])[0].data == ITEMS[0]


def test_calls_and_outputs_are_known_to_the_transcript(store: SessionStore) -> None:
    session = DjangoSession("s")
    add(session, ITEMS[0], CALL)
    assert open_tool_calls(store.get_messages("s").messages) == [
        {"id": "c1", "name": "look", "arguments": {"q": 1}}
    ]

    store.wake("s")  # the process died before the tool answered

    healed = items_of(session)[-1]
    assert healed == {
        "type": "function_call_output",
        "call_id": "c1",
        "output": "Tool execution interrupted",
    }
    store.wake("s")
    assert len(items_of(session)) == 3


def test_messages_of_others_are_items_too(store: SessionStore) -> None:
    session = DjangoSession("s")
    add(session, CALL)
    store.append_messages("s", [{"role": "tool", "tool_call_id": "c1", "content": {"n": 1}}])
    store.append_messages("s", [{"role": "user", "content": "from the API"}])

    assert items_of(session)[1:] == [
        {"type": "function_call_output", "call_id": "c1", "output": '{"n":1}'},
        {"role": "user", "content": "from the API"},
    ]


def test_another_owners_session_is_not_there(django_user_model: Any) -> None:
    ada, bob = (django_user_model.objects.create_user(name) for name in ("ada", "bob"))
    mine = DjangoSession("s", store=SessionStore(owned_by=ada))
    theirs = DjangoSession("s", store=SessionStore(owned_by=bob))
    add(mine, ITEMS[0])

    assert items_of(theirs) == []
    assert async_to_sync(theirs.pop_item)() is None
    with pytest.raises(SessionNotFound):
        add(theirs, ITEMS[1])
    async_to_sync(theirs.clear_session)()
    assert items_of(mine) == ITEMS[:1]


class Scripted(Model):
    """Calls a tool, then says what it was told; remembers what it was asked."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        self.inputs.append(input)
        if input[-1].get("type") == "function_call_output":
            text = ResponseOutputText(type="output_text", text=input[-1]["output"], annotations=[])
            said: Any = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text]
            )
        else:
            said = ResponseFunctionToolCall(
                type="function_call", call_id=f"c{len(input)}", name="double", arguments='{"n": 21}'
            )
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def test_the_sdks_runner_remembers_from_turn_to_turn(store: SessionStore) -> None:
    @function_tool
    def double(n: int) -> str:
        return str(2 * n)

    model = Scripted()
    agent = Agent(name="A", model=model, tools=[double])

    @async_to_sync
    async def ask(question: str) -> Any:
        config = RunConfig(tracing_disabled=True)
        return (await Runner.run(agent, question, session=DjangoSession("s"), run_config=config)).final_output

    assert ask("Twice 21?") == "42"
    assert ask("Again?") == "42"

    kinds = [item.get("type", item.get("role")) for item in model.inputs[-1]]
    turn = ["user", "function_call", "function_call_output"]
    assert kinds == [*turn, "message", *turn]
    assert model.inputs[-1] == items_of(DjangoSession("s"))[:-1]
    summary = store.list_sessions(agent_type="openai_agents").items[0]
    assert (summary.session_id, summary.message_count) == ("s", 8)
