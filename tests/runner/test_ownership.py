"""One drain per session across threads and processes; stopping it from anywhere; async agents."""

import asyncio
import threading
import time
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from helix_sessions.exceptions import SessionNotFound
from helix_sessions.runtime import SessionRunner, TurnContext, TurnOutcome
from helix_sessions.runtime.loop.lease_keeper import keeper
from helix_sessions.runtime.loop.run_loop import HandedOver
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import AsyncSessionStore, SessionStore
from helix_sessions.types import Lease, RunOutcome
from tests.contract.sources import Said
from tests.parallel import Worker, run_threads
from tests.runner.test_activities import run_of, said, whole

pytestmark = pytest.mark.django_db(transaction=True)


class Gate:
    """A turn that waits until it is let go, or asked to stop."""

    def __init__(self) -> None:
        self.entered, self.go = threading.Event(), threading.Event()

    def __call__(self, turn: TurnContext) -> str:
        self.entered.set()
        while not self.go.wait(0.01):
            if turn.interrupted():
                return "stopped"
        return "went on"


def in_thread(call: Any) -> tuple[threading.Thread, list[RunOutcome]]:
    outcomes: list[RunOutcome] = []

    def work() -> None:
        from django.db import connections

        try:
            outcomes.append(call())
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    return thread, outcomes


def kind_of(outcome: RunOutcome | Exception) -> str:
    assert isinstance(outcome, RunOutcome), outcome
    return outcome.kind


def lease_of(store: SessionStore, session: str) -> Lease:
    lease = store.get_lease(session)
    assert lease is not None
    return lease


class TestJoining:
    def test_a_run_joins_the_drain_under_way_and_shares_its_outcome(
        self, store: SessionStore, session: str
    ) -> None:
        gate = Gate()
        agent = ScriptedAgent([gate])
        runner = SessionRunner(agent)
        first, outcomes = in_thread(lambda: runner.run(session))
        assert gate.entered.wait(20)
        second, shared = in_thread(lambda: runner.run(session))
        third, others = in_thread(lambda: SessionRunner(agent).run(session))
        time.sleep(0.05)
        gate.go.set()
        for thread in (first, second, third):
            thread.join(20)
        assert outcomes == shared == others
        assert outcomes[0].kind == "completed"
        assert len(agent.turns) == 1

    def test_one_drain_for_many_callers(self, store: SessionStore, session: str) -> None:
        for number in range(6):
            store.admit_input(session, str(number), delivery="queue")
        agent = ScriptedAgent()
        runner = SessionRunner(agent)
        outcomes = run_threads(6, lambda index: runner.wake(session))
        assert {kind_of(outcome) for outcome in outcomes} <= {"completed", "idle"}
        assert [content for role, content in said(store, session) if role == "user"] == list("012345")
        assert len(agent.turns) == 6
        whole(store, session)

    def test_different_sessions_side_by_side(self, store: SessionStore) -> None:
        barrier = threading.Barrier(3, timeout=20)

        def together(turn: TurnContext) -> str:
            barrier.wait()
            return "ok"

        for number in range(3):
            store.create_session(f"s{number}", agent_type="writer")
        runner = SessionRunner(ScriptedAgent([together] * 3))
        outcomes = run_threads(3, lambda index: runner.run(f"s{index}"))
        assert [kind_of(outcome) for outcome in outcomes] == ["completed"] * 3

    def test_the_drain_of_another_process(self, store: SessionStore, session: str) -> None:
        """An owner this process knows nothing of."""
        refused = threading.Event()

        class Watched(SessionStore):
            def get_lease(self, session_id: str) -> Lease | None:
                refused.set()  # it waits for whoever has the lease
                return super().get_lease(session_id)

        lease = store.acquire_lease(session, "elsewhere", 60)
        agent = ScriptedAgent()
        runner = SessionRunner(agent, store=Watched())
        assert runner.wake(session).kind == "idle"
        refused.clear()
        thread, outcomes = in_thread(lambda: runner.run(session))
        assert refused.wait(20)
        owner = store.fenced(lease)
        turn = owner.begin_turn(session, message="hello")
        owner.append_messages(session, [{"role": "assistant", "content": "hi"}])
        owner.update_run_status(session, turn.run.run_id, "completed", output={"by": "another"})
        store.release_lease(lease)
        thread.join(20)
        assert (outcomes[0].kind, outcomes[0].output) == ("completed", {"by": "another"})
        assert agent.turns == []


class TestLeases:
    def test_the_lease_is_held_while_it_runs_and_given_back(self, store: SessionStore, session: str) -> None:
        agent = ScriptedAgent([lambda turn: lease_of(store, session).owner])
        SessionRunner(agent, owner="me", lease_ttl=7).run(session)
        assert said(store, session) == [("assistant", "me")]
        assert store.get_lease(session) is None

    def test_a_runner_confined_to_an_owner_drives_no_other_sessions(
        self, store: SessionStore, django_user_model: Any
    ) -> None:
        ann, bob = (django_user_model.objects.create_user(name) for name in ("ann", "bob"))
        for owner in (ann, bob):
            store.create_session(f"of {owner.username}", agent_type="writer", owner=owner)
            store.admit_input(f"of {owner.username}", "Hello")
        agent = ScriptedAgent(["hello"] * 9)
        runner = SessionRunner(agent, store=SessionStore(owned_by=ann))
        assert runner.sweep() == 1
        for call in (runner.run, runner.wake):
            with pytest.raises(SessionNotFound):
                call("of bob")
        assert said(store, "of ann") == [("user", "Hello"), ("assistant", "hello")]
        assert store.get_messages("of bob").messages == []
        assert [summary.session_id for summary in store.list_runnable()] == ["of bob"]

    def test_the_session_that_has_been_runnable_for_longest_is_claimed_first(
        self, store: SessionStore
    ) -> None:
        for key, agent_type in {"d": "one", "b": "two", "c": "one", "a": "two"}.items():
            store.create_session(key, agent_type=agent_type)
            store.request_run(key)
        for types, order in ((None, "dbca"), (["one", "two"], "dbca"), (["two"], "ba")):
            runner = SessionRunner(ScriptedAgent(), agent_types=types)
            claimed = [driver for _ in range(4) if (driver := runner.claim()) is not None]
            assert "".join(driver.session_id for driver in claimed) == order, types
            for driver in claimed:
                driver.release()
            for key in "dbca":
                store.request_run(key)

    def test_a_wake_at_the_end_of_a_drive_makes_it_look_once_more(
        self, store: SessionStore, session: str
    ) -> None:
        """When the session is given back already, and this process still counts as its driver."""
        agent = ScriptedAgent(["one", "two"])

        class Ending(SessionRunner):
            was_woken = False

            async def _own(self, *args: Any, **kwargs: Any) -> RunOutcome | None:
                outcome = await super()._own(*args, **kwargs)
                if not self.was_woken:
                    self.was_woken = True
                    store.admit_input(session, "late")
                    assert SessionRunner(agent).wake(session).kind == "idle"
                return outcome

        store.admit_input(session, "early")
        assert Ending(agent).wake(session).kind == "completed"
        assert [content for role, content in said(store, session) if role == "user"] == ["early", "late"]
        assert store.list_inputs(session) == []

    def test_it_is_renewed_in_the_background(self, store: SessionStore, session: str) -> None:
        def slow(turn: TurnContext) -> str:
            first = lease_of(store, session)
            deadline = time.monotonic() + 20
            while lease_of(store, session).expires_at == first.expires_at:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            return "ok"

        runner = SessionRunner(ScriptedAgent([slow]), lease_ttl=0.6)
        assert runner.run(session).kind == "completed"

    def test_an_owner_that_lost_it_writes_nothing_and_shares_what_the_next_did(
        self, store: SessionStore, session: str
    ) -> None:
        agent = ScriptedAgent()
        second = SessionRunner(ScriptedAgent(["by the second"]), owner="second")

        def paused(turn: TurnContext) -> str:
            """As if the process had been stopped for longer than its lease."""
            store.renew_lease(lease_of(store, session), 0)
            taken = store.acquire_lease(session, "second", 60)
            fenced = store.fenced(taken)
            fenced.wake(session)
            begun = fenced.begin_turn(session)
            fenced.append_messages(session, [{"role": "assistant", "content": "by the second"}])
            fenced.update_run_status(session, begun.run.run_id, "completed")
            store.release_lease(taken)
            return "too late"

        agent = ScriptedAgent([paused])
        outcome = SessionRunner(agent, owner="first").run(session)
        assert outcome.kind == "completed"
        assert said(store, session) == [("assistant", "by the second")]
        assert second.wake(session).kind == "idle"
        whole(store, session)

    def test_a_model_is_not_asked_for_a_session_that_was_lost_at_the_boundary(
        self, store: SessionStore, session: str
    ) -> None:
        """Lost after the last write, so that nothing but a look at the lease can tell."""

        class Day(Said):
            def observe(self, session: Any) -> Any:
                if agent.turns:
                    store.renew_lease(lease_of(store, "s"), 0)
                    store.acquire_lease("s", "second", 60)
                return super().observe(session)

        agent = ScriptedAgent([calls("work")] * 2, tools={"work": lambda arguments, turn: "done"})
        store.admit_input(session, "hello")
        assert SessionRunner(agent, sources=[Day("day", 1)]).wake(session).kind == "idle"
        assert len(agent.turns) == 1
        assert lease_of(store, session).owner == "second"

    def test_one_that_was_deleted_and_made_again_is_another(self, store: SessionStore, session: str) -> None:
        """Its fences begin at the same number; the owner of the one before is told to stop."""
        gate = Gate()
        store.admit_input(session, "hello")
        thread, outcomes = in_thread(
            lambda: SessionRunner(ScriptedAgent([gate]), lease_ttl=300).wake(session)
        )
        assert gate.entered.wait(20)
        before = lease_of(store, session)
        with transaction.atomic():
            store.delete_session(session)
            store.create_session(session, agent_type="writer")
            assert store.acquire_lease(session, "another", 60).fence == before.fence
        thread.join(20)
        has_stopped = not thread.is_alive()
        gate.go.set()
        thread.join(20)
        assert has_stopped, "nobody else lets it go"
        assert [outcome.kind for outcome in outcomes] == ["idle"]
        assert store.get_messages(session).messages == []

    def test_a_process_that_ends_hands_over_at_the_next_boundary(
        self, store: SessionStore, session: str
    ) -> None:
        ran: list[Any] = []

        def leave(arguments: Any, turn: TurnContext) -> str:
            ran.append(arguments)
            keeper.leave_all()
            return "done"

        agent = ScriptedAgent([calls("leave"), "never"], tools={"leave": leave})
        with pytest.raises(HandedOver):
            SessionRunner(agent).run(session)
        assert [summary.session_id for summary in store.list_abandoned()] == [session]
        assert SessionRunner(ScriptedAgent(["by the next"], tools=agent.tools)).sweep() == 1
        assert said(store, session)[1:] == [("tool", "done"), ("assistant", "by the next")]
        assert len(ran) == 1
        whole(store, session)


class TestInterrupt:
    @pytest.mark.parametrize("through", ["the same runner", "another runner", "the flag"])
    def test_it_reaches_the_owner_waits_and_keeps_the_inbox(
        self, store: SessionStore, session: str, through: str
    ) -> None:
        gate = Gate()
        agent = ScriptedAgent([gate])
        runner = SessionRunner(agent)
        for number in range(3):
            store.admit_input(session, str(number), delivery="queue")
        thread, outcomes = in_thread(lambda: runner.wake(session))
        assert gate.entered.wait(20)
        if through == "the flag":
            store.set_interrupt_flag(session, "enough")
        else:
            other = runner if through == "the same runner" else SessionRunner(ScriptedAgent())
            stopped = other.interrupt(session, "enough", timeout=20)
            assert (stopped.kind, run_of(stopped).status) == ("interrupted", "interrupted")
            assert store.get_lease(session) is None
        thread.join(20)
        assert outcomes[0].kind == "interrupted"
        state = store.load_state(session)
        assert (state.status, state.interrupt_context) == ("interrupted", {"reason": "enough"})
        assert store.peek_interrupt_flag(session) is None
        assert [receipt.prompt for receipt in store.list_inputs(session)] == ["1", "2"]
        assert said(store, session) == [("user", "0"), ("assistant", "stopped")]
        assert runner.wake(session).kind == "completed"
        assert store.list_inputs(session) == []
        whole(store, session)

    def test_idle_or_missing_is_no_op(self, store: SessionStore, session: str) -> None:
        runner = SessionRunner(ScriptedAgent())
        before = store.load_state(session)
        assert runner.interrupt(session) == RunOutcome(kind="idle")
        assert runner.interrupt("missing") == RunOutcome(kind="idle")
        assert store.load_state(session) == before

    def test_an_old_request_does_not_stop_the_next_run(self, store: SessionStore, session: str) -> None:
        store.set_interrupt_flag(session, "long ago")
        assert SessionRunner(ScriptedAgent()).run(session).kind == "completed"
        assert store.peek_interrupt_flag(session) is None

    def test_an_old_request_does_not_stop_a_run_that_is_being_prepared(
        self, store: SessionStore, session: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.set_interrupt_flag(session, "old")
        store.admit_input(session, "hello")
        looks = threading.Semaphore(0)
        look = type(keeper)._look

        def counted(*args: Any) -> None:
            look(*args)
            looks.release()

        monkeypatch.setattr(type(keeper), "_look", counted)

        class Slow(Said):
            def observe(self, session: Any) -> Any:
                assert all(looks.acquire(timeout=20) for _ in range(2)), "the keeper has looked meanwhile"
                return super().observe(session)

        runner = SessionRunner(ScriptedAgent(["hello"]), sources=[Slow("day", 1)])
        assert runner.wake(session).kind == "completed"

    def test_an_owner_that_dies_before_it_stops(self, store: SessionStore, session: str) -> None:
        """Whoever asked waits no longer than its lease, and the request is met by the next who looks."""
        dead = store.fenced(store.acquire_lease(session, "dead", 0.3))
        dead.begin_turn(session, message="hello")
        agent = ScriptedAgent()
        assert SessionRunner(agent).interrupt(session, "enough", timeout=20).kind == "idle"
        assert SessionRunner(agent).sweep() == 1
        assert agent.turns == []
        state = store.load_state(session)
        assert (state.status, state.interrupt_context) == ("interrupted", {"reason": "enough"})
        whole(store, session)

    def test_between_two_activities(self, store: SessionStore, session: str) -> None:
        for name in ("one", "two"):
            store.admit_input(session, name, delivery="queue")

        def stop_after(turn: TurnContext) -> TurnOutcome:
            store.set_interrupt_flag(session)
            return TurnOutcome("last words")

        agent = ScriptedAgent([stop_after])
        assert SessionRunner(agent).wake(session).kind == "interrupted"
        assert said(store, session) == [("user", "one"), ("assistant", "last words")]
        assert [receipt.prompt for receipt in store.list_inputs(session)] == ["two"]
        assert store.peek_interrupt_flag(session) is None

    def test_a_request_between_the_claim_and_the_run(self, store: SessionStore, session: str) -> None:
        """It is meant for this owner, unlike one that was there before."""
        store.set_interrupt_flag(session, "long ago")
        store.admit_input(session, "hello")
        agent = ScriptedAgent()
        runner = SessionRunner(agent)
        driver = runner.claim()
        assert driver is not None
        store.set_interrupt_flag(session, "enough")
        runner.drive_claimed(driver)
        state = store.load_state(session)
        assert (state.status, state.interrupt_context) == ("interrupted", {"reason": "enough"})
        assert agent.turns == []
        assert len(store.list_inputs(session)) == 1
        whole(store, session)

    def test_tools_that_were_running_are_awaited_and_their_results_kept(
        self, store: SessionStore, session: str
    ) -> None:
        started = threading.Event()

        def slow(arguments: Any, turn: TurnContext) -> str:
            started.set()
            while not turn.interrupted():
                time.sleep(0.01)
            return "half done"

        agent = ScriptedAgent([calls("slow")], tools={"slow": slow})
        thread, _ = in_thread(lambda: SessionRunner(agent).run(session))
        assert started.wait(20)
        assert SessionRunner(agent).interrupt(session, timeout=20).kind == "interrupted"
        thread.join(20)
        assert said(store, session)[1] == ("tool", "half done")
        whole(store, session)

    def test_what_waits_for_a_client_is_not_waited_for(self, store: SessionStore, session: str) -> None:
        def stop(arguments: Any, turn: TurnContext) -> str:
            store.set_interrupt_flag(session, "enough")
            return "done"

        agent = ScriptedAgent([calls("stop", "ask")], tools={"stop": stop}, client_tools=["ask"])
        assert SessionRunner(agent).run(session).kind == "interrupted"
        state = store.load_state(session)
        assert (state.status, state.pending_client_tool_calls) == ("interrupted", None)
        results = [message for message in store.get_messages(session).messages if message["role"] == "tool"]
        assert [message.get("is_error", False) for message in results] == [False, True]
        whole(store, session)

    def test_an_agent_that_does_not_listen(self, store: SessionStore, session: str) -> None:
        go, entered = threading.Event(), threading.Event()

        def deaf(turn: TurnContext) -> str:
            entered.set()
            go.wait(20)
            return "at last"

        runner = SessionRunner(ScriptedAgent([deaf]))
        thread, outcomes = in_thread(lambda: runner.run(session))
        assert entered.wait(20)
        stopped = runner.interrupt(session, timeout=0.1)
        assert (run_of(stopped).status, bool(stopped.error)) == ("running", True)
        go.set()
        thread.join(20)
        assert outcomes[0].kind == "interrupted"
        assert said(store, session) == [("assistant", "at last")]


class AsyncAgent:
    def __init__(self, *script: Any, **tools: Any) -> None:
        self.script, self.tools = iter(script), tools

    async def run_turn(self, turn: TurnContext) -> Any:
        line = next(self.script, "ok")
        line = await line(turn) if callable(line) else line
        return line if isinstance(line, TurnOutcome) else TurnOutcome(line)


async def forever(turn: TurnContext) -> str:
    await asyncio.Event().wait()
    return "never"


class TestAsync:
    @pytest.mark.parametrize("way", ["run", "arun"])
    def test_async_turns_and_tools(self, store: SessionStore, session: str, way: str) -> None:
        together = threading.Barrier(2, timeout=20)

        async def tool(arguments: Any, turn: TurnContext) -> str:
            await asyncio.sleep(0)
            await turn.emit("noted")
            return "async"

        def plain(arguments: Any, turn: TurnContext) -> str:
            together.wait()
            return "plain"

        async def think(turn: TurnContext) -> dict[str, Any]:
            turn.emit("thought")
            turn.publish_fragment("hel")
            assert not turn.interrupted()
            return calls("tool", "plain", "plain")

        runner = SessionRunner(AsyncAgent(think, tool=tool, plain=plain))
        outcome = runner.run(session) if way == "run" else async_to_sync(runner.arun)(session)
        assert outcome.kind == "completed"
        assert [content for role, content in said(store, session) if role == "tool"] == [
            "async",
            "plain",
            "plain",
        ]
        assert len(store.get_events(session, types=["thought", "noted"])) == 2
        whole(store, session)

    def test_a_plain_agent_on_a_loop(self, store: SessionStore, session: str) -> None:
        runner = SessionRunner(ScriptedAgent([calls("tool"), "ok"], tools={"tool": lambda a, t: 1}))
        store.admit_input(session, "hello")
        assert async_to_sync(runner.awake)(session).kind == "completed"
        assert async_to_sync(runner.awake)(session).kind == "idle"
        whole(store, session)

    @pytest.mark.parametrize("way", ["run", "arun"])
    def test_what_does_not_heed_a_request_to_stop_is_cancelled(
        self, store: SessionStore, session: str, way: str
    ) -> None:
        runner = SessionRunner(AsyncAgent(forever))
        call = runner.run if way == "run" else async_to_sync(runner.arun)
        thread, outcomes = in_thread(lambda: call(session))
        deadline = time.monotonic() + 20
        while store.get_current_run(session) is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert SessionRunner(ScriptedAgent()).interrupt(session, timeout=20).kind == "interrupted"
        thread.join(20)
        assert outcomes[0].kind == "interrupted"
        whole(store, session)

    def test_many_on_one_loop(self, store: SessionStore, session: str) -> None:
        store.create_session("t", agent_type="writer")

        async def scenario() -> list[RunOutcome]:
            met = asyncio.Barrier(2)

            async def meet(turn: TurnContext) -> str:
                await asyncio.wait_for(met.wait(), 20)
                return "met"

            runner = SessionRunner(AsyncAgent(meet, meet), store=AsyncSessionStore())
            first, second, third = await asyncio.gather(runner.arun("s"), runner.arun("t"), runner.arun("s"))
            assert first == third
            return [first, second]

        assert [outcome.kind for outcome in async_to_sync(scenario)()] == ["completed"] * 2

    def test_interrupted_on_the_same_loop(self, store: SessionStore, session: str) -> None:
        async def scenario() -> list[RunOutcome]:
            runner = SessionRunner(AsyncAgent(forever))
            drain = asyncio.create_task(runner.arun(session))
            astore = AsyncSessionStore()
            while await astore.get_current_run(session) is None:
                await asyncio.sleep(0.01)
            return [await runner.ainterrupt(session, "enough"), await drain]

        stopped, drained = async_to_sync(scenario)()
        assert stopped == drained
        assert stopped.kind == "interrupted"
        whole(store, session)

    def test_a_cancelled_caller_hands_the_session_over(self, store: SessionStore, session: str) -> None:
        async def scenario() -> None:
            drain = asyncio.create_task(SessionRunner(AsyncAgent(forever)).arun(session))
            astore = AsyncSessionStore()
            while await astore.get_current_run(session) is None:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            drain.cancel()
            with pytest.raises(asyncio.CancelledError):
                await drain

        store.admit_input(session, "hello")
        async_to_sync(scenario)()
        assert [summary.session_id for summary in store.list_abandoned()] == [session]
        assert SessionRunner(ScriptedAgent()).sweep() == 1
        assert said(store, session) == [("user", "hello"), ("assistant", "hello")]
        whole(store, session)


def drive(key: str, owner: str) -> str:
    """In another process: a turn that never ends by itself."""
    runner = SessionRunner(ScriptedAgent([Gate()]), owner=owner, lease_ttl=2)
    return runner.wake(key).kind


def test_an_owner_in_another_process_is_stopped_through_the_flag(store: SessionStore, session: str) -> None:
    store.admit_input(session, "hello")
    worker = Worker(drive, session, "elsewhere")
    try:
        worker.wait_until_ready()
        worker.go()
        deadline = time.monotonic() + 30
        while store.get_current_run(session) is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        stopped = SessionRunner(ScriptedAgent()).interrupt(session, "enough", timeout=30)
        assert (stopped.kind, run_of(stopped).status) == ("interrupted", "interrupted")
        assert worker.result(30) == "interrupted"
    finally:
        worker.kill()
    whole(store, session)
