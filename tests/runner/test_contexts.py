"""What a runner shows the model: the context told, reconciled and compacted at each boundary."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync

from helix_sessions.exceptions import ContextOverflow, InvalidInput
from helix_sessions.runtime import CompactionPolicy, FixedText, SessionRunner, SummaryRequest
from helix_sessions.runtime.scheduling import configured_runner
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from helix_sessions.transcripts import open_tool_calls
from helix_sessions.types import UNAVAILABLE
from tests.contract.sources import Said
from tests.invariants import assert_invariants

pytestmark = pytest.mark.django_db(transaction=True)

SMALL = CompactionPolicy(100, buffer=0, keep_recent=10)


class Summarizer:
    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[SummaryRequest] = []

    def __call__(self, request: SummaryRequest) -> Any:
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else "summary"
        if isinstance(answer, Exception):
            raise answer
        return answer


def types(store: SessionStore, session: str, *wanted: str) -> list[str]:
    return [event.type for event in store.get_events(session, types=wanted)]


@pytest.fixture
def long(store: SessionStore, session: str) -> str:
    """A session that no longer fits."""
    store.append_messages(
        session, [{"role": "user", "content": "q" * 300}, {"role": "assistant", "content": "a" * 300}]
    )
    return session


def test_what_others_append_meanwhile_is_seen_in_the_next_turn(store: SessionStore, session: str) -> None:
    def remark(arguments: Any, turn: Any) -> str:
        SessionStore().append_messages(session, [{"role": "system", "content": "by the way"}])
        return "done"

    agent = ScriptedAgent([calls("remark"), calls("remark"), "ok"], tools={"remark": remark})
    store.admit_input(session, "hello")
    assert SessionRunner(agent).run(session).kind == "completed"
    roles = [[message["role"] for message in turn.context.messages] for turn in agent.turns]
    first = ["user", "assistant", "system", "tool"]
    assert roles == [["user"], first, [*first, "assistant", "system", "tool"]]


def test_what_an_agent_does_to_its_context_is_its_own_affair(store: SessionStore, session: str) -> None:
    def scribble(turn: Any) -> Any:
        turn.context.messages[0]["content"] = "scribbled"
        turn.context.messages.append({"role": "user", "content": "scribbled"})
        return calls("look")

    agent = ScriptedAgent([scribble, "ok"], tools={"look": lambda arguments, turn: 1})
    store.admit_input(session, "hello")
    SessionRunner(agent).run(session)
    assert [message.get("content") for message in agent.turns[-1].context.messages] == ["hello", "", 1]


class TestSources:
    def test_the_model_is_told_before_it_is_asked(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent()
        store.admit_input(session, "hello")
        outcome = SessionRunner(agent, sources=[FixedText("rules", "Be brief.")]).run(session)
        assert outcome.kind == "completed"
        [turn] = agent.turns
        assert turn.context.baseline == "Be brief."
        assert turn.context.messages == [
            {"role": "user", "id": turn.context.messages[0]["id"], "content": "hello"}
        ]
        assert turn.context.estimated_tokens > 0

    def test_each_turn_is_told_what_changed(self, store: SessionStore, session: str) -> None:
        source = Said("day", 1)

        def next_day(arguments: Any, turn: Any) -> str:
            source.value += 1
            return "slept"

        agent = ScriptedAgent([calls("sleep"), calls("sleep"), "done"], tools={"sleep": next_day})
        store.admit_input(session, "sleep twice")
        SessionRunner(agent, sources=[source]).run(session)
        assert {turn.context.baseline for turn in agent.turns} == {"day is 1."}
        last = agent.turns[-1].context.messages
        told = [message["content"] for message in last if message["role"] == "system"]
        assert told == ["day was 1 and is 2.", "day was 2 and is 3."]
        assert_invariants(session)

    def test_an_unavailable_source_stops_it_with_the_input_pending(
        self, store: SessionStore, session: str
    ) -> None:
        source, agent = Said("day"), ScriptedAgent()
        receipt = store.admit_input(session, "hello", resume=False)
        outcome = SessionRunner(agent, sources=[source]).run(session)
        assert outcome.kind == "failed"
        assert "day" in (outcome.error or "")
        assert agent.turns == []
        assert store.list_inputs(session) == [receipt]
        assert store.get_message_count(session) == 0
        source.value = 1
        assert SessionRunner(agent, sources=[source]).wake(session).kind == "completed"
        assert agent.turns[0].context.baseline == "day is 1."

    def test_later_it_goes_on_with_what_the_model_knows(self, store: SessionStore, session: str) -> None:
        source, agent = Said("day", 1), ScriptedAgent()
        runner = SessionRunner(agent, sources=[source])
        runner.run(session)
        source.value = UNAVAILABLE
        assert runner.run(session).kind == "completed"
        assert agent.turns[1].context.baseline == "day is 1."

    def test_nothing_comes_between_a_call_and_its_result(self, store: SessionStore, session: str) -> None:
        source = Said("day", 1)
        agent = ScriptedAgent([calls("ask"), "done"], client_tools=["ask"])
        runner = SessionRunner(agent, sources=[source])
        assert runner.run(session).kind == "suspended_client_tool"
        source.value = 2
        store.submit_tool_result(session, "call-1", result="yes")
        assert runner.run(session).kind == "completed"
        roles = [message["role"] for message in store.get_messages(session).messages]
        assert roles == ["assistant", "tool", "system", "assistant"]
        assert agent.turns[1].context.messages[-1]["content"] == "day was 1 and is 2."

    def test_a_source_that_is_unavailable_when_a_session_goes_on(
        self, store: SessionStore, session: str
    ) -> None:
        """The run fails, and is not left running with nobody who drives it."""
        agent = ScriptedAgent([calls("ask")], client_tools=["ask"])
        SessionRunner(agent).run(session)
        store.submit_tool_result(session, "call-1", result="yes")
        outcome = SessionRunner(agent, sources=[Said("day")]).run(session)
        assert outcome.kind == "failed"
        assert "day" in outcome.error["message"]
        assert store.get_current_run(session) is None
        assert store.load_state(session).failure_reason == "context_unavailable"

    def test_a_moved_session_is_driven_by_nobody_else(self, store: SessionStore, session: str) -> None:
        lease = store.acquire_lease(session, "old", 60)
        store.move_session(session, "elsewhere")
        assert store.get_lease(session) is None
        from helix_sessions.exceptions import Fenced

        with pytest.raises(Fenced):
            store.fenced(lease).append_messages(session, [{"role": "user", "content": "late"}])
        assert store.acquire_lease(session, "new", 60).fence == lease.fence + 2


class TestCompaction:
    def test_before_a_turn_that_is_due(self, store: SessionStore, long: str) -> None:
        agent, summarize = ScriptedAgent(), Summarizer()
        store.admit_input(long, "hello")
        runner = SessionRunner(agent, sources=[Said("day", 1)], compaction=SMALL, summarize=summarize)
        assert runner.run(long).kind == "completed"
        assert len(summarize.requests) == 1
        [seen] = agent.turns[0].context.messages
        assert seen["kind"] == "compaction"
        assert "hello" in seen["content"]
        [event] = store.get_events(long, types=["compacted"])
        assert event.data["reason"] == "due"
        assert types(store, long, "context_initialized", "context_replaced") == [
            "context_initialized",
            "context_replaced",
        ]

    def test_not_while_it_fits(self, store: SessionStore, long: str) -> None:
        summarize = Summarizer()
        policy = CompactionPolicy(1_000, buffer=0)
        SessionRunner(ScriptedAgent(), compaction=policy, summarize=summarize).run(long)
        assert summarize.requests == []

    def test_never_by_itself_without_auto(self, store: SessionStore, long: str) -> None:
        summarize = Summarizer()
        policy = CompactionPolicy(100, buffer=0, keep_recent=10, auto=False)
        agent = ScriptedAgent(["fine", ContextOverflow()])
        runner = SessionRunner(agent, compaction=policy, summarize=summarize)
        assert runner.run(long).kind == "completed"
        assert runner.run(long).kind == "failed"
        assert summarize.requests == []
        assert types(store, long, "compaction_started") == []

    def test_a_failing_summarizer_does_not_stop_the_turn(self, store: SessionStore, long: str) -> None:
        agent, summarize = ScriptedAgent(["fine"]), Summarizer(RuntimeError())
        assert SessionRunner(agent, compaction=SMALL, summarize=summarize).run(long).kind == "completed"
        assert len(agent.turns[0].context.messages) == 2

    def test_without_a_summarizer_it_goes_on_as_it_is(self, store: SessionStore, long: str) -> None:
        assert SessionRunner(ScriptedAgent(["fine"]), compaction=SMALL).run(long).kind == "completed"
        with pytest.raises(InvalidInput):
            SessionRunner(ScriptedAgent(), compaction=SMALL, summarize="x")
        with pytest.raises(InvalidInput):
            SessionRunner(ScriptedAgent(), compaction={"colour": 1})


LARGE = CompactionPolicy(1_000_000, keep_recent=10)


class TestOverflow:
    def test_one_compaction_and_one_retry_of_the_same_turn(self, store: SessionStore, long: str) -> None:
        store.admit_input(long, "hello")

        def overflow(turn: Any) -> Any:
            store.admit_input(long, "meanwhile", resume=False)
            raise ContextOverflow

        agent, summarize = ScriptedAgent([overflow, "fine"]), Summarizer()
        outcome = SessionRunner(agent, compaction=LARGE, summarize=summarize, turn_limit=1).run(long)
        first, second = agent.turns
        assert (first.turn_id, first.run) == (second.turn_id, second.run)
        assert second.context.messages[0]["kind"] == "compaction"
        assert len(second.context.messages) == 1
        assert "meanwhile" not in str(second.context.messages)
        assert [receipt.prompt for receipt in store.list_inputs(long)] == ["meanwhile"]
        [event] = store.get_events(long, types=["compacted"])
        assert event.data["reason"] == "overflow"
        assert outcome.kind in ("completed", "failed")  # the limit is one turn, and a steer waits
        assert len(summarize.requests) == 1

    def test_a_second_overflow_fails_the_run(self, store: SessionStore, long: str) -> None:
        agent, summarize = ScriptedAgent([ContextOverflow(), ContextOverflow("still too long")]), Summarizer()
        outcome = SessionRunner(agent, compaction=LARGE, summarize=summarize).run(long)
        assert outcome.kind == "failed"
        assert outcome.run is not None
        assert outcome.run.status == "failed"
        assert outcome.error["message"] == "still too long"
        assert len(summarize.requests) == 1
        assert len(agent.turns) == 2

    def test_not_after_durable_output(self, store: SessionStore, long: str) -> None:
        def overflow(turn: Any) -> Any:
            turn.emit("llm_responded", {"part": 1})
            raise ContextOverflow

        agent, summarize = ScriptedAgent([overflow]), Summarizer()
        assert SessionRunner(agent, compaction=LARGE, summarize=summarize).run(long).kind == "failed"
        assert summarize.requests == []

    @pytest.mark.parametrize("error", [RuntimeError("x"), ContextOverflow()])
    def test_nothing_to_fold_or_another_error_fails_it(
        self, store: SessionStore, session: str, error: Exception
    ) -> None:
        agent, summarize = ScriptedAgent([error]), Summarizer()
        assert SessionRunner(agent, compaction=LARGE, summarize=summarize).run(session).kind == "failed"
        assert (len(agent.turns), summarize.requests) == (1, [])

    def test_a_failing_summarizer_leaves_the_overflow(self, store: SessionStore, long: str) -> None:
        agent, summarize = ScriptedAgent([ContextOverflow("too long")]), Summarizer(RuntimeError("down"))
        outcome = SessionRunner(agent, compaction=LARGE, summarize=summarize).run(long)
        assert outcome.kind == "failed"
        assert outcome.error["message"] == "too long"

    def test_async_agents_and_summarizers(self, store: SessionStore, long: str) -> None:
        class Agent(ScriptedAgent):
            async def run_turn(self, turn: Any) -> Any:  # type: ignore[override]
                return super().run_turn(turn)

        async def summarize(request: SummaryRequest) -> str:
            return "summary"

        agent = Agent([ContextOverflow(), "fine"])
        runner = SessionRunner(agent, compaction=LARGE, summarize=summarize)
        assert async_to_sync(runner.arun)(long).kind == "completed"
        assert agent.turns[1].context.messages[0]["kind"] == "compaction"


class TestLongRuns:
    def test_a_run_that_compacts_again_and_again_stays_valid(self, store: SessionStore, session: str) -> None:
        """Each context is within the window, and no result in it is without its call."""
        script: list[Any] = []
        for _ in range(12):
            script += [calls("look"), "x" * 100]
        agent = ScriptedAgent(script, tools={"look": lambda arguments, turn: "y" * 60})
        policy = CompactionPolicy(200, buffer=0, keep_recent=40)
        summarize = Summarizer()
        runner = SessionRunner(agent, sources=[Said("day", 1)], compaction=policy, summarize=summarize)
        for number in range(12):
            store.admit_input(session, f"question {number} " + "z" * 60)
            assert runner.run(session).kind == "completed"
        assert len(summarize.requests) > 3
        for turn in agent.turns:
            messages = turn.context.messages
            assert open_tool_calls(messages) == []
            answered = {message["tool_call_id"] for message in messages if message["role"] == "tool"}
            made = {call["id"] for message in messages for call in message.get("tool_calls", [])}
            assert answered <= made
            assert not policy.due(turn.context)
        assert store.get_message_count(session) == 12 * 4
        assert_invariants(session)


def test_the_runner_of_the_settings(store: SessionStore, long: str, settings: Any) -> None:
    settings.HELIX_SESSIONS = {
        "CONTEXT_SOURCES": [("helix_sessions.runtime.FixedText", {"key": "rules", "text": "Be brief."})],
        "COMPACTION": {"context_window": 100, "buffer": 0, "keep_recent": 10},
        "SUMMARIZER": "project.summaries.brief",
    }
    agent = ScriptedAgent()
    configured_runner(agent, store).run(long)
    context = agent.turns[0].context
    assert context.baseline == "Be brief."
    assert context.messages[0]["kind"] == "compaction"
