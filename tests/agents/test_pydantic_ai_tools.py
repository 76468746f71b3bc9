"""The tools of pydantic-ai's agents: our loop executes them, or leaves them to clients and to people."""

# mypy: disable-error-code="arg-type,index,literal-required,misc,type-arg,union-attr,untyped-decorator"

import asyncio
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from asgiref.sync import async_to_sync, sync_to_async
from pydantic_ai import Agent, ModelRetry, RunContext, Tool, ToolReturn
from pydantic_ai.capabilities import HandleDeferredToolCalls, Hooks, NativeTool
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_ai.messages import BinaryContent
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.tools import DeferredToolRequests, ToolDefinition
from pydantic_ai.toolsets import ApprovalRequiredToolset, ExternalToolset, FunctionToolset

from helix_sessions.agents import ToolOptions, current_turn, durable
from helix_sessions.exceptions import NotConfigured
from helix_sessions.models import Session
from helix_sessions.runtime import SessionRunner, Spawn, ToolResult
from helix_sessions.store import SessionStore
from tests.agents.models import Script, call

pytestmark = pytest.mark.django_db(transaction=True)


def run(agent: Any, session: str = "s", **options: Any) -> Any:
    return durable(agent, name="writer", **options).run(session, "go")


def noting(seen: list[str]) -> Any:
    """A tool that notes when it begins and when it ends."""

    async def work(ctx: RunContext) -> str:
        seen.append(f"{ctx.tool_name} {ctx.tool_call_id}")
        await asyncio.sleep(0.05)
        seen.append(f"end {ctx.tool_call_id}")
        return "done"

    return work


def results(store: SessionStore, session: str = "s") -> list[tuple[Any, bool]]:
    messages = store.get_messages(session).messages
    return [(m["content"], m.get("is_error", False)) for m in messages if m["role"] == "tool"]


def answered(store: SessionStore, session: str = "s", **answer: Any) -> None:
    for call_id in store.load_state(session).pending_client_tool_calls:
        store.submit_tool_result(session, call_id, **answer)


class TestExecution:
    def test_our_loop_logs_a_call_before_it_runs(self, store: SessionStore) -> None:
        agent = Agent(Script([call("pay", amount=5)], "done").model)
        seen: list[Any] = []

        @agent.tool_plain
        def pay(amount: int) -> ToolResult:
            turn = current_turn()
            logged = store.get_events("s", types=["tool_called"])
            seen.append((turn.session_id, turn.tool_call_id, turn.tool_name, len(logged), amount))
            seen.append(turn.idempotency_key)
            turn.emit("paid", {"amount": amount})
            return ToolResult("paid", [{"op": "set", "path": ["paid"], "value": amount}])

        assert run(agent).kind == "completed"
        assert seen[0] == ("s", "call-1", "pay", 1, 5)
        assert seen[1]
        assert results(store) == [("paid", False)]
        assert store.load_state("s").custom_state == {"paid": 5}
        (event,) = store.get_events("s", types=["paid"])
        assert event.turn_id
        (responded,) = store.get_events("s", types=["tool_responded"])
        assert responded.data["result"] == "paid"

    def test_the_current_turn_is_known_in_threads_and_tasks(self, store: SessionStore) -> None:
        seen: dict[str, str] = {}
        agent = Agent(Script([call("plain", "a"), call("asynchronous", "b")], "done").model)

        @agent.tool_plain
        def plain() -> str:
            seen["plain"] = current_turn().session_id
            return str(Session.objects.count())

        @agent.tool_plain
        async def asynchronous() -> int:
            async def inner() -> str:
                return current_turn().session_id

            seen["task"] = await asyncio.create_task(inner())
            seen["thread"] = await asyncio.to_thread(lambda: current_turn().session_id)
            seen["django"] = await sync_to_async(lambda: current_turn().session_id)()
            await current_turn().emit("noted", {})
            return await Session.objects.acount()

        for way, session in (("sync", "s1"), ("async", "s2")):
            seen.clear()
            script = Script([call("plain", "a"), call("asynchronous", "b")], "done")
            driven = durable(agent, name="writer")
            with agent.override(model=script.model):
                if way == "sync":
                    outcome = driven.run(session, "go")
                else:
                    outcome = async_to_sync(driven.arun)(session, "go")
            assert outcome.kind == "completed"
            assert set(seen.values()) == {session}
            assert len(seen) == 4
            assert len(store.get_events(session, types=["noted"])) == 1
        with pytest.raises(LookupError):
            current_turn()

    def test_synchronous_callers_share_an_event_loop_that_lasts(self, store: SessionStore) -> None:
        """What a framework keeps between calls is bound to it: a client's connections, say."""
        loops: list[Any] = []
        agent = Agent(Script([call("note", "a")], "one", [call("note", "a")], "two").model)

        @agent.tool_plain
        async def note() -> int:
            loops.append(asyncio.get_running_loop())
            return len(loops)

        run(agent, "s1")
        run(agent, "s2")
        assert loops[0] is loops[1]
        assert not loops[0].is_closed()

    def test_two_calls_run_side_by_side(self, store: SessionStore) -> None:
        both = threading.Barrier(2, timeout=20)
        agent = Agent(Script([call("meet", "a"), call("meet", "b")], "done").model)

        @agent.tool_plain
        def meet() -> str:
            both.wait()
            return "met"

        assert run(agent).kind == "completed"
        assert results(store) == [("met", False), ("met", False)]

    def test_a_sequential_tool_runs_alone_and_in_order(self, store: SessionStore) -> None:
        for way in ("sync", "async"):
            seen: list[str] = []
            names = ("free", "alone", "alone", "free", "free")
            calls = [call(name, f"c{number}") for number, name in enumerate(names)]
            agent = Agent(Script(calls, "done").model)

            agent.tool(name="free")(noting(seen))
            agent.tool(name="alone", sequential=True)(noting(seen))
            driven = durable(agent, name="writer")
            kind = (driven.run if way == "sync" else async_to_sync(driven.arun))(way, "go").kind
            assert kind == "completed"
            assert [line for line in seen if line.startswith("alone")] == ["alone c1", "alone c2"]
            assert seen[:6] == ["free c0", "end c0", "alone c1", "end c1", "alone c2", "end c2"]
            assert {*seen[6:8]} == {"free c3", "free c4"}

    def test_bad_arguments_and_unknown_tools_are_errors_the_model_can_mend(self, store: SessionStore) -> None:
        ran: list[int] = []
        script = Script(
            [call("pay", "a", amount="much"), call("nothing", "b"), call("pay", "c", amount=1)],
            [call("pay", "d", amount=2)],
            "done",
        )
        agent = Agent(script.model)

        @agent.tool_plain
        def pay(amount: int) -> int:
            ran.append(amount)
            return amount

        assert run(agent).kind == "completed"
        assert ran == [1, 2]
        assert [is_error for _, is_error in results(store)] == [True, True, False, False]
        assert "valid integer" in script.text(1)
        called = store.get_events("s", types=["tool_called"])
        assert [event.data["tool_call_id"] for event in called] == ["c", "d"]

    def test_validators_of_arguments_come_first(self, store: SessionStore) -> None:
        ran: list[int] = []

        def even(ctx: RunContext, amount: int) -> None:
            if amount % 2:
                raise ModelRetry("Even amounts only.")

        def pay(amount: int) -> int:
            ran.append(amount)
            return amount

        agent = Agent(
            Script([call("pay", amount=1)], [call("pay", "b", amount=2)], "done").model,
            tools=[Tool(pay, args_validator=even, requires_approval=True)],
        )
        assert run(agent).kind == "suspended_client_tool"
        assert "Even amounts only." in str(results(store)[0])
        assert list(store.load_state("s").pending_client_tool_calls) == ["b"]
        answered(store, approved=True)
        assert SessionRunner(agent).wake("s").kind == "completed"
        assert ran == [2]

    def test_a_model_retry_is_an_error_the_model_can_mend(self, store: SessionStore) -> None:
        script = Script([call("find", name="x")], [call("find", "b", name="y")], "done")
        agent = Agent(script.model)

        @agent.tool_plain
        def find(name: str) -> str:
            if name == "x":
                raise ModelRetry("There is no x.")
            return name

        assert run(agent).kind == "completed"
        assert [is_error for _, is_error in results(store)] == [True, False]
        assert "There is no x." in script.text(1)

    def test_retries_of_a_tool_count_across_the_turns_of_a_run(self, store: SessionStore) -> None:
        """As in pydantic-ai, a success begins the count again, and one more than `retries` fails the run."""
        seen: list[tuple[str, int, bool]] = []
        for session, name, bad in (("args", "check", {"name": 1}), ("body", "find", {"name": "x"})):
            good = {"name": "y"}
            lines = [bad, good, bad, bad, bad, good]
            script = Script(*[[call(name, f"c{n}", **given)] for n, given in enumerate(lines)])
            agent = Agent(script.model, retries=2)

            @agent.tool(name=name)
            def find(ctx: RunContext, name: str, at: str = session) -> str:
                seen.append((at, ctx.retry, ctx.last_attempt))
                if name == "x":
                    raise ModelRetry("There is no x.")
                return name

            outcome = run(agent, session)
            assert (outcome.kind, outcome.error["code"]) == ("failed", "tool_retries_exceeded"), session
            assert f"'{name}' exceeded max retries count of 2" in outcome.error["message"]
            assert len(script.asked) == 5
            errors = [is_error for _, is_error in results(store, session)]
            assert errors == [True, False, True, True, True]
        body = [(retry, last) for at, retry, last in seen if at == "body"]
        assert body == [(0, False), (1, False), (0, False), (1, False), (2, True)]
        assert [retry for at, retry, _ in seen if at == "args"] == [1]

    def test_what_a_tool_enqueues_goes_with_its_result(self, store: SessionStore) -> None:
        script = Script([call("look")], "done", "again")
        agent = Agent(script.model)

        @agent.tool
        def look(ctx: RunContext) -> str:
            ctx.enqueue("The door is open.")
            return "seen"

        run(agent)
        run(agent)
        for asked in script.asked[1:]:
            part, enqueued = asked[2].parts
            assert (part.content, part.part_kind) == ("seen", "tool-return")
            assert "The door is open." in str(enqueued.content)

    def test_what_a_tool_raises_is_an_error_result(self, store: SessionStore) -> None:
        agent = Agent(Script([call("fail")], "sorry").model)

        @agent.tool_plain
        def fail() -> None:
            raise RuntimeError("It is broken.")

        assert run(agent).output == "sorry"
        assert results(store) == [("RuntimeError: It is broken.", True)]

    def test_the_time_a_tool_may_take(self, store: SessionStore) -> None:
        agent = Agent(Script([call("own", "a"), call("ours", "b")], "done").model)

        async def own() -> None:
            await asyncio.sleep(30)

        async def ours() -> None:
            await asyncio.sleep(30)

        agent = Agent(agent.model, tools=[Tool(own, timeout=0.05), ours])
        began = time.monotonic()
        assert run(agent, tools={"ours": ToolOptions(timeout=0.05)}).kind == "completed"
        assert [is_error for _, is_error in results(store)] == [True, True]
        assert time.monotonic() - began < 25

    def test_a_return_with_content_for_the_model(self, store: SessionStore) -> None:
        script = Script([call("shoot")], "done", "again")
        agent = Agent(script.model)

        @agent.tool_plain
        def shoot() -> ToolReturn:
            picture = BinaryContent(b"\x89PNG", media_type="image/png")
            return ToolReturn("shot", content=["The picture:", picture], metadata={"at": "noon"})

        run(agent)
        run(agent)
        for asked in script.asked[1:]:
            part, content = asked[2].parts[:2]
            assert (part.content, part.metadata) == ("shot", {"at": "noon"})
            assert content.content[0] == "The picture:"
            assert content.content[1].data == b"\x89PNG"
        assert results(store) == [("shot", False)]

    def test_long_outputs_are_cut_for_the_model(self, store: SessionStore, settings: Any) -> None:
        settings.HELIX_SESSIONS = {"MAX_TOOL_OUTPUT": 300}
        script = Script([call("read")], "done")
        agent = Agent(script.model)

        @agent.tool_plain
        def read() -> str:
            return "x" * 5000

        run(agent)
        assert len(script.asked[1][2].parts[0].content) < 400
        assert "bytes were cut" in script.text()

    def test_hooks_of_the_agent_run_once_for_each_execution(self, store: SessionStore) -> None:
        seen: list[str] = []
        hooks = Hooks()

        @hooks.on.before_tool_execute
        async def before(ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
            seen.append(call.tool_call_id)
            return args

        agent = Agent(Script([call("look")], "done").model, capabilities=[hooks])
        agent.tool_plain(name="look")(lambda: "seen")
        run(agent)
        assert seen == ["call-1"]

    def test_a_tool_that_is_idempotent_by_declaration_is_tried_again(self, store: SessionStore) -> None:
        keys: list[str | None] = []
        agent = Agent(Script([call("send")], "done").model)

        @agent.tool_plain
        def send() -> str:
            keys.append(current_turn().idempotency_key)
            if len(keys) == 1:
                raise ConnectionError("gone")
            return "sent"

        run(agent, tools={"send": ToolOptions(retries=2)}, retry={"initial": 0.01})
        assert len(keys) == 2
        assert keys[0] == keys[1]
        assert results(store) == [("sent", False)]


class TestToolsets:
    def test_dynamic_ones(self, store: SessionStore) -> None:
        agent = Agent(Script([call("look")], "done").model)

        @agent.toolset
        def tools(ctx: RunContext) -> FunctionToolset:
            def look() -> str:
                return f"seen by {current_turn().session_id}"

            return FunctionToolset([look])

        assert run(agent).kind == "completed"
        assert results(store) == [("seen by s", False)]

    def test_of_an_mcp_server(self, store: SessionStore) -> None:
        fastmcp = pytest.importorskip("fastmcp")
        from pydantic_ai.mcp import MCPToolset

        server = fastmcp.FastMCP("sums")

        @server.tool
        def add(a: int, b: int) -> int:
            return a + b

        agent = Agent(Script([call("add", a=1, b=2)], "done").model, toolsets=[MCPToolset(server)])
        assert run(agent).kind == "completed"
        assert results(store) == [(3, False)]

    def test_prefixed_and_prepared_ones(self, store: SessionStore) -> None:
        script = Script([call("shop_look"), call("shop_hidden", "b")], "done")
        tools = FunctionToolset([Tool(lambda: "seen", name="look"), Tool(lambda: "no", name="hidden")])

        async def only_look(ctx: RunContext, defined: list[ToolDefinition]) -> list[ToolDefinition]:
            return [tool for tool in defined if tool.name == "look"]

        agent = Agent(script.model, toolsets=[tools.prepared(only_look).prefixed("shop")])
        assert run(agent).kind == "completed"
        assert [tool.name for tool in script.infos[0].function_tools] == ["shop_look"]
        assert ("seen", False) in results(store)
        assert ("no", False) not in results(store)

    def test_native_ones_and_hooks_of_the_model_are_there_on_every_turn(self, store: SessionStore) -> None:
        script, asked = Script([call("look")], "done"), []
        hooks: Any = Hooks()

        class Searching(FunctionModel):
            @classmethod
            def supported_native_tools(cls) -> frozenset[type]:
                return frozenset({WebSearchTool})

        @hooks.on.before_model_request
        async def before(ctx: Any, request: Any) -> Any:
            asked.append(current_turn().turn_id)
            return request

        agent = Agent(Searching(script.says), capabilities=[NativeTool(WebSearchTool()), hooks])
        agent.tool_plain(name="look")(lambda: "seen")
        assert run(agent).kind == "completed"
        native = [info.model_request_parameters.native_tools for info in script.infos]
        assert [[type(tool) for tool in tools] for tools in native] == [[WebSearchTool]] * 2
        assert len(set(asked)) == len(asked) == 2

    def test_external_tools_are_the_clients(self, store: SessionStore) -> None:
        schema = {"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]}
        external = ExternalToolset([ToolDefinition(name="locate", parameters_json_schema=schema)])
        script = Script([call("locate", where="here")], "done")
        agent = Agent(script.model, toolsets=[external])
        assert run(agent).kind == "suspended_client_tool"
        (pending,) = store.load_state("s").pending_client_tool_calls.values()
        assert (pending["kind"], pending["arguments"]) == ("client_tool", {"where": "here"})
        answered(store, result={"x": 1})
        assert SessionRunner(agent).wake("s").kind == "completed"
        assert results(store) == [({"x": 1}, False)]
        assert script.asked[1][2].parts[0].content == {"x": 1}

    def test_a_deferred_call_is_the_clients(self, store: SessionStore) -> None:
        agent = Agent(Script([call("ask"), call("look", "b")], "done").model)

        @agent.tool_plain
        def ask() -> str:
            raise CallDeferred

        agent.tool_plain(name="look")(lambda: "seen")
        assert run(agent).kind == "suspended_step_partial"
        assert results(store) == [("seen", False)]
        answered(store, result="yes")
        assert SessionRunner(agent).wake("s").kind == "completed"
        assert sorted(results(store)) == [("seen", False), ("yes", False)]

    def test_options_say_otherwise(self, store: SessionStore) -> None:
        agent = Agent(Script([call("free"), call("held", "b"), call("page", "c")], "done").model)
        agent.tool_plain(name="free", requires_approval=True)(lambda: "free")
        agent.tool_plain(name="held")(lambda: "held")
        agent.tool_plain(name="page")(lambda: "never")
        options = {
            "free": ToolOptions(approval=False),
            "held": {"approval": True},
            "page": {"client": True},
        }
        assert run(agent, tools=options).kind == "suspended_step_partial"
        assert results(store) == [("free", False)]
        pending = store.load_state("s").pending_client_tool_calls
        assert {name: entry["kind"] for name, entry in pending.items()} == {
            "b": "approval",
            "c": "client_tool",
        }


class TestApprovals:
    def refunding(self, script: Script) -> tuple[Any, list[int]]:
        ran: list[int] = []
        agent = Agent(script.model)

        @agent.tool_plain(requires_approval=True)
        def refund(order: int) -> str:
            ran.append(order)
            return f"refunded {order}"

        return agent, ran

    def test_a_call_waits_and_is_executed_once_approved(self, store: SessionStore) -> None:
        script = Script([call("refund", order=7)], "done")
        agent, ran = self.refunding(script)
        assert run(agent).kind == "suspended_client_tool"
        assert ran == []
        answered(store, approved=True)
        assert SessionRunner(agent).wake("s").output == "done"
        assert (ran, results(store)) == ([7], [("refunded 7", False)])

    def test_or_denied(self, store: SessionStore) -> None:
        script = Script([call("refund", order=7)], "sorry")
        agent, ran = self.refunding(script)
        run(agent)
        answered(store, approved=False, reason="Too much.")
        assert SessionRunner(agent).wake("s").output == "sorry"
        assert ran == []
        assert "Too much." in script.text()

    def test_a_tool_may_ask_while_it_runs(self, store: SessionStore) -> None:
        seen: list[Any] = []
        agent = Agent(Script([call("pay", amount=500), call("pay", "b", amount=5)], "done").model)

        @agent.tool
        def pay(ctx: RunContext, amount: int) -> str:
            if amount > 100 and not ctx.tool_call_approved:
                raise ApprovalRequired
            seen.append((amount, ctx.tool_call_approved))
            return f"paid {amount}"

        assert run(agent).kind == "suspended_step_partial"
        assert seen == [(5, False)]
        answered(store, approved=True)
        assert SessionRunner(agent).wake("s").kind == "completed"
        assert seen == [(5, False), (500, True)]

    def test_a_toolset_that_asks(self, store: SessionStore) -> None:
        tools = FunctionToolset([Tool(lambda amount: f"paid {amount}", name="pay", takes_ctx=False)])
        asking = ApprovalRequiredToolset(tools, lambda ctx, tool, args: args["amount"] > 10)
        agent = Agent(
            Script([call("pay", amount=50), call("pay", "b", amount=5)], "done").model, toolsets=[asking]
        )
        assert run(agent).kind == "suspended_step_partial"
        answered(store, approved=True)
        assert SessionRunner(agent).wake("s").kind == "completed"
        assert {content for content, _ in results(store)} == {"paid 5", "paid 50"}

    def test_a_rule_decides_instead(self, store: SessionStore) -> None:
        store.set_tool_rule("refund", "allow", agent_type="writer")
        agent, ran = self.refunding(Script([call("refund", order=7)], "done"))
        assert run(agent).kind == "completed"
        assert ran == [7]
        store.set_tool_rule("refund", "deny", agent_type="writer")
        agent, ran = self.refunding(Script([call("refund", order=7)], "done"))
        assert run(agent, "t").kind == "completed"
        assert ran == []

    def test_an_output_of_deferred_requests_is_never_needed(self, store: SessionStore) -> None:
        agent = Agent(
            Script([call("refund", order=1)], "done").model, output_type=[str, DeferredToolRequests]
        )
        agent.tool_plain(name="refund", requires_approval=True)(lambda order: "ok")
        assert run(agent).kind == "suspended_client_tool"


class TestSubagents:
    def test_a_tool_of_a_sub_agent(self, store: SessionStore, settings: Any) -> None:
        helper = Agent(Script("It is 42.").model, name="helper")
        script = Script([call("ask_helper", prompt="What is it?")], "The helper knows.")
        settings.HELIX_SESSIONS = {"AGENTS": {"helper": helper}}
        outcome = run(Agent(script.model), subagents={"ask_helper": "helper"})
        assert (outcome.kind, outcome.output) == ("completed", "The helper knows.")
        (offered,) = script.infos[0].function_tools
        assert (offered.name, offered.parameters_json_schema["required"]) == ("ask_helper", ["prompt"])
        assert results(store) == [("It is 42.", False)]
        assert len(store.get_sub_session_refs("s")) == 1

    def test_a_tool_may_spawn_one(self, store: SessionStore, settings: Any) -> None:
        helper = Agent(Script("Done.").model, name="helper")
        agent = Agent(Script([call("delegate", task="x")], "ok").model)
        agent.tool_plain(name="delegate")(lambda task: Spawn("helper", f"Do {task}."))
        settings.HELIX_SESSIONS = {"AGENTS": {"helper": helper}}
        assert run(agent).kind == "completed"
        assert results(store) == [("Done.", False)]


class TestRefusals:
    """What cannot hold is said when the agent is named."""

    def refused(self) -> dict[str, tuple[Any, dict[str, Any], str]]:
        colliding = Agent(Script().model, name="support")
        colliding.tool_plain(name="help")(lambda: "x")
        handling = HandleDeferredToolCalls(lambda ctx, requests: None)
        return {
            "deps": (Agent(Script().model, deps_type=dict), {}, "deps"),
            "handler": (Agent(Script().model, capabilities=[handling]), {}, "HandleDeferredToolCalls"),
            "names": (colliding, {"subagents": {"help": "helper"}}, "'help'"),
        }

    def test_by_durable_and_by_a_runner(self) -> None:
        for name, (agent, options, said) in self.refused().items():
            with pytest.raises(NotConfigured, match=said):
                durable(agent, **options)
            if not options:
                with pytest.raises(NotConfigured, match=said):
                    SessionRunner(agent)
            assert name

    def test_by_the_check_of_settings(self, settings: Any) -> None:
        from django.core.checks import run_checks

        settings.HELIX_SESSIONS = {"AGENTS": {"a": "tests.agents.pydantic_agents.with_deps"}}
        (found,) = [each for each in run_checks() if str(each.id).startswith("helix_sessions")]
        assert found.id == "helix_sessions.E009"
        assert "deps" in found.msg

    def test_deps_can_be_made_in_each_process(self, store: SessionStore) -> None:
        agent = Agent(Script([call("who")], "done").model, deps_type=dict)

        @agent.tool
        def who(ctx: RunContext[dict]) -> str:
            return str(ctx.deps["session"])

        assert run(agent, deps=lambda turn: {"session": turn.session_id}).kind == "completed"
        assert results(store) == [("s", False)]


_IMPORTS = """
import sys, django
django.setup()
import helix_sessions.agents
print([name for name in ("pydantic_ai", "agents", "langgraph") if name in sys.modules])
"""


def test_nothing_is_imported_for_a_framework_that_is_not_used() -> None:
    done = subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
