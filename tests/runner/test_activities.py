"""What a runner does with a session, sentence by sentence."""

import threading
import time
from typing import Any, cast

import pytest

from helix_sessions.exceptions import InvalidInput, SessionNotFound
from helix_sessions.runtime import SessionRunner, ToolResult, TurnContext, TurnOutcome
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from helix_sessions.transcripts import open_tool_calls
from helix_sessions.types import Run, RunOutcome
from tests.invariants import assert_invariants
from tests.rows import each

pytestmark = pytest.mark.django_db(transaction=True)


def said(store: SessionStore, session: str) -> list[Any]:
    return [(message["role"], message.get("content")) for message in store.get_messages(session).messages]


def run_of(outcome: RunOutcome) -> Run:
    assert outcome.run is not None
    return outcome.run


def whole(store: SessionStore, session: str) -> None:
    """The session is in order, and nobody drives it."""
    assert_invariants(session)
    assert open_tool_calls(store.get_messages(session).messages) == []
    assert store.get_lease(session) is None
    assert store.get_current_run(session) is None


class TestRun:
    def test_at_least_one_turn_even_without_an_input(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent([TurnOutcome("hello", output={"done": True}, usage={"tokens": 3})])
        outcome = SessionRunner(agent).run(session)
        assert (outcome.kind, outcome.output, outcome.error) == ("completed", {"done": True}, None)
        assert outcome.run == store.get_run(session, run_of(outcome).run_id)
        assert (run_of(outcome).status, run_of(outcome).step_count, run_of(outcome).usage) == (
            *("completed", 1),
            {"tokens": 3},
        )
        state = store.load_state(session)
        assert (state.status, state.output, state.step_count) == ("completed", {"done": True}, 1)
        assert said(store, session) == [("assistant", "hello")]
        whole(store, session)

    def test_a_state_that_would_be_too_large_fails_the_run_and_keeps_what_was_said(
        self, store: SessionStore, session: str, settings: Any
    ) -> None:
        settings.HELIX_SESSIONS = {**getattr(settings, "HELIX_SESSIONS", {}), "MAX_DOCUMENT_BYTES": 3_000}
        first, second = ([{"op": "set", "path": [name], "value": "x" * 2_000}] for name in "ab")
        SessionRunner(ScriptedAgent([TurnOutcome("one", writes=first)])).run(session)
        outcome = SessionRunner(ScriptedAgent([TurnOutcome("two", writes=second)])).run(session)
        state = store.load_state(session)
        assert (outcome.kind, state.status, state.failure_reason) == ("failed", "failed", "agent_raised")
        assert list(state.custom_state) == ["a"]
        assert said(store, session) == [("assistant", "one"), ("assistant", "two")]
        whole(store, session)

    def test_inputs_are_promoted_before_the_model_is_asked(self, store: SessionStore, session: str) -> None:
        for name in "ab":
            store.admit_input(session, name)
        agent = ScriptedAgent()
        SessionRunner(agent).run(session)
        assert said(store, session) == [("user", "a"), ("user", "b"), ("assistant", "b")]
        assert [message["content"] for message in agent.turns[0].context.messages] == ["a", "b"]

    def test_an_unknown_session(self) -> None:
        for call in (SessionRunner(ScriptedAgent()).run, SessionRunner(ScriptedAgent()).wake):
            with pytest.raises(SessionNotFound):
                call("unknown")

    def test_a_completed_session_goes_on(self, store: SessionStore, session: str) -> None:
        runner = SessionRunner(ScriptedAgent())
        for name in "ab":
            store.admit_input(session, name)
            assert runner.run(session).kind == "completed"
        assert [run.turn for run in store.list_runs(session).items] == [2, 1]

    def test_what_the_turn_is_told(self, store: SessionStore, session: str) -> None:
        store.merge_custom_state(session, [{"op": "set", "path": ["a"], "value": 1}])

        def look(turn: TurnContext) -> str:
            record = turn.emit("thought", {"n": 1})
            assert (record.type, record.run_id) == ("thought", turn.run.run_id)
            turn.publish_fragment({"text": "hel"})
            assert not turn.interrupted()
            return "ok"

        agent = ScriptedAgent([look])
        outcome = SessionRunner(agent).run(session)
        assert outcome.kind == "completed"
        [turn] = agent.turns
        assert (turn.session_id, turn.run.run_id, turn.state.custom_state) == (
            *(session, run_of(outcome).run_id),
            {"a": 1},
        )
        assert [event.data for event in store.get_events(session, types=["thought"])] == [{"n": 1}]

    def test_its_arguments(self) -> None:
        for options in ({"turn_limit": 0}, {"turn_limit": True}, {"lease_ttl": 0}, {"lease_ttl": "30"}):
            with pytest.raises(InvalidInput):
                SessionRunner(ScriptedAgent(), **options)


class TestWake:
    def test_it_runs_only_if_an_input_can_be_promoted(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent()
        runner = SessionRunner(agent)
        assert runner.wake(session) == RunOutcome(kind="idle")
        assert agent.turns == []
        assert store.list_runs(session).items == []
        store.admit_input(session, "hello")
        assert runner.wake(session).kind == "completed"
        assert runner.wake(session).kind == "idle"
        assert len(agent.turns) == 1

    def test_wakes_during_a_drain_coalesce_to_one_more_look(self, store: SessionStore, session: str) -> None:
        entered, go = threading.Event(), threading.Event()

        def slow(turn: TurnContext) -> str:
            entered.set()
            assert go.wait(20)
            return "slow"

        agent = ScriptedAgent([slow])
        runner = SessionRunner(agent)
        store.admit_input(session, "first")
        outcomes: list[RunOutcome] = []
        thread = threading.Thread(target=lambda: outcomes.append(runner.wake(session)))
        thread.start()
        assert entered.wait(20)
        for number in range(3):
            store.admit_input(session, f"later {number}", delivery="queue" if number else "steer")
            assert runner.wake(session).kind == "idle"
            assert SessionRunner(agent).wake(session).kind == "idle"
        go.set()
        thread.join(20)
        assert [outcome.kind for outcome in outcomes] == ["completed"]
        assert store.list_inputs(session) == []
        assert len(agent.turns) == 4
        whole(store, session)

    def test_an_input_that_comes_with_the_end_of_the_run_is_taken_up(
        self, store: SessionStore, session: str
    ) -> None:
        """Admitted while the model answers the last time: its own wake found an owner, who sees it in the
        write that would give the session back."""

        def late(turn: TurnContext) -> str:
            store.admit_input(session, "late", delivery="queue")
            assert SessionRunner(agent).wake(session).kind == "idle"
            return "first"

        agent = ScriptedAgent([late])
        store.admit_input(session, "first")
        assert SessionRunner(agent).wake(session).kind == "completed"
        assert store.list_inputs(session) == []
        assert len(agent.turns) == 2


class TestActivities:
    def test_steers_go_into_the_activity_and_queued_inputs_open_their_own(
        self, store: SessionStore, session: str
    ) -> None:
        def more(turn: TurnContext) -> str:
            store.admit_input(session, "steer 2")
            return "one"

        for name, delivery in (("queued 1", "queue"), ("steer 1", "steer"), ("queued 2", "queue")):
            store.admit_input(session, name, delivery=delivery)
        agent = ScriptedAgent([more])
        assert SessionRunner(agent).wake(session).kind == "completed"
        assert said(store, session) == [
            ("user", "steer 1"),
            ("assistant", "one"),
            ("user", "steer 2"),
            ("assistant", "steer 2"),
            ("user", "queued 1"),
            ("assistant", "queued 1"),
            ("user", "queued 2"),
            ("assistant", "queued 2"),
        ]
        assert [run.step_count for run in reversed(store.list_runs(session).items)] == [2, 1, 1]
        whole(store, session)

    def test_a_steer_reaches_the_agent_between_tools_and_the_next_turn(
        self, store: SessionStore, session: str
    ) -> None:
        def work(arguments: Any, turn: TurnContext) -> str:
            store.admit_input(session, "hurry")
            return "done"

        agent = ScriptedAgent([calls("work"), "ok"], tools={"work": work})
        SessionRunner(agent).run(session)
        assert [role for role, _ in said(store, session)] == ["assistant", "tool", "user", "assistant"]

    def test_a_queued_input_waits_while_tools_are_called(self, store: SessionStore, session: str) -> None:
        for name in ("one", "two"):
            store.admit_input(session, name, delivery="queue")
        agent = ScriptedAgent([calls("work"), "first"], tools={"work": lambda arguments, turn: "done"})
        SessionRunner(agent).wake(session)
        assert [content for _, content in said(store, session)] == ["one", "", "done", "first", "two", "two"]

    def test_a_runner_that_is_closed_opens_no_more(self, store: SessionStore, session: str) -> None:
        for name in ("one", "two"):
            store.admit_input(session, name, delivery="queue")
        agent = ScriptedAgent([calls("close")])
        runner = SessionRunner(agent)
        agent.tools = {"close": lambda arguments, turn: runner.close()}
        assert runner.wake(session).kind == "completed"
        assert [receipt.prompt for receipt in store.list_inputs(session)] == ["two"]
        whole(store, session)

    def test_the_turn_limit(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent([calls("work")] * 9, tools={"work": lambda arguments, turn: 1})
        outcome = SessionRunner(agent, turn_limit=3).run(session)
        assert (outcome.kind, outcome.error["code"]) == ("failed", "turn_limit_exceeded")
        assert len(agent.turns) == 3
        state = store.load_state(session)
        assert (state.status, state.failure_reason) == ("failed", "turn_limit_exceeded")
        whole(store, session)

    def test_the_limit_counts_only_if_work_remains(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent([calls("work"), calls("work"), "done"], tools={"work": lambda a, t: 1})
        assert SessionRunner(agent, turn_limit=3).run(session).kind == "completed"

    def test_the_limit_is_of_an_activity(self, store: SessionStore, session: str) -> None:
        for number in range(4):
            store.admit_input(session, str(number), delivery="queue")
        agent = ScriptedAgent()
        assert SessionRunner(agent, turn_limit=1).wake(session).kind == "completed"
        assert len(agent.turns) == 4

    def test_the_turn_limit_is_25(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent([calls("work")] * 30, tools={"work": lambda a, t: 1})
        assert SessionRunner(agent).run(session).kind == "failed"
        assert len(agent.turns) == 25

    def test_usage_is_added_up(self, store: SessionStore, session: str) -> None:
        first = TurnOutcome(calls("work"), usage={"tokens": 3, "model": "a", "cost": {"in": 1}})
        second = TurnOutcome("ok", usage={"tokens": 4, "model": "b", "cost": {"in": 2, "out": 0.5}})
        agent = ScriptedAgent([first, second], tools={"work": lambda a, t: 1})
        outcome = SessionRunner(agent).run(session)
        assert run_of(outcome).usage == {"tokens": 7, "model": "b", "cost": {"in": 3, "out": 0.5}}

    def test_the_writes_of_a_turn(self, store: SessionStore, session: str) -> None:
        writes = [{"op": "append", "path": ["seen"], "values": [1]}]
        agent = ScriptedAgent([TurnOutcome(calls("work"), writes=writes), TurnOutcome("ok", writes=writes)])
        agent.tools = {"work": lambda a, t: 1}
        SessionRunner(agent).run(session)
        assert store.load_state(session).custom_state == {"seen": [1, 1]}
        assert not store.has_staged_changes(session)

    def test_what_others_change_meanwhile_is_kept(self, store: SessionStore, session: str) -> None:
        def meddle(turn: TurnContext) -> str:
            store.patch_metadata(session, {"ticket": 7})
            store.merge_custom_state(session, [{"op": "set", "path": ["a"], "value": 1}])
            return "ok"

        assert SessionRunner(ScriptedAgent([meddle])).run(session).kind == "completed"
        state = store.load_state(session)
        assert (state.metadata, state.custom_state) == ({"ticket": 7}, {"a": 1})


class TestFailures:
    def test_a_raising_turn_ends_the_drain_and_leaves_the_queue(
        self, store: SessionStore, session: str
    ) -> None:
        for name in ("one", "two"):
            store.admit_input(session, name, delivery="queue")
        agent = ScriptedAgent([ValueError("the model is down")])
        outcome = SessionRunner(agent).wake(session)
        assert outcome.kind == "failed"
        assert outcome.error["message"] == "the model is down"
        assert (outcome.error["code"], outcome.error["type"]) == ("agent_raised", "ValueError")
        assert run_of(outcome).status == "failed"
        assert [receipt.prompt for receipt in store.list_inputs(session)] == ["two"]
        assert store.load_state(session).status == "failed"
        assert SessionRunner(agent).wake(session).kind == "completed"
        whole(store, session)

    def test_an_error_fails_its_activity_and_the_queue_goes_on(
        self, store: SessionStore, session: str
    ) -> None:
        for name in ("one", "two"):
            store.admit_input(session, name, delivery="queue")
        agent = ScriptedAgent([TurnOutcome("sorry", error="refused"), "fine"])
        assert SessionRunner(agent).wake(session).kind == "completed"
        runs = store.list_runs(session).items
        assert [run.status for run in runs] == ["completed", "failed"]
        assert runs[1].error["message"] == "refused"
        assert said(store, session)[1] == ("assistant", "sorry")
        assert store.list_inputs(session) == []
        whole(store, session)

    def test_an_error_alone(self, store: SessionStore, session: str) -> None:
        outcome = SessionRunner(ScriptedAgent([TurnOutcome(None, error="refused")])).run(session)
        assert (outcome.kind, outcome.error["code"]) == ("failed", "agent_failed")
        assert outcome.error["message"] == "refused"
        assert said(store, session) == []

    def test_calls_in_a_failing_turn_are_not_executed(self, store: SessionStore, session: str) -> None:
        ran: list[Any] = []
        agent = ScriptedAgent(
            [TurnOutcome(calls("work"), error="stop")], tools={"work": lambda *a: ran.append(a)}
        )
        assert SessionRunner(agent).run(session).kind == "failed"
        assert ran == []
        whole(store, session)

    @each(
        "answer",
        [
            None,
            42,
            TurnOutcome(None),
            TurnOutcome({"role": "user", "content": "x"}),
            TurnOutcome({"content": "x"}),
            TurnOutcome({"role": "assistant", "content": float("nan")}),
            TurnOutcome("x", usage={1, 2}),
            TurnOutcome("x", error=cast(Any, ValueError("x"))),
            TurnOutcome("x", writes=[{"op": "fly"}]),
            TurnOutcome("x", writes=[{"op": "set", "path": ["n"], "value": float("nan")}]),
            TurnOutcome("x", writes=[{"op": "append", "path": ["text"], "values": [1]}]),
            TurnOutcome(
                "x", writes=[{"op": "set", "path": ["deeper than a state may be"] * 600, "value": 1}]
            ),
        ],
    )
    def test_what_no_turn_can_come_to_is_the_agents_failure(
        self, store: SessionStore, session: str, answer: Any
    ) -> None:
        store.merge_custom_state(session, [{"op": "set", "path": ["text"], "value": "x"}])

        class Agent:
            def run_turn(self, turn: TurnContext) -> Any:
                return answer

        outcome = SessionRunner(Agent()).run(session)
        assert outcome.kind == "failed"
        assert outcome.error
        assert store.load_state(session).status == "failed"
        assert not store.has_staged_changes(session)
        whole(store, session)

    def test_a_dict_does_as_well(self, store: SessionStore, session: str) -> None:
        class Agent:
            def run_turn(self, turn: TurnContext) -> Any:
                return {"message": {"role": "assistant", "content": "ok"}, "output": 1}

        outcome = SessionRunner(Agent()).run(session)
        assert (outcome.kind, outcome.output) == ("completed", 1)

    def test_a_session_that_is_deleted_meanwhile(self, store: SessionStore, session: str) -> None:
        def delete(turn: TurnContext) -> str:
            store.delete_session(session)
            return "ok"

        with pytest.raises(SessionNotFound):
            SessionRunner(ScriptedAgent([delete])).run(session)
        assert not store.session_exists(session)


class TestTools:
    def test_results_in_the_order_of_the_calls(self, store: SessionStore, session: str) -> None:
        gate = threading.Barrier(3, timeout=20)

        def tool(arguments: Any, turn: TurnContext) -> Any:
            gate.wait()  # all start at once
            return {"got": arguments, "in": turn.session_id}

        agent = ScriptedAgent([calls("tool", "tool", "tool", n=1), "ok"], tools={"tool": tool})
        assert SessionRunner(agent).run(session).kind == "completed"
        results = [m for m in store.get_messages(session).messages if m["role"] == "tool"]
        assert results == [
            {
                "role": "tool",
                "tool_call_id": f"call-{number}",
                "tool_name": "tool",
                "content": {"got": {"n": 1}, "in": session},
            }
            for number in (1, 2, 3)
        ]
        whole(store, session)

    def test_a_call_is_logged_before_it_executes(self, store: SessionStore, session: str) -> None:
        seen: list[Any] = []

        def tool(arguments: Any, turn: TurnContext) -> str:
            seen.extend(event.data for event in store.get_events(session, types=["tool_called"]))
            return "ok"

        SessionRunner(ScriptedAgent([calls("tool", n=1)], tools={"tool": tool})).run(session)
        assert seen == [{"tool_call_id": "call-1", "tool_name": "tool", "arguments": {"n": 1}}]
        types = [event.type for event in store.get_events(session)]
        assert types.index("assistant_message") < types.index("tool_called") < types.index("tool_responded")
        assert types.index("tool_responded") < types.index("tool_message")

    def test_the_same_call_ids_in_every_turn(self, store: SessionStore, session: str) -> None:
        ran = iter([1, 2, 3])
        agent = ScriptedAgent([calls("tool"), calls("tool"), "ok"])
        agent.tools = {"tool": lambda arguments, turn: next(ran)}
        SessionRunner(agent).run(session)
        assert [content for role, content in said(store, session) if role == "tool"] == [1, 2]
        assert len(store.get_events(session, types=["tool_called"])) == 2

    def test_a_raising_or_unknown_tool_is_an_error_result(self, store: SessionStore, session: str) -> None:
        def broken(arguments: Any, turn: TurnContext) -> None:
            raise RuntimeError("no network")

        tools = {
            "broken": broken,
            "odd": lambda a, t: {1, 2},
            "late": lambda a, t: ToolResult(1, writes=[{}]),
        }
        agent = ScriptedAgent([calls("broken", "unknown", "odd", "late"), "ok"], tools=tools)
        assert SessionRunner(agent).run(session).kind == "completed"
        results = [m for m in store.get_messages(session).messages if m["role"] == "tool"]
        assert [result["is_error"] for result in results] == [True] * 4
        assert "no network" in results[0]["content"]
        assert "unknown" in results[1]["content"]
        assert len(store.get_events(session, types=["tool_error"])) == 4
        whole(store, session)

    def test_writes_are_staged_under_step_and_call_and_promoted_with_the_step(
        self, store: SessionStore, session: str
    ) -> None:
        staged: list[Any] = []

        def first(arguments: Any, turn: TurnContext) -> ToolResult:
            return ToolResult("one", writes=[{"op": "append", "path": ["items"], "values": [1]}])

        def second(arguments: Any, turn: TurnContext) -> ToolResult:
            for _ in range(200):
                staged[:] = store.get_staged_changes(session)
                if staged:
                    break
                time.sleep(0.02)
            assert store.load_state(session).custom_state == {}
            return ToolResult("two", [{"op": "append", "path": ["items"], "values": [2]}])

        agent = ScriptedAgent([calls("first", "second"), "ok"], tools={"first": first, "second": second})
        outcome = SessionRunner(agent).run(session)
        assert [(c.step_id, c.tool_call_id) for c in staged] == [(f"{run_of(outcome).run_id}:1", "call-1")]
        assert sorted(store.load_state(session).custom_state["items"]) == [1, 2]
        assert [content for role, content in said(store, session) if role == "tool"] == ["one", "two"]
        whole(store, session)

    def test_many_tools_all_start_at_once(self, store: SessionStore, session: str) -> None:
        gate = threading.Barrier(20, timeout=20)
        agent = ScriptedAgent([calls(*["tool"] * 20), "ok"], tools={"tool": lambda a, t: gate.wait() >= 0})
        assert SessionRunner(agent).run(session).kind == "completed"
        assert [content for role, content in said(store, session) if role == "tool"] == [True] * 20

    def test_openai_style_calls(self, store: SessionStore, session: str) -> None:
        function = {"name": "tool", "arguments": '{"n": 1}'}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "x", "type": "function", "function": function}],
        }
        agent = ScriptedAgent([message, "ok"], tools={"tool": lambda arguments, turn: arguments["n"]})
        assert SessionRunner(agent).run(session).kind == "completed"
        assert said(store, session)[1] == ("tool", 1)

    def test_a_tool_that_would_wait_for_its_own_session(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent([calls("tool"), "ok"])
        runner = SessionRunner(agent)
        agent.tools = {"tool": lambda arguments, turn: runner.run(session).kind}
        assert runner.run(session).kind == "completed"
        assert "wait for itself" in said(store, session)[1][1]


class TestSuspension:
    def test_a_client_tool_suspends_and_an_answered_session_is_resumed_by_run(
        self, store: SessionStore, session: str
    ) -> None:
        agent = ScriptedAgent([calls("local", "ask"), "thanks"], tools={"local": lambda a, t: "here"})
        agent.client_tools = {"ask"}
        runner = SessionRunner(agent)
        outcome = runner.run(session)
        assert outcome.kind == "suspended_step_partial"
        assert run_of(outcome).status == "suspended_step_partial"
        assert set(store.load_state(session).pending_client_tool_calls or {}) == {"call-2"}
        assert runner.run(session).kind == "suspended_step_partial"
        store.admit_input(session, "are you there?")
        assert runner.wake(session).kind == "idle"
        assert store.list_inputs(session)
        store.submit_tool_result(session, "call-2", result={"answer": 42})
        assert runner.run(session).kind == "completed"
        assert said(store, session) == [
            ("assistant", ""),
            ("tool", "here"),
            ("tool", {"answer": 42}),
            ("user", "are you there?"),
            ("assistant", "thanks"),
        ]
        whole(store, session)

    @pytest.mark.parametrize("approved", [True, False])
    def test_an_approval_is_executed_after_the_decision(
        self, store: SessionStore, session: str, approved: bool
    ) -> None:
        ran: list[Any] = []
        agent = ScriptedAgent([calls("pay", amount=5), "ok"])

        def pay(arguments: Any, turn: TurnContext) -> str:
            ran.append(arguments)
            return "paid"

        agent.tools = {"pay": pay}
        agent.approval_tools = ["pay"]
        runner = SessionRunner(agent)
        assert runner.run(session).kind == "suspended_client_tool"
        assert ran == []
        [entry] = (store.load_state(session).pending_client_tool_calls or {}).values()
        assert entry["kind"] == "approval"
        store.submit_tool_result(session, "call-1", approved=approved)
        assert runner.run(session).kind == "completed"
        assert ran == ([{"amount": 5}] if approved else [])
        [result] = [m for m in store.get_messages(session).messages if m["role"] == "tool"]
        assert result.get("is_error", False) is not approved
        whole(store, session)

    def test_an_approved_tools_writes(self, store: SessionStore, session: str) -> None:
        writes = [{"op": "set", "path": ["paid"], "value": True}]
        agent = ScriptedAgent([calls("pay"), "ok"], tools={"pay": lambda a, t: ToolResult("paid", writes)})
        agent.approval_tools = ["pay"]
        SessionRunner(agent).run(session)
        store.submit_tool_result(session, "call-1", approved=True)
        SessionRunner(agent).run(session)
        assert store.load_state(session).custom_state == {"paid": True}

    def test_the_writes_of_an_approved_call_that_cannot_be_applied(
        self, store: SessionStore, session: str
    ) -> None:
        """The run fails; what the tool said is kept."""
        writes = [{"op": "append", "path": ["text"], "values": [1]}]
        agent = ScriptedAgent([calls("pay")], tools={"pay": lambda a, t: ToolResult("paid", writes)})
        agent.approval_tools = ["pay"]
        store.merge_custom_state(session, [{"op": "set", "path": ["text"], "value": "x"}])
        SessionRunner(agent).run(session)
        store.submit_tool_result(session, "call-1", approved=True)
        assert SessionRunner(agent).run(session).kind == "failed"
        assert said(store, session)[-1] == ("tool", "paid")
        assert store.load_state(session).custom_state == {"text": "x"}
        assert not store.has_staged_changes(session)
        whole(store, session)

    def test_a_suspended_session_that_somebody_failed_begins_anew(
        self, store: SessionStore, session: str
    ) -> None:
        turn = store.begin_turn(session, message="hello")
        store.suspend(session, "step_partial", state=turn.state, run_id=turn.run.run_id)
        store.update_status(session, "failed")
        assert SessionRunner(ScriptedAgent(["again"])).run(session).kind == "completed"
        assert store.load_state(session).resume_count == 0
        whole(store, session)

    def test_the_suspended_kinds_of_others(self, store: SessionStore, session: str) -> None:
        runner = SessionRunner(ScriptedAgent(["again"]))
        turn = store.begin_turn(session, message="hello")
        store.suspend(session, "step_partial", state=turn.state, run_id=turn.run.run_id)
        assert runner.run(session).kind == "completed"
        turn = store.begin_turn(session)
        wait = {"parent_tool_call_id": "c", "sub_session_id": "child", "agent_type": "helper"}
        store.create_session("child", agent_type="helper", parent_session_id=session)
        call = {"id": "c", "name": "helper", "arguments": {}}
        store.suspend(
            session,
            "awaiting_children",
            state=turn.state,
            run_id=turn.run.run_id,
            append_messages=[{"role": "assistant", "content": "", "tool_calls": [call]}],
            awaiting_children=[wait],
        )
        assert runner.run(session).kind == "suspended_awaiting_children"
        store.settle_child("child", "completed", output="found")
        assert runner.run(session).kind == "completed"
        assert ("tool", "found") in said(store, session)
        whole(store, session)
