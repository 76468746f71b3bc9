"""`SendMessage`: the message first, then the agent, then what it came to."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.exceptions import InvalidInput, SessionConflict, TransientError
from helix_sessions.runtime import (
    Budget,
    ChangeBudget,
    ChangeModel,
    Execution,
    ForkSession,
    SendMessage,
    SuspendSession,
    ToolResult,
    chars_over_four,
    collected,
)
from helix_sessions.runtime import TurnOutcome as Outcome
from helix_sessions.store import SessionStore
from tests.rows import each
from tests.runtime.agents import Asynchronous, Scripted, calls, says

HELLO = {"role": "user", "content": "hello"}
HI = {"role": "assistant", "content": "hi"}
pytestmark = pytest.mark.django_db


def tool_message(name, content, **more):
    return {"role": "tool", "tool_call_id": f"{name}-1", "tool_name": name, "content": content, **more}


class TestTheMessage:
    def test_it_saves_twice(self, runtime, session):
        saved = runtime.execute("s", SendMessage("hello", Scripted([says("hi")])))
        assert saved.version == 3
        assert saved.state.messages == [HELLO, HI]
        assert (saved.state.execution_count, saved.state.execution) == (
            1,
            Execution("completed", None, 1, None),
        )
        assert saved == runtime.get_session("s")

    def test_it_is_stored_before_the_agent_is_called(self, runtime, session):
        def agent(given):
            stored = SessionStore().load_state("s")
            assert stored.version == given.version == 2
            assert SessionStore().get_messages("s").messages == given.state.messages == [HELLO]
            assert given.state.execution == Execution("running")
            return "hi"

        assert runtime.execute("s", SendMessage("hello", agent)).state.execution.status == "completed"

    @pytest.mark.django_db(transaction=True)
    def test_no_lock_is_held_meanwhile(self, runtime, session, run_threads):
        def agent(given):
            [version] = run_threads(1, lambda _: SessionStore().emit_event("s", "note").seq)
            assert isinstance(version, int)
            return "hi"

        assert runtime.execute("s", SendMessage("hello", agent)).state.execution.error is None

    def test_a_message_may_be_an_object(self, runtime, session):
        message = {"role": "user", "content": [{"type": "text", "text": "hello"}], "id": "m1"}
        saved = runtime.execute("s", SendMessage(message, lambda session: None))
        assert saved.state.messages == [message]

    @each("message", [None, 1, [], {}, {"role": "nobody"}, {"role": "user", "content": object()}])
    def test_what_is_no_message_is_refused(self, message):
        with pytest.raises(ValueError):  # noqa: PT011
            SendMessage(message, lambda session: "hi")

    @each("agent", [None, "agent", object()])
    def test_what_is_no_agent_is_refused(self, agent):
        with pytest.raises(InvalidInput):
            SendMessage("hello", agent)

    def test_a_conflict_does_not_lose_it(self, runtime, session, store):
        def agent(given):
            runtime.execute("s", ChangeModel("other"))
            return "hi"

        with pytest.raises(SessionConflict) as conflict:
            runtime.execute("s", SendMessage("hello", agent))
        assert (conflict.value.expected_version, conflict.value.current_version) == (2, 3)
        now = runtime.get_session("s")
        assert (now.version, now.state.model, now.state.messages) == (3, "other", [HELLO])

    def test_calls_left_open_get_an_error_first(self, runtime, session, store):
        store.append_messages("s", [calls("look").message])
        saved = runtime.execute("s", SendMessage("hello", lambda session: "hi"))
        healed = tool_message("look", "Tool execution interrupted", is_error=True)
        assert saved.state.messages == [calls("look").message, healed, HELLO, HI]
        assert saved.version == 4


class TestTheAgent:
    @each(
        ("answer", "messages"),
        [
            ("hi", [HI]),
            (HI, [HI]),
            ([HI, HI], [HI, HI]),
            (None, []),
            (says("hi"), [HI]),
            (Outcome("hi"), [HI]),
        ],
        ids=str,
    )
    def test_a_callable_answers(self, runtime, session, answer, messages):
        saved = runtime.execute("s", SendMessage("hello", lambda session: answer))
        assert saved.state.messages == [HELLO, *messages]
        assert saved.state.execution == Execution("completed", None, 1, None)

    @each("failure", [RuntimeError("boom"), ValueError("\ud800"), KeyError("x" * 100_000)], ids=repr)
    @each("status", ["active", "suspended"])
    def test_one_that_fails_leaves_a_failed_execution(self, runtime, session, failure, status):
        if status == "suspended":
            runtime.execute("s", SuspendSession())
        saved = runtime.execute("s", SendMessage("hello", Scripted([failure])))
        assert saved.state.execution.status == "failed"
        assert saved.state.execution.error.startswith(type(failure).__name__)
        assert len(saved.state.execution.error) <= 8 * 1024
        assert saved.state.messages == [HELLO]
        assert saved.status == status
        assert saved == runtime.get_session("s")

    @each(
        "answer",
        [
            {"role": "nobody"},
            {"role": "assistant", "content": object()},
            object(),
            Outcome(HI, usage={"tokens": object()}),
            Outcome(HI, writes=[{"op": "jump"}]),
            Outcome(HI, writes=[{"op": "append", "path": ["number"], "values": [1]}]),
            Outcome(HI, output=object()),
        ],
        ids=str,
    )
    def test_nonsense_is_a_failure_of_the_agent(self, runtime, session, store, answer):
        store.merge_custom_state("s", [{"op": "set", "path": ["number"], "value": 1}])
        saved = runtime.execute("s", SendMessage("hello", Scripted([answer])))
        assert saved.state.execution.status == "failed"
        assert saved.version == 4
        assert store.load_state("s").custom_state == {"number": 1}

    def test_an_error_it_reports_is_a_failure(self, runtime, session):
        saved = runtime.execute("s", SendMessage("hello", Scripted([says("sorry", error="no credit")])))
        assert saved.state.execution == Execution("failed", "no credit", 1, None)
        assert saved.state.messages[-1]["content"] == "sorry"
        assert saved.status == "active"

    def test_steps_go_on_while_tools_are_called(self, runtime, session):
        seen = []

        def look(arguments, turn):
            seen.append((arguments, turn.session_id))
            return {"at": "home"}

        steps = [calls("look", usage={"tokens": 3}), says("found", usage={"tokens": 4})]
        agent = Scripted(steps, tools={"look": look})
        saved = runtime.execute("s", SendMessage("hello", agent))
        assert seen == [({"n": 1}, "s")]
        assert saved.state.messages == [
            HELLO,
            calls("look").message,
            tool_message("look", {"at": "home"}),
            {"role": "assistant", "content": "found"},
        ]
        assert saved.state.execution == Execution("completed", None, 2, {"tokens": 7})
        assert saved.version == 3

    def test_each_step_sees_what_was_said(self, runtime, session):
        agent = Scripted([calls("look"), says("found")], tools={"look": lambda arguments, turn: 1})
        runtime.execute("s", SendMessage("hello", agent))
        first, second = agent.turns
        assert first.context.baseline == "Be kind."
        assert first.context.messages == [HELLO]
        assert first.context.estimated_tokens == chars_over_four(first.context)
        assert second.context.messages == [HELLO, calls("look").message, tool_message("look", 1)]
        assert second.session.state.messages == second.context.messages
        assert (first.run.status, first.run.step_count, second.run.step_count) == ("running", 0, 1)

    def test_a_step_has_the_stored_state(self, runtime, session, store):
        store.merge_custom_state("s", [{"op": "set", "path": ["a"], "value": 1}])
        agent: Any = Scripted([])
        agent.run_turn = lambda turn: f"{turn.state.custom_state['a']} at {turn.state.version}"
        assert runtime.execute("s", SendMessage("hello", agent)).state.messages[-1]["content"] == "1 at 3"

    def test_tools_that_fail_have_errors_for_results(self, runtime, session):
        def broken(arguments, turn):
            raise ZeroDivisionError("nothing")

        agent = Scripted(
            [calls("broken", "missing", "odd"), says("found")],
            tools={"broken": broken, "odd": lambda arguments, turn: object()},
        )
        messages = runtime.execute("s", SendMessage("hello", agent)).state.messages
        assert [message["is_error"] for message in messages[2:5]] == [True, True, True]
        assert messages[2]["content"] == "ZeroDivisionError: nothing"
        assert [message["tool_name"] for message in messages[2:5]] == ["broken", "missing", "odd"]

    def test_what_happened_before_a_failure_stays(self, runtime, session):
        agent = Scripted([calls("look"), RuntimeError("boom")], tools={"look": lambda arguments, turn: 1})
        saved = runtime.execute("s", SendMessage("hello", agent))
        assert saved.state.execution == Execution("failed", "RuntimeError: boom", 1, None)
        assert saved.state.messages == [HELLO, calls("look").message, tool_message("look", 1)]

    def test_what_it_used_counts_for_the_session(self, runtime, session, store):
        used = {"input_tokens": 3, "output_tokens": 1, "cost": 0.5}
        for agent in (Scripted([says("one", usage=used)]), lambda _: says("two", usage=used)):
            runtime.execute("s", SendMessage("hello", agent))
        total = store.get_usage("s")
        assert (total.input_tokens, total.output_tokens, total.cost) == (6, 2, 1.0)

    def test_nobody_waits_long_for_the_next_attempt(self, runtime, session):
        agent = Scripted([TransientError("busy", retry_after=3600), says("hi")])
        saved = runtime.execute("s", SendMessage("hello", agent))
        assert saved.state.execution == Execution("failed", "busy", 0, None)

    @each("kind", ["client_tools", "approval_tools"])
    def test_tools_of_others_are_waited_for(self, runtime, session, kind):
        agent = Scripted([calls("ask")])
        setattr(agent, kind, ("ask",))
        saved = runtime.execute("s", SendMessage("hello", agent))
        assert saved.state.execution == Execution("waiting", None, 1, None)
        assert saved.state.messages == [HELLO, calls("ask").message]
        assert saved.status == "active"

    def test_writes_and_output_are_saved_with_the_outcome(self, runtime, session, store):
        result = ToolResult(1, writes=[{"op": "append", "path": ["seen"], "values": ["tool"]}])
        agent = Scripted(
            [
                calls("look", writes=({"op": "set", "path": ["a"], "value": 1},)),
                says("done", output={"answer": 42}, writes=({"op": "set", "path": ["b"], "value": 2},)),
            ],
            tools={"look": lambda arguments, turn: result},
        )
        saved = runtime.execute("s", SendMessage("hello", agent))
        state = store.load_state("s")
        assert state.custom_state == {"a": 1, "seen": ["tool"], "b": 2}
        assert state.output == {"answer": 42}
        assert (state.version, saved.version) == (3, 3)

    def test_it_may_tell_while_it_works(self, runtime, session, store):
        def run(turn):
            turn.emit("llm_requested", {"model": "m"})
            turn.publish_fragment({"text": "h"})
            assert turn.interrupted() is False
            return says("hi")

        agent: Any = Scripted([])
        agent.run_turn = run
        assert runtime.execute("s", SendMessage("hello", agent)).state.execution.status == "completed"
        assert len(store.get_events("s", types=["llm_requested"])) == 1

    def test_a_fork_has_not_executed_anything(self, runtime, session):
        runtime.execute("s", SendMessage("hello", lambda session: "hi"))
        fork = runtime.execute("s", ForkSession())
        assert (fork.state.execution_count, fork.state.execution) == (0, None)
        assert runtime.execute(fork.session_id, SendMessage("hello", lambda session: "hi")).version == 3


class TestBudgets:
    @pytest.fixture
    def agent(self):
        step = calls("look", usage={"input_tokens": 6, "output_tokens": 4, "cost": 0.5})
        return Scripted([step], tools={"look": lambda arguments, turn: 1})

    @each(
        ("budget", "steps", "limit"),
        [
            (Budget(max_steps=3), 3, "max_steps"),
            (Budget(max_steps=0), 0, "max_steps"),
            (Budget(max_tokens=25), 3, "max_tokens"),
            (Budget(max_tokens=20), 2, "max_tokens"),
            (Budget(max_cost=0.9), 2, "max_cost"),
            (Budget(max_seconds=0), 0, "max_seconds"),
            (Budget(max_steps=9, max_tokens=10, max_cost=1), 1, "max_tokens"),
        ],
        ids=str,
    )
    def test_limits_are_held_between_steps(self, runtime, session, agent, budget, steps, limit):
        agent.turns.clear()
        runtime.execute("s", ChangeBudget(budget))
        saved = runtime.execute("s", SendMessage("hello", agent))
        execution = saved.state.execution
        assert (execution.status, execution.steps) == ("budget_exceeded", steps)
        assert limit in execution.error
        assert len(agent.turns) == steps
        assert len(saved.state.messages) == 1 + 2 * steps
        assert saved.status == "active"
        assert saved.version == 4

    def test_a_deadline(self, runtime, session, agent):
        def look(arguments, turn):
            if len(agent.turns) == 2:
                import time

                while timezone.now() < deadline:
                    time.sleep(0.005)
            return 1

        deadline = timezone.now() + timedelta(seconds=0.5)
        agent.tools["look"] = look
        runtime.execute("s", ChangeBudget(Budget(deadline=deadline)))
        execution = runtime.execute("s", SendMessage("hello", agent)).state.execution
        assert (execution.status, execution.steps) == ("budget_exceeded", 2)
        agent.turns.clear()
        assert runtime.execute("s", SendMessage("hello", agent)).state.execution.steps == 0
        assert agent.turns == []

    def test_seconds(self, runtime, session, agent, monkeypatch):
        clock = [0.0]
        monkeypatch.setattr(collected, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        agent.tools["look"] = lambda arguments, turn: clock.append(clock.pop() + 60)
        runtime.execute("s", ChangeBudget(Budget(max_seconds=100)))
        execution = runtime.execute("s", SendMessage("hello", agent)).state.execution
        assert (execution.status, execution.steps) == ("budget_exceeded", 2)

    def test_the_last_step_may_use_it_up(self, runtime, session):
        runtime.execute("s", ChangeBudget(Budget(max_steps=1, max_tokens=1)))
        agent = Scripted([says("hi", usage={"total_tokens": 100})])
        assert runtime.execute("s", SendMessage("hello", agent)).state.execution == Execution(
            "completed", None, 1, {"total_tokens": 100}
        )

    def test_each_execution_has_it_anew(self, runtime, session):
        runtime.execute("s", ChangeBudget(Budget(max_steps=1)))
        for _ in range(3):
            saved = runtime.execute("s", SendMessage("hello", Scripted([says("hi")])))
            assert saved.state.execution.status == "completed"
        assert saved.state.execution_count == 3


@pytest.mark.django_db(transaction=True)
class TestAsync:
    def test_an_async_agent_from_sync_code(self, runtime, session):
        async def look(arguments, turn):
            await asyncio.sleep(0)
            return {"at": turn.session_id}

        async def broken(arguments, turn):
            raise ValueError("no")

        agent = Asynchronous([calls("look", "broken", "plain"), says("hi")])
        agent.tools = {"look": look, "broken": broken, "plain": lambda arguments, turn: 3}
        saved = runtime.execute("s", SendMessage("hello", agent))
        assert [message["content"] for message in saved.state.messages[2:]] == [
            {"at": "s"},
            "ValueError: no",
            3,
            "hi",
        ]
        assert saved.state.execution == Execution("completed", None, 2, None)

    def test_one_that_fails(self, runtime, session):
        saved = runtime.execute("s", SendMessage("hello", Asynchronous([RuntimeError("boom")])))
        assert saved.state.execution == Execution("failed", "RuntimeError: boom", 0, None)

    def test_an_async_callable(self, runtime, session):
        async def agent(session):
            return f"hi {session.session_id}"

        saved = runtime.execute("s", SendMessage("hello", agent))
        assert saved.state.messages[-1]["content"] == "hi s"

    def test_everything_can_be_awaited(self, runtime):
        async def go():
            made = await runtime.acreate({"name": "support"}, session_id="s")
            assert made.version == 1
            async_agent = Asynchronous([calls("look"), says("hi")], tools={"look": lambda arguments, turn: 1})
            saved = await runtime.aexecute("s", SendMessage("hello", async_agent))
            assert saved.version == 3
            assert async_agent.turns[1].context.messages[0] == HELLO
            saved = await runtime.aexecute("s", SendMessage("hello", Scripted([says("hi")])))
            assert saved.version == 5
            loaded = await runtime.aget_session("s")
            assert len(await loaded.state.messages.aload()) == 6
            assert loaded.state.messages[-1] == HI
            assert await runtime.aget_session_info("s") == loaded.info
            assert (await runtime.alist_sessions()).items == [loaded.info]
            with pytest.raises(SessionConflict):
                await runtime.aexecute("s", SendMessage("hello", Interfering()))

        class Interfering:
            async def run_turn(self, turn):
                await turn.emit("note", {})
                assert await turn.interrupted() is False
                await runtime.aexecute("s", SuspendSession())
                return "hi"

        asyncio.run(go())

    def test_no_thread_is_held_while_an_async_agent_answers(self, runtime):
        """Two executions in one loop, each waiting for the other's agent to have begun."""

        async def go():
            for key in ("a", "b"):
                await runtime.acreate({"name": "support"}, session_id=key)
            begun = {"a": asyncio.Event(), "b": asyncio.Event()}

            async def agent(session):
                begun[session.session_id].set()
                await begun["b" if session.session_id == "a" else "a"].wait()
                return "hi"

            both = [runtime.aexecute(key, SendMessage("hello", agent)) for key in ("a", "b")]
            return await asyncio.wait_for(asyncio.gather(*both), 20)

        assert [saved.version for saved in asyncio.run(go())] == [3, 3]


def test_without_a_runtime_nothing_is_saved(runtime, session):
    acted = SendMessage("hello", lambda session: "hi").execute_on(session)
    assert acted.state.messages == [HELLO, HI]
    assert acted.version == 1
    assert runtime.get_session("s") == session
