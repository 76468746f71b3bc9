"""Sub-agents: spawned with the suspension of their parent, run on any worker, settled with their end."""

from typing import Any

import pytest

from helix_sessions.runtime import (
    AgentDefinition,
    Budget,
    ChangeBudget,
    SessionRunner,
    SessionRuntime,
    Spawn,
    ToolResult,
    TurnContext,
    TurnOutcome,
)
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from helix_sessions.types import SubSessionRef
from tests.contract.suspended import child
from tests.invariants import assert_invariants
from tests.rows import each
from tests.runner.test_activities import said, whole

pytestmark = pytest.mark.django_db(transaction=True)


class Parent:
    """Asks the sub-agents that the prompt names, and says what they said."""

    subagents = {"research": "researcher"}
    client_tools = ("ask",)
    tools: dict[str, Any]

    def __init__(self, *names: str, **tools: Any) -> None:
        self.names = names
        self.tools = tools

    def run_turn(self, turn: TurnContext) -> Any:
        last = turn.context.messages[-1]
        if last["role"] == "user":
            listed = [
                {"id": f"c{number}", "name": name, "arguments": {"prompt": f"{name} {number}"}}
                for number, name in enumerate(self.names, 1)
            ]
            return TurnOutcome({"role": "assistant", "content": "", "tool_calls": listed})
        results = [message for message in turn.context.messages if message["role"] == "tool"]
        return TurnOutcome("ok", output=[message["content"] for message in results])


class Child:
    def run_turn(self, turn: TurnContext) -> Any:
        prompt = turn.context.messages[-1]["content"]
        if "fail" in prompt:
            raise ValueError(prompt)
        return TurnOutcome(f"did {prompt}", output={"did": prompt} if "output" in prompt else None)


def start(store: SessionStore, agent: Any, session: str = "p") -> str:
    store.create_session(session, agent_type="parent")
    return start_again(store, agent, session)


def work(agent: Any, *, types: Any = ("researcher",)) -> int:
    return SessionRunner(agent, agent_types=types).sweep()


def refs(store: SessionStore, session: str = "p") -> list[SubSessionRef]:
    return store.get_sub_session_refs(session)


def test_a_named_sub_agent(store: SessionStore) -> None:
    agent = Parent("research", "research")
    assert start(store, agent) == "suspended_awaiting_children"
    assert [(ref.agent_type, ref.mode, ref.status) for ref in refs(store)] == [
        ("researcher", "ephemeral", "active")
    ] * 2
    assert store.get_lease("p") is None
    assert SessionRunner(agent, agent_types=["parent"]).sweep() == 0
    assert work(Child()) == 2
    assert SessionRunner(agent, agent_types=["parent"]).sweep() == 1
    state = store.load_state("p")
    assert (state.status, state.output) == ("completed", ["did research 1", "did research 2"])
    assert {ref.status for ref in refs(store)} == {"completed"}
    for ref in refs(store):
        state = store.load_state(ref.sub_session_id)
        assert (state.parent_session_id, state.root_session_id) == ("p", "p")
        whole(store, ref.sub_session_id)
    whole(store, "p")


def test_a_tool_that_spawns(store: SessionStore) -> None:
    def delegate(arguments: Any, turn: TurnContext) -> Spawn:
        return Spawn("researcher", "with output", custom_state={"a": 1})

    agent = Parent("delegate", "plain", delegate=delegate, plain=lambda arguments, turn: "here")
    assert start(store, agent) == "suspended_awaiting_children"
    [ref] = refs(store)
    assert store.load_state(ref.sub_session_id).custom_state == {"a": 1}
    work(Child())
    SessionRunner(agent, agent_types=["parent"]).sweep()
    assert store.load_state("p").output == ["here", {"did": "with output"}]
    whole(store, "p")


def test_a_failed_child_is_an_error_result(store: SessionStore) -> None:
    agent = Parent("delegate", delegate=lambda arguments, turn: Spawn("researcher", "fail"))
    start(store, agent)
    work(Child())
    SessionRunner(agent, agent_types=["parent"]).sweep()
    [result] = [m for m in store.get_messages("p").messages if m["role"] == "tool"]
    assert result["is_error"] is True
    assert [ref.status for ref in refs(store)] == ["failed"]
    assert store.load_state("p").status == "completed"
    whole(store, "p")


@each(
    "spawn",
    [
        Spawn("x" * 400, "go"),
        Spawn("x\0y", "go"),
        Spawn("researcher", {"content": {1}}),
        Spawn("researcher", "lone \ud800"),
        Spawn("researcher", "go", custom_state={"a": float("nan")}),
    ],
    ids=lambda spawn: repr(spawn)[:60],
)
def test_a_spawn_that_cannot_be_stored_is_an_error_result(store: SessionStore, spawn: Spawn) -> None:
    agent = Parent("delegate", delegate=lambda arguments, turn: spawn)
    assert start(store, agent) == "completed"
    [result] = [m for m in store.get_messages("p").messages if m["role"] == "tool"]
    assert result["is_error"] is True
    assert refs(store) == []
    whole(store, "p")
    store.delete_session("p")


def test_a_mixed_batch(store: SessionStore) -> None:
    agent = Parent("research", "ask", "plain", plain=lambda arguments, turn: "here")
    assert start(store, agent) == "suspended_step_partial"
    assert [content for role, content in said(store, "p") if role == "tool"] == ["here"]
    work(Child())
    assert SessionRunner(agent, agent_types=["parent"]).sweep() == 0
    store.submit_tool_result("p", "c2", result="answered")
    assert SessionRunner(agent, agent_types=["parent"]).sweep() == 1
    assert sorted(map(str, store.load_state("p").output)) == ["answered", "did research 1", "here"]
    whole(store, "p")


def test_a_child_failed_by_the_suspension_is_respawned_on_resume(store: SessionStore) -> None:
    """A sub-session that nobody waits for runs while its parent begins to wait, and is below another."""
    store.create_session("p", agent_type="parent")
    for key, above in (("kid", "p"), ("grandkid", "kid")):
        store.create_session(key, agent_type="researcher", parent_session_id=above)
        store.add_sub_session_refs(above, [SubSessionRef(sub_session_id=key, agent_type="researcher")])
        store.begin_turn(key, message=key)
    assert start_again(store, Parent("ask")) == "suspended_client_tool"
    for key in ("kid", "grandkid"):
        state = store.load_state(key)
        assert (state.status, state.failure_reason) == ("failed", "parent_suspended"), key
    assert work(Child()) == 0
    store.submit_tool_result("p", "c1", result="answered")
    assert SessionRunner(Parent("ask"), agent_types=["parent"]).sweep() == 1
    assert [ref.status for ref in refs(store)] == ["active"]
    assert work(Child()) == 2
    for key in ("kid", "grandkid"):
        assert said(store, key)[-1] == ("assistant", f"did {key}")
        whole(store, key)
    assert [(ref.status, ref.result) for ref in refs(store)] == [("completed", "did kid")]
    whole(store, "p")


def start_again(store: SessionStore, agent: Any, session: str = "p") -> str:
    store.admit_input(session, "go")
    return SessionRunner(agent, agent_types=["parent"]).wake(session).kind


def test_a_companion_answers_one_call_of_a_turn(store: SessionStore) -> None:
    def spawn(arguments: Any, turn: TurnContext) -> Spawn:
        return Spawn("researcher", arguments["prompt"], mode="persistent", name=turn.tool_name)

    agent = Parent("her", "her", "him", her=spawn, him=spawn)
    assert start(store, agent) == "suspended_awaiting_children"
    assert work(Child()) == 2
    assert SessionRunner(agent, agent_types=["parent"]).sweep() == 1
    results = {m["tool_call_id"]: m for m in store.get_messages("p").messages if m["role"] == "tool"}
    assert [results[call].get("is_error", False) for call in ("c1", "c2", "c3")] == [False, True, False]
    assert [results[call]["content"] for call in ("c1", "c3")] == ["did her 1", "did him 3"]
    whole(store, "p")


def test_a_companion_is_continued(store: SessionStore) -> None:
    spawn = Spawn("researcher", "hello", mode="persistent", name="ann")
    agent = Parent("delegate", delegate=lambda arguments, turn: spawn)
    for number in (1, 2):
        if number == 1:
            start(store, agent)
        else:
            store.admit_input("p", "again")
            SessionRunner(agent, agent_types=["parent"]).wake("p")
        companion = store.load_state(refs(store)[0].sub_session_id)
        assert (companion.status, companion.output) == ("active", None), "it has not answered yet"
        assert work(Child()) == 1
        assert SessionRunner(agent, agent_types=["parent"]).sweep() == 1
        [ref] = refs(store)
        assert (ref.mode, ref.status) == ("persistent", "completed")
    assert [content for role, content in said(store, ref.sub_session_id) if role == "user"] == ["hello"] * 2
    assert [content for role, content in said(store, "p") if role == "tool"] == ["did hello"] * 2
    whole(store, "p")


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_a_stopped_parent_interrupts_its_ephemeral_children(store: SessionStore, status: str) -> None:
    start(store, Parent("research"))
    store.update_status("p", status)
    [ref] = refs(store)
    assert store.load_state(ref.sub_session_id).status == "interrupted"
    assert work(Child()) == 0
    assert_invariants("p")


def test_a_child_that_was_stopped_and_made_active_again_answers_its_parent(store: SessionStore) -> None:
    """Its prompt was taken by the run that was stopped, so it has no input that would make it run."""
    for status in ("interrupted", "paused"):
        agent = Parent("research")
        start(store, agent, status)
        kid = refs(store, status)[0].sub_session_id

        def stop(turn: TurnContext, kid: str = kid, status: Any = status) -> str:
            store.update_status(kid, status)
            return "too late"

        work(ScriptedAgent([stop]))
        assert store.load_state(kid).status == status
        assert work(Child()) == 0, "it waits for a person"
        store.update_status(kid, "active")
        assert work(Child()) == 1, status
        assert work(agent, types=["parent"]) == 1, status
        assert store.load_state(status).output == ["did research 1"], status
        assert_invariants(status)
        assert_invariants(kid)


def test_a_run_that_fails_takes_the_ephemeral_children_with_it(store: SessionStore) -> None:
    """Those, too, that code made and nobody waits for."""

    def fail(turn: TurnContext) -> Any:
        child(store, "p", "kid", "c")
        child(store, "p", "companion", "d", mode="persistent")
        raise ValueError

    assert start(store, ScriptedAgent([fail])) == "failed"
    kid = store.load_state("kid")
    assert (kid.status, kid.failure_reason) == ("interrupted", "parent_failed")
    assert store.load_state("companion").status == "active"
    assert_invariants("p")


def test_a_child_belongs_to_whom_its_parent_belongs_to(store: SessionStore, django_user_model: Any) -> None:
    ann = django_user_model.objects.create_user("ann")
    store.create_session("p", agent_type="parent", owner=ann, user_id="ann at home")
    store.admit_input("p", "go")
    SessionRunner(Parent("research"), agent_types=["parent"]).wake("p")
    [ref] = refs(store)
    state = SessionStore(owned_by=ann).load_state(ref.sub_session_id)
    assert (state.owner_id, state.user_id) == (ann.pk, "ann at home")
    assert SessionRunner(Child(), store=SessionStore(owned_by=ann), agent_types=["researcher"]).sweep() == 1


def test_limits(store: SessionStore, settings: Any) -> None:
    settings.HELIX_SESSIONS = {"MAX_CHILDREN_PER_TURN": 2}
    start(store, Parent("research", "research", "research"))
    assert len(refs(store)) == 2
    [refused] = [m for m in store.get_messages("p").messages if m["role"] == "tool"]
    assert refused["is_error"] is True


def test_depth(store: SessionStore, settings: Any) -> None:
    settings.HELIX_SESSIONS = {"MAX_SUBAGENT_DEPTH": 2}
    agent = Parent("delegate", delegate=lambda arguments, turn: Spawn("parent", "deeper"))
    start(store, agent)
    runner = SessionRunner(agent)
    for _ in range(10):
        if not runner.sweep():
            break
    assert store.load_state("p").status == "completed"
    family = [store.load_state(summary.session_id) for summary in store.list_sessions(limit=50).items]
    assert [state.root_session_id for state in family if state.session_id != "p"] == ["p", "p"]
    whole(store, "p")


class Costly(Child):
    """Uses 100 tokens in each of its turns, which are two."""

    tools = {"think": lambda arguments, turn: "hm"}

    def run_turn(self, turn: TurnContext) -> Any:
        usage = {"input_tokens": 60, "output_tokens": 40}
        if turn.context.messages[-1]["role"] == "tool":
            return TurnOutcome("did", usage=usage)
        return TurnOutcome(calls("think"), usage=usage)


def with_budget(store: SessionStore, agent: Any, **limits: Any) -> None:
    SessionRuntime().create(AgentDefinition("parent", budget=Budget(**limits)), session_id="p")
    store.admit_input("p", "go")
    assert SessionRunner(agent, agent_types=["parent"]).wake("p").kind == "suspended_awaiting_children"


def go_on(store: SessionStore, agent: Any) -> tuple[str, Any]:
    assert SessionRunner(agent, agent_types=["parent"]).sweep() == 1
    state = store.load_state("p")
    return state.status, None if state.error is None else state.error["code"]


class TestBudgets:
    def test_they_count_the_tree(self, store: SessionStore) -> None:
        agent = Parent("research")
        with_budget(store, agent, max_tokens=150)
        assert work(Costly()) == 1
        [ref] = refs(store)
        assert store.load_state(ref.sub_session_id).status == "completed"
        assert store.get_usage("p", tree=True).input_tokens == 120
        assert go_on(store, agent) == ("paused", "budget_exceeded")
        assert store.list_inputs("p") == []

    def test_what_each_child_used_counts_once(self, store: SessionStore) -> None:
        """Also after further suspensions of the same activity."""
        agent = ScriptedAgent(*[[calls("research", prompt="go")]] * 3, "done")
        agent.subagents = {"research": "researcher"}
        with_budget(store, agent, max_tokens=650, max_steps=11)
        for _ in range(2):
            assert work(Costly()) == 1
            assert go_on(store, agent) == ("active", None)
        assert work(Costly()) == 1
        assert go_on(store, agent) == ("completed", None)
        assert [turn.budget.max_tokens for turn in agent.turns if turn.budget] == [650, 450, 250, 50]
        assert [turn.budget.max_steps for turn in agent.turns if turn.budget] == [11, 8, 5, 2]

    def test_siblings_draw_on_one(self, store: SessionStore) -> None:
        """Each begins with what is left of it then, and those that come too late begin no turn."""
        with_budget(store, Parent("research", "research", "research"), max_tokens=250)
        left = []

        class Noting(Costly):
            def run_turn(self, turn: TurnContext) -> Any:
                assert turn.budget is not None
                left.append(turn.budget.max_tokens)
                return super().run_turn(turn)

        assert work(Noting()) == 3
        assert left == [250, 150, 50], "three turns of 100 are one too many, and the last that is begun"
        ended = [store.load_state(ref.sub_session_id) for ref in refs(store)]
        assert sorted(state.status for state in ended) == ["completed", "failed", "failed"]
        codes = [state.error["code"] for state in ended if state.error]
        assert codes == ["budget_exceeded"] * 2
        assert "agent above" in str([state.error["message"] for state in ended if state.error])
        assert go_on(store, Parent("research")) == ("paused", "budget_exceeded")

    def test_a_companion_counts_from_here_on(self, store: SessionStore) -> None:
        def spawn(arguments: Any, turn: TurnContext) -> Spawn:
            return Spawn("researcher", "more", mode="persistent", name="her")

        agent = Parent("ask_her", ask_her=spawn)
        store.create_session("p", agent_type="parent")
        store.admit_input("p", "go")
        SessionRunner(agent, agent_types=["parent"]).sweep()
        assert work(Costly()) == 1
        assert go_on(store, agent) == ("completed", None)
        SessionRuntime().execute("p", ChangeBudget(Budget(max_tokens=250)))
        store.admit_input("p", "again")
        assert SessionRunner(agent, agent_types=["parent"]).sweep() == 1
        assert work(Costly()) == 1
        assert len(refs(store)) == 1
        assert go_on(store, agent) == ("completed", None), "200 tokens of 250"

    def test_a_companion_that_is_asked_twice_counts_twice(self, store: SessionStore) -> None:
        def spawn(arguments: Any, turn: TurnContext) -> Spawn:
            return Spawn("researcher", "more", mode="persistent", name="her")

        ask = calls("ask_her")
        agent = ScriptedAgent([ask, "done", ask, ask, "done"], tools={"ask_her": spawn})
        with_budget(store, agent, max_tokens=350)
        assert work(Costly()) == 1
        assert go_on(store, agent) == ("completed", None)
        store.admit_input("p", "again")
        assert go_on(store, agent) == ("active", None)
        assert work(Costly()) == 1
        assert go_on(store, agent) == ("active", None), "200 tokens of 350"
        assert work(Costly()) == 1
        assert go_on(store, agent) == ("paused", "budget_exceeded")

    def test_each_counts_what_is_below_it_in_this_activity(self, store: SessionStore) -> None:
        """Not its siblings, and not what it asked for in an activity before."""
        left: list[Any] = []

        class Middle(Parent):
            def run_turn(self, turn: TurnContext) -> Any:
                left.append(turn.budget and turn.budget.max_tokens)
                return super().run_turn(turn)

        def ask(name: str) -> Any:
            return lambda arguments, turn: Spawn("middle", "go", mode="persistent", name=name)

        top = ScriptedAgent(
            [calls("ann", "bob"), calls("bob"), "done"], tools={n: ask(n) for n in ("ann", "bob")}
        )
        with_budget(store, top, max_tokens=1000)
        SessionRuntime().execute("p", ChangeBudget(Budget(max_tokens=9000)))
        middle = Middle("research")
        for _ in range(2):  # each of the two asks a child, which uses 200, and goes on
            while work(middle, types=["middle"]) or work(Costly()):
                pass
            go_on(store, top)
        assert left == [1000, 1000, 800, 800, 8600, 8400]

    @each("of_agent", [False, True])
    def test_a_crash_does_not_begin_them_anew(self, store: SessionStore, of_agent: bool) -> None:
        """Whether the session has it or its agent."""
        session, limits = f"p{of_agent}", Budget(max_tokens=250)
        own = None if of_agent else limits
        SessionRuntime().create(AgentDefinition("parent", budget=own), session_id=session)
        store.admit_input(session, "go")

        class Died(BaseException):
            """As if the process were gone."""

        class Dies(Costly):
            budget = limits if of_agent else None
            tools = {"think": lambda arguments, turn: "hm"}
            turns = 0

            def run_turn(self, turn: TurnContext) -> Any:
                assert turn.budget is not None
                left.append(turn.budget.max_tokens)
                if len(left) == 2:
                    raise Died
                return TurnOutcome(calls("think"), usage={"input_tokens": 60, "output_tokens": 40})

        left: list[Any] = []
        runner = SessionRunner(Dies(), lease_ttl=0.1)
        with pytest.raises(Died):
            runner.run(session)
        store.request_run(session)
        outcome = None
        while outcome is None or outcome.kind == "idle":
            outcome = runner.wake(session)
        assert outcome.error["code"] == "budget_exceeded"
        assert left == [250, 150, 150, 50]

    def test_that_of_an_agent_counts_the_tree(self, store: SessionStore) -> None:
        """As one of the session does, also where another worker drives the children, which has no such
        agent."""

        class Bounded(ScriptedAgent):
            budget = Budget(max_tokens=250)

        agent = Bounded(*[[calls("research", prompt="go")]] * 3, "done", subagents={"research": "researcher"})
        assert start(store, agent) == "suspended_awaiting_children"
        left: list[Any] = []

        class Noting(Costly):
            def run_turn(self, turn: TurnContext) -> Any:
                assert turn.budget is not None
                left.append(turn.budget.max_tokens)
                return super().run_turn(turn)

        assert work(Noting()) == 1
        assert go_on(store, agent) == ("active", None)
        assert work(Noting()) == 1
        assert left == [250, 150, 50]
        assert refs(store)[-1].status == "failed", "nothing is left of its parent's budget"
        assert go_on(store, agent) == ("paused", "budget_exceeded")
        assert [turn.budget.max_tokens for turn in agent.turns if turn.budget] == [250, 50]

    def test_that_of_an_agent_is_drawn_on_by_siblings(self, store: SessionStore) -> None:
        class Bounded(Parent):
            budget = Budget(max_tokens=250)

        left: list[Any] = []

        class Noting(Costly):
            def run_turn(self, turn: TurnContext) -> Any:
                assert turn.budget is not None
                left.append(turn.budget.max_tokens)
                return super().run_turn(turn)

        agent = Bounded("research", "research", "research")
        assert start(store, agent) == "suspended_awaiting_children"
        assert work(Noting()) == 3
        assert left == [250, 150, 50]
        assert go_on(store, agent) == ("paused", "budget_exceeded")

    def test_a_companion_may_use_what_is_left_now(self, store: SessionStore) -> None:
        """Each call of it says so anew, also after its budget was used up, or there was none."""
        given: list[Budget | None] = [None, Budget(max_steps=1), Budget(max_steps=5), None]

        def spawn(arguments: Any, turn: TurnContext) -> Spawn:
            return Spawn("researcher", "more", mode="persistent", name="her", budget=given.pop(0))

        left: list[tuple[int | None, int | None]] = []

        class Noting(Costly):
            def run_turn(self, turn: TurnContext) -> Any:
                assert turn.budget is not None
                left.append((turn.budget.max_steps, turn.budget.max_tokens))
                return super().run_turn(turn)

        costs = [TurnOutcome(calls("ask_her"), usage={"input_tokens": used}) for used in (150, 1, 2, 3)]
        agent = ScriptedAgent(*[line for cost in costs for line in (cost, "done")], tools={"ask_her": spawn})
        store.create_session("p", agent_type="parent")
        for number, limits in enumerate([Budget(max_tokens=500), None, Budget(max_tokens=600), None]):
            SessionRuntime().execute("p", ChangeBudget(limits))
            store.admit_input("p", f"question {number}")
            assert SessionRunner(agent, agent_types=["parent"]).sweep() == 1
            assert work(Noting()) == 1
            assert go_on(store, agent) == ("completed", None)
        assert left == [(None, 350), (None, 250), (1, None), (5, 598), (4, 498), (None, None), (None, None)]
        [ref] = refs(store)
        told = store.get_events(ref.sub_session_id, types=["budget_updated"])
        assert [event.data["budget"] for event in told] == [
            {"max_steps": 1},
            {"max_steps": 5, "max_tokens": 598},
            None,
        ]

    def test_a_companion_keeps_the_budget_that_a_person_gave_it(self, store: SessionStore) -> None:
        """Beside what is left of its parent's."""

        def spawn(arguments: Any, turn: TurnContext) -> Spawn:
            return Spawn("researcher", "more", mode="persistent", name="her")

        agent = ScriptedAgent(calls("ask_her"), "done", calls("ask_her"), "done", tools={"ask_her": spawn})
        with_budget(store, agent, max_tokens=250)
        assert work(Costly()) == 1
        assert go_on(store, agent) == ("completed", None)
        [ref] = refs(store)
        SessionRuntime().execute(ref.sub_session_id, ChangeBudget(Budget(max_steps=1)))
        store.admit_input("p", "again")
        assert go_on(store, agent) == ("active", None)
        assert work(Costly()) == 1
        assert "max_steps" in store.load_state(ref.sub_session_id).error["message"]

    @each("limits", [{}, {"max_tokens": 1000}], ids=str)
    def test_that_of_a_childs_agent_holds_beside_what_its_parent_gave(
        self, store: SessionStore, limits: dict[str, Any]
    ) -> None:
        """The smaller of each limit; where a person has given the child another, that one alone."""
        session = f"p{len(limits)}"

        class Bounded(Costly):
            budget = Budget(max_steps=3, max_tokens=5000)

            def run_turn(self, turn: TurnContext) -> Any:
                assert turn.budget is not None
                left.append((turn.budget.max_steps, turn.budget.max_tokens))
                return TurnOutcome(calls("think"), usage={"input_tokens": 10})

        left: list[Any] = []
        agent = Parent("research")
        SessionRuntime().create(AgentDefinition("parent", budget=Budget(**limits)), session_id=session)
        start_again(store, agent, session)
        most = limits.get("max_tokens", 5000)
        assert work(Bounded()) == 1
        assert left == [(3, most), (2, most - 10), (1, most - 20)]
        kid = refs(store, session)[0].sub_session_id
        assert "max_steps of 3" in store.load_state(kid).error["message"]

        start_again(store, agent, session)
        kid = refs(store, session)[-1].sub_session_id
        SessionRuntime().execute(kid, ChangeBudget(Budget(max_steps=4)))
        left.clear()
        assert work(Bounded()) == 1
        assert [steps for steps, _ in left] == [4, 3, 2, 1]


def test_a_tools_writes_beside_a_child(store: SessionStore) -> None:
    writes = [{"op": "set", "path": ["seen"], "value": 1}]
    agent = Parent("research", "plain", plain=lambda arguments, turn: ToolResult("here", writes))
    start(store, agent)
    state = store.load_state("p")
    assert (state.custom_state, state.checkpoint_source) == ({"seen": 1}, "staging")
    assert not store.has_staged_changes("p")


def test_the_same_call_makes_no_second_child(store: SessionStore) -> None:
    """Whoever repeats the suspension finds the child there."""
    agent = ScriptedAgent([calls("research", prompt="once")])
    agent.subagents = {"research": "researcher"}
    start(store, agent)
    assert len(refs(store)) == 1
    assert SessionRunner(agent, agent_types=["parent"]).run("p").kind == "suspended_awaiting_children"
    assert len(refs(store)) == 1
