"""pydantic-ai on our sessions: histories that come back equal, and runs that go on from them."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import (
    BinaryContent,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel

from helix_sessions.exceptions import SessionNotFound, StaleState
from helix_sessions.integrations.pydantic_ai import DjangoHistory
from helix_sessions.store import SessionStore

pytestmark = pytest.mark.django_db(transaction=True)

PICTURE = BinaryContent(b"\x00\xff", media_type="application/pdf")
CALL = ToolCallPart("look", {"q": 1}, "c1")
MESSAGES: list[Any] = [
    ModelRequest(parts=[SystemPromptPart("be brief"), UserPromptPart(["hi", PICTURE])]),
    ModelResponse(parts=[ThinkingPart("hm"), TextPart("hello \u0000 é"), CALL]),
    ModelRequest(parts=[ToolReturnPart("look", {"found": [1, None]}, "c1")]),
    ModelRequest(parts=[SystemPromptPart("be kind")]),
]


def test_messages_come_back_equal(store: SessionStore) -> None:
    saved = DjangoHistory("s", user_id="ada").save(MESSAGES)

    assert saved == 4
    assert DjangoHistory("s").load() == MESSAGES
    assert DjangoHistory("s").load(2) == MESSAGES[-2:]
    roles = [message["role"] for message in store.get_messages("s").messages]
    assert roles == ["user", "assistant", "tool", "system"]
    state = store.load_state("s")
    assert (state.agent_type, state.user_id) == ("pydantic_ai", "ada")


def test_no_session_is_an_empty_history(store: SessionStore) -> None:
    assert DjangoHistory("s").load() == []
    assert not store.session_exists("s")


def test_a_save_on_a_history_that_moved_on_is_refused() -> None:
    first, second = DjangoHistory("s"), DjangoHistory("s")
    assert first.load() == second.load() == []
    first.save(MESSAGES[:1])
    with pytest.raises(StaleState):
        second.save(MESSAGES[:1])
    assert second.load() == MESSAGES[:1]
    second.save(MESSAGES[1:2])
    with pytest.raises(StaleState):
        first.save(MESSAGES[1:2])
    DjangoHistory("s").save(MESSAGES[2:3])  # without a load there is nothing to compare with
    assert len(DjangoHistory("s").load()) == 3


def test_messages_of_others_are_read_too(store: SessionStore) -> None:
    store.create_session("s", agent_type="a")
    store.append_messages("s", [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}])

    request, response = DjangoHistory("s").load()
    assert [part.content for part in (*request.parts, *response.parts)] == ["hi", "ho"]


def test_another_owners_session_is_not_there(django_user_model: Any) -> None:
    ada, bob = (django_user_model.objects.create_user(name) for name in ("ada", "bob"))
    DjangoHistory("s", store=SessionStore(owned_by=ada)).save(MESSAGES)
    theirs = DjangoHistory("s", store=SessionStore(owned_by=bob))
    assert theirs.load() == []
    with pytest.raises(SessionNotFound):
        theirs.save(MESSAGES)


def test_a_run_that_waits_for_approval_is_resumed_from_the_history() -> None:
    def scripted(messages: list[Any], info: Any) -> ModelResponse:
        last = messages[-1].parts[-1]
        if isinstance(last, ToolReturnPart):
            return ModelResponse(parts=[TextPart(f"done: {last.content}")])
        return ModelResponse(parts=[ToolCallPart("delete", {"name": "file"}, "c1")])

    def build() -> Any:
        agent = Agent(FunctionModel(scripted), output_type=[str, DeferredToolRequests])

        @agent.tool_plain(requires_approval=True)
        def delete(name: str) -> str:
            return f"{name} deleted"

        return agent

    history = DjangoHistory("s")
    waiting = build().run_sync("Delete it", message_history=history.load())
    history.save(waiting.new_messages())
    assert [call.tool_call_id for call in waiting.output.approvals] == ["c1"]

    @async_to_sync
    async def elsewhere() -> Any:
        history = DjangoHistory("s")
        result = await build().run(
            message_history=await history.aload(),
            deferred_tool_results=DeferredToolResults(approvals={"c1": True}),
        )
        await history.asave(result.new_messages())
        return result.output

    assert elsewhere() == "done: file deleted"
    assert isinstance(DjangoHistory("s").load()[-1], ModelResponse)
