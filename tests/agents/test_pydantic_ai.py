"""pydantic-ai's features, each under our loop."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from asgiref.sync import async_to_sync, sync_to_async

pytest.importorskip("pydantic_ai")

from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    BinaryContent,
    ImageUrl,
    ModelRetry,
    ModelSettings,
    NativeOutput,
    PromptedOutput,
    RunContext,
    TextOutput,
    ToolOutput,
)
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    FilePart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

from helix_sessions.agents import current_turn, durable
from helix_sessions.exceptions import TransientError
from helix_sessions.runtime import (
    AgentDefinition,
    ChangeModel,
    ChangeSystemPrompt,
    RetryPolicy,
    SessionRunner,
    SessionRuntime,
)
from helix_sessions.store import SessionStore
from helix_sessions.types import Fragment
from tests.agents.models import Script, call, kinds, streaming

pytestmark = pytest.mark.django_db(transaction=True)


class City(BaseModel):
    name: str
    people: int


@dataclass
class Land:
    name: str


def turned(agent: Any, prompt: Any = "go", session: str = "s") -> Any:
    return durable(agent, name="writer").run(session, prompt)


class TestInstructions:
    def test_static_and_dynamic_ones_and_those_of_the_session(self, store: SessionStore) -> None:
        script = Script("one", "two")
        agent = Agent(script.model, name="writer", instructions="Be kind.")

        @agent.instructions
        def today() -> str:
            return f"The session is {current_turn().session_id}."

        SessionRuntime(store).create(AgentDefinition("writer", system_prompt="And brief."), session_id="s")
        assert turned(agent).output == "one"
        said = script.infos[0].instructions
        assert said is not None
        assert [said.index(text) for text in ("Be kind.", "The session is s.", "And brief.")] == sorted(
            said.index(text) for text in ("Be kind.", "The session is s.", "And brief.")
        )
        SessionRuntime(store).execute("s", ChangeSystemPrompt("Or long."))
        turned(agent)
        assert "Or long." in str(script.infos[1].instructions)
        assert "And brief." not in str(script.infos[1].instructions)

    def test_system_prompts_are_there_on_every_turn(self, store: SessionStore) -> None:
        script = Script([call("look")], "done", "again")
        agent = Agent(script.model, system_prompt="You are old.")
        agent.tool_plain(look)
        turned(agent)
        turned(agent)
        for asked in script.asked:
            assert kinds(asked)[0][0] == "system-prompt"
            assert sum("system-prompt" in parts for parts in kinds(asked)) == 1

    def test_a_history_processor_sees_the_whole_history(self, store: SessionStore) -> None:
        script = Script("one", "two", "three")
        seen: list[int] = []

        def last(messages: list[ModelMessage]) -> list[ModelMessage]:
            seen.append(len(messages))
            return messages[-1:]

        agent = Agent(script.model, capabilities=[ProcessHistory(last)])
        for prompt in ("a", "b", "c"):
            turned(agent, prompt)
        assert seen == [1, 3, 5]
        assert [len(asked) for asked in script.asked] == [1, 1, 1]
        assert store.get_message_count("s") == 6

    def test_model_settings_reach_the_model(self, store: SessionStore) -> None:
        script = Script("one")
        turned(Agent(script.model, model_settings=ModelSettings(temperature=0.3)))
        assert script.infos[0].model_settings == {"temperature": 0.3}

    def test_the_model_of_the_definition_is_that_of_the_next_turn(self, store: SessionStore) -> None:
        agent = Agent(Script("one").model)
        turned(agent)
        SessionRuntime(store).execute("s", ChangeModel("test"))
        assert turned(agent).output == "success (no tool calls)"
        models = [m.get("model") for m in store.get_messages("s").messages if m["role"] == "assistant"]
        assert models[1] == "test" != models[0]


def look() -> str:
    return "seen"


def looking(seen: list[str]) -> Any:
    def look() -> str:
        seen.append("s")
        return "seen"

    return look


def shout(text: str) -> str:
    return text.upper()


class TestOutput:
    def test_in_every_mode(self, store: SessionStore) -> None:
        text = json.dumps({"name": "Bern", "people": 5})
        tool = [call("final_result", name="Bern", people=5)]
        land = [call("final_result_Land", name="CH")]
        modes: dict[str, tuple[Any, Any, Any]] = {
            "text": (str, "Bern", "Bern"),
            "tool": (City, tool, {"name": "Bern", "people": 5}),
            "named tool": (
                ToolOutput(City, name="say"),
                [call("say", name="B", people=1)],
                {"name": "B", "people": 1},
            ),
            "native": (NativeOutput(City), text, {"name": "Bern", "people": 5}),
            "prompted": (PromptedOutput(City), text, {"name": "Bern", "people": 5}),
            "union": ([City, Land], land, {"name": "CH"}),
            "or text": ([City, str], "Bern", "Bern"),
            "function": (TextOutput(shout), "Bern", "BERN"),
            "list": (list[int], [call("final_result", response=[1, 2])], [1, 2]),
        }
        for mode, (output_type, line, output) in modes.items():
            outcome = turned(Agent(Script(line).model, output_type=output_type), session=mode)
            assert (outcome.kind, outcome.output) == ("completed", output), mode
            assert store.get_run(mode, outcome.run.run_id).output == output
            messages = store.get_messages(mode).messages
            assert len(messages) == (3 if isinstance(line, list) else 2)
            assert not any(message.get("is_error") for message in messages)

    def test_an_invalid_one_is_asked_for_again(self, store: SessionStore) -> None:
        """Once for each of the framework's retries, and each request is a turn."""
        script = Script(
            [call("final_result", name="Bern")], [call("final_result", "call-2", name="B", people=1)]
        )
        outcome = turned(Agent(script.model, output_type=City))
        assert outcome.output == {"name": "B", "people": 1}
        assert outcome.run.step_count == 2
        assert [m.get("is_error") for m in store.get_messages("s").messages] == [None, None, True, None, None]
        assert "Field required" in script.text()

    def test_of_text_too(self, store: SessionStore) -> None:
        script = Script("no JSON", json.dumps({"name": "B", "people": 1}))
        outcome = turned(Agent(script.model, output_type=NativeOutput(City)))
        assert (outcome.kind, outcome.output, outcome.run.step_count) == (
            "completed",
            {"name": "B", "people": 1},
            2,
        )
        roles = [message["role"] for message in store.get_messages("s").messages]
        assert roles == ["user", "assistant", "user", "assistant"]

    def test_one_that_stays_invalid_fails_the_run(self, store: SessionStore) -> None:
        for mode, output_type, line in (
            ("tool", City, [call("final_result", name="Bern")]),
            ("native", NativeOutput(City), "no JSON"),
        ):
            script = Script(line, line, line, "never asked for")
            agent = Agent(script.model, output_type=output_type, retries={"output": 2})
            outcome = turned(agent, session=mode)
            assert outcome.kind == "failed"
            assert outcome.error["code"] == "output_invalid"
            assert len(script.asked) == 3
            assert store.get_usage(mode).input_tokens > 0
            assert store.get_messages(mode).messages[-1]["role"] in ("assistant", "tool")

    def test_validators(self, store: SessionStore) -> None:
        script = Script("short", "long enough")
        agent = Agent(script.model)

        @agent.output_validator
        def long(ctx: RunContext, output: str) -> str:
            if len(output) < 8:
                raise ModelRetry("It is too short.")
            return output.upper()

        assert turned(agent).output == "LONG ENOUGH"
        assert "too short" in script.text()

    def test_with_function_tools_in_the_same_response(self, store: SessionStore) -> None:
        """`graceful` executes them and ends, `early` skips them; an error of one asks the model again."""
        both = [call("look", "call-1"), call("final_result", "call-2", name="B", people=1)]
        for strategy, ran in (("graceful", ["s"]), ("early", [])):
            seen: list[str] = []
            agent = Agent(Script(both).model, output_type=City, end_strategy=strategy)  # type: ignore[call-overload]
            agent.tool_plain(name="look")(looking(seen))
            outcome = turned(agent, session=strategy)
            assert (outcome.kind, outcome.output) == ("completed", {"name": "B", "people": 1})
            assert seen == ran
            assert len(store.get_messages(strategy).messages) == 4
        script = Script(both, [call("final_result", "call-3", name="C", people=2)])
        agent = Agent(script.model, output_type=City)

        @agent.tool_plain(name="look")
        def failing() -> str:
            raise ModelRetry("Look again.")

        assert turned(agent, session="retried").output == {"name": "C", "people": 2}
        assert "Look again." in script.text()


class TestParts:
    def test_every_part_comes_back_exactly(self, store: SessionStore) -> None:
        response = ModelResponse(
            parts=[
                ThinkingPart("Hm.", signature="c2ln", provider_name="p", id="t-1"),
                TextPart("Let me look."),
                NativeToolCallPart("web_search", {"query": "x"}, "n-1", provider_name="p"),
                NativeToolReturnPart("web_search", {"found": [1]}, "n-1", provider_name="p"),
                FilePart(BinaryContent(b"\x00\x01png", media_type="image/png")),
                ToolCallPart("look", '{"a": 1}', "call-1"),
            ],
            usage=RequestUsage(input_tokens=7, output_tokens=3, details={"reasoning_tokens": 2}),
            provider_details={"k": "v"},
        )
        script = Script(response, "done", "again")
        agent = Agent(script.model)

        @agent.tool_plain(name="look")
        def _look(a: int) -> Any:
            return {"a": a, "list": [1, None, "é"]}

        turned(agent)
        turned(agent, "again")
        for asked in script.asked[1:]:
            known = asked[1]
            assert isinstance(known, ModelResponse)
            assert _dumped(known.parts) == _dumped(response.parts)
            assert (known.usage, known.provider_details) == (response.usage, {"k": "v"})
            part: Any = asked[2].parts[0]
            assert (part.content, part.tool_call_id) == ({"a": 1, "list": [1, None, "é"]}, "call-1")
        shown = store.get_messages("s").messages
        assert shown[1]["content"] == "Let me look."
        assert shown[1]["tool_calls"] == [{"id": "call-1", "name": "look", "arguments": {"a": 1}}]
        assert shown[2]["tool_call_id"] == "call-1"
        assert shown[2]["content"] == {"a": 1, "list": [1, None, "é"]}
        assert store.get_usage("s").reasoning_tokens == 2

    def test_files_and_urls_of_a_prompt(self, store: SessionStore) -> None:
        script = Script("a", "b")
        content = [
            "What is this?",
            BinaryContent(b"\x89PNG", media_type="image/png"),
            ImageUrl("https://x.test/i.png"),
        ]
        agent = Agent(script.model)
        turned(agent, content)
        part: Any = script.asked[0][0].parts[0]
        assert part.content[0] == "What is this?"
        assert (part.content[1].data, part.content[2].url) == (b"\x89PNG", "https://x.test/i.png")
        blocks = [
            {"type": "text", "text": "And this?"},
            {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lG"}},
        ]
        turned(agent, {"content": blocks})
        part = script.asked[1][-1].parts[0]
        assert (part.content[0], part.content[1].data, part.content[1].media_type) == (
            "And this?",
            b"GIF",
            "image/gif",
        )

    def test_what_others_said_comes_as_text_calls_and_results(self, store: SessionStore) -> None:
        store.create_session("s", agent_type="writer")
        store.append_messages(
            "s",
            [
                {"role": "system", "content": "Rules."},
                {"role": "user", "content": "Hi."},
                {
                    "role": "assistant",
                    "content": "I look.",
                    "tool_calls": [{"id": "c", "name": "look", "arguments": {"a": 1}}],
                },
                {
                    "role": "tool",
                    "tool_call_id": "c",
                    "tool_name": "look",
                    "content": {"x": 1},
                    "is_error": True,
                },
                {"role": "assistant", "content": "Stopped", "interrupted": True},
            ],
        )
        script = Script("done")
        turned(Agent(script.model))
        assert kinds(script.asked[0]) == [
            ("system-prompt", "user-prompt"),
            ("text", "tool-call"),
            ("tool-return",),
            ("text",),
            ("user-prompt",),
        ]

    def test_a_stored_history_of_the_adapter_goes_on_under_the_loop_and_back(
        self, store: SessionStore
    ) -> None:
        from helix_sessions.integrations.pydantic_ai import DjangoHistory

        script = Script("one", [call("look")], "two")
        agent = Agent(script.model)
        agent.tool_plain(look)
        history = DjangoHistory("s", agent_type="writer")
        history.save(agent.run_sync("hello", message_history=history.load()).new_messages())
        turned(agent, "go on")
        assert kinds(script.asked[1]) == [("user-prompt",), ("text",), ("user-prompt",)]
        assert kinds(DjangoHistory("s").load())[-2:] == [("tool-return",), ("text",)]


def _dumped(parts: Any) -> Any:
    return ModelMessagesTypeAdapter.dump_python([ModelResponse(parts=list(parts))], mode="json")[0]["parts"]


class TestStreams:
    def test_text_thinking_and_arguments_are_fragments(self, store: SessionStore) -> None:
        pieces = [
            {0: DeltaThinkingPart(content="Hm")},
            {0: DeltaThinkingPart(content="m.")},
            "Let me ",
            "look.",
            {2: DeltaToolCall(name="final_result", json_args='{"name": "B', tool_call_id="call-1")},
            {2: DeltaToolCall(json_args='ern", "people": 1}')},
        ]
        agent = Agent(streaming(*pieces), output_type=City)

        async def collect() -> list[Any]:
            return [each async for each in durable(agent, name="writer").astream("s", "go")]

        found = async_to_sync(collect)()
        data: list[Any] = [each.data for each in found if isinstance(each, Fragment)]
        assert "".join(each.get("thinking", "") for each in data) == "Hmm."
        assert "".join(each.get("text", "") for each in data) == "Let me look."
        asked = [each for each in data if "arguments" in each]
        assert {(each["tool_call_id"], each["tool_name"]) for each in asked} == {("call-1", "final_result")}
        assert json.loads("".join(each["arguments"] for each in asked)) == {"name": "Bern", "people": 1}
        types = [each.type for each in found if not isinstance(each, Fragment)]
        assert types[0] == "input_admitted"
        assert types.index("assistant_message") < types.index("run_finished")
        texts = [number for number, each in enumerate(found) if isinstance(each, Fragment)]
        said = next(n for n, each in enumerate(found) if getattr(each, "type", "") == "assistant_message")
        assert max(texts) < said

    def test_a_stop_keeps_what_was_said(self, store: SessionStore) -> None:
        async def stream(messages: Any, info: Any) -> Any:
            yield "Once upon "
            yield "a time"
            await sync_to_async(store.set_interrupt_flag)("s", "enough")
            for _ in range(2000):
                await asyncio.sleep(0.005)
                yield "."

        agent = durable(Agent(FunctionModel(stream_function=stream)), name="writer")
        outcome = async_to_sync(agent.arun)("s", "go")
        assert outcome.kind == "interrupted"
        message = store.get_messages("s").messages[-1]
        assert message["interrupted"] is True
        assert message["content"].startswith("Once upon a time")


class TestErrors:
    def error(self, status: int, **headers: str) -> ModelHTTPError:
        response = httpx.Response(status, headers=headers, request=httpx.Request("POST", "https://x.test"))
        error = ModelHTTPError(status, "m", {"error": "e"})
        error.__cause__ = httpx.HTTPStatusError("e", request=response.request, response=response)
        return error

    def test_transient_ones_are_tried_again(self, store: SessionStore) -> None:
        quick = RetryPolicy(max_attempts=2, initial=0.01)
        for status in (408, 409, 425, 429, 500, 502, 503, 529):
            script = Script(self.error(status), "done")
            outcome = durable(Agent(script.model), name="w", retry=quick).run(f"s{status}", "go")
            assert outcome.kind == "completed", status
        for number, error in enumerate(
            (httpx.ConnectError("gone"), httpx.ReadTimeout("slow"), ConnectionError("x"))
        ):
            outcome = durable(Agent(Script(error, "done").model), name="w", retry=quick).run(
                f"e{number}", "go"
            )
            assert outcome.kind == "completed", error

    def test_others_fail_the_run(self, store: SessionStore) -> None:
        for status in (400, 401, 404, 422):
            outcome = turned(Agent(Script(self.error(status)).model), session=f"s{status}")
            assert (outcome.kind, outcome.error["type"]) == ("failed", "ModelHTTPError")

    def test_retry_after_is_honoured(self, store: SessionStore) -> None:
        from helix_sessions.agents.pydantic_ai.errors import translated

        for asked, wait in (("7", 7.0), (None, None), ("soon", None), ("1e400", None)):
            error = translated(self.error(429, **({} if asked is None else {"Retry-After": asked})))
            assert isinstance(error, TransientError)
            assert error.retry_after == wait

    def test_usage_limits_count_the_run(self, store: SessionStore) -> None:
        """The framework's own limit of requests holds across turns."""
        script = Script(*[[call("look", f"c{number}")] for number in range(60)])
        agent = Agent(script.model)
        agent.tool_plain(look)
        store.create_session("s", agent_type="writer")
        store.admit_input("s", "go")
        outcome = SessionRunner(agent, turn_limit=100).wake("s")
        assert (outcome.kind, outcome.error["code"]) == ("failed", "usage_limit_exceeded")
        assert len(script.asked) == 50


class TestUsage:
    def test_cost_comes_from_genai_prices(self, store: SessionStore) -> None:
        usage = RequestUsage(input_tokens=1000, output_tokens=100, cache_read_tokens=10, cache_write_tokens=5)
        response = ModelResponse(parts=[TextPart("x")], usage=usage, provider_name="openai")
        turned(Agent(FunctionModel(Script(response).says, model_name="gpt-4o")))
        used = store.get_usage("s")
        assert (used.input_tokens, used.output_tokens) == (1000, 100)
        assert (used.cache_read_tokens, used.cache_write_tokens) == (10, 5)
        assert used.cost > 0

    def test_a_model_nobody_prices_costs_nothing(self, store: SessionStore) -> None:
        outcome = turned(Agent(TestModel()))
        assert (outcome.kind, store.get_usage("s").cost) == ("completed", 0)
