"""Compiled graphs of LangGraph under our loop."""

# mypy: disable-error-code="arg-type,misc,union-attr,no-untyped-call"

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph")

import httpx
from asgiref.sync import async_to_sync
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel

from helix_sessions.agents import ToolOptions, current_turn, durable
from helix_sessions.agents.langgraph.turn import GraphTurn
from helix_sessions.exceptions import NotConfigured, SubmissionMismatch
from helix_sessions.integrations.langgraph import DjangoSaver
from helix_sessions.runtime import RetryPolicy, SessionRunner
from helix_sessions.runtime.agents import agent_for
from helix_sessions.store import AsyncSessionStore, SessionStore
from helix_sessions.types import Fragment
from tests.agents.langgraph_graphs import Script, call, executes, react, says
from tests.agents.test_crashes import approve, drive, killed_while, lines, swept
from tests.parallel import Worker

pytestmark = pytest.mark.django_db(transaction=True)


def shape(store: SessionStore, session: str = "s") -> list[Any]:
    return [
        (m["role"], m.get("content"), [c["name"] for c in m.get("tool_calls", ())])
        for m in store.get_messages(session).messages
    ]


def pending(store: SessionStore, session: str = "s") -> dict[str, Any]:
    return dict(store.load_state(session).pending_client_tool_calls or {})


def in_the_graph(session: str) -> list[str]:
    found = DjangoSaver().get_tuple({"configurable": {"thread_id": session}})
    return [message.text for message in found.checkpoint["channel_values"]["messages"]]


def asks(value: Any = None, *, after: str = "said", **more: Any) -> Any:
    """A graph of one node that asks, and tells the answer."""

    def node(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"{after} {interrupt(value or {'ok?': 1}, **more)!r}")]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("ask", node)
    builder.add_edge(START, "ask")
    return builder.compile(name="asks")


def test_answers_calls_and_results_are_turns(store: SessionStore, settings: Any) -> None:
    seen: list[Any] = []

    def look(where: str) -> str:
        seen.append((current_turn().session_id, where))
        return "seen"

    used = {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13}
    answers = (AIMessage("Let me", tool_calls=[call("look", where="here")], usage_metadata=used), "done")
    graph = react(says(*answers), executes(look=look))
    settings.HELIX_SESSIONS = {"AGENTS": {"g": graph}}
    store.create_session("s", agent_type="g")
    store.admit_input("s", "hi")
    assert SessionRunner(graph).sweep() == 1
    assert seen == [("s", "here")]
    assert shape(store) == [
        ("user", "hi", []),
        ("assistant", "Let me", ["look"]),
        ("tool", "seen", []),
        ("assistant", "done", []),
    ]
    (run,) = store.list_runs("s").items
    assert (run.status, run.output, run.step_count) == ("completed", "done", 2)
    usage = store.get_usage("s")
    assert (usage.input_tokens, usage.output_tokens) == (10, 3)
    # The checkpoints lie in the same session, and the graph has all that was said.
    assert in_the_graph("s") == ["hi", "Let me", "seen", "done"]


def test_a_conversation_goes_on_and_an_own_checkpointer_is_not_asked(store: SessionStore) -> None:
    def counts(state: MessagesState) -> Any:
        return {"messages": [AIMessage(str(len(state["messages"])))]}

    for saver in (None, InMemorySaver()):
        session = f"s-{saver is None}"
        agent = durable(react(counts, checkpointer=saver), name="counter")
        assert [agent.run(session, "more").output for _ in range(3)] == ["1", "3", "5"]
        assert store.load_state(session).agent_type == "counter"
    assert durable(react(counts)).name == "g"


def test_an_interrupt_waits_for_an_approval(store: SessionStore) -> None:
    for session, answer, told in (
        ("a", {"approved": True}, "said True"),
        ("b", {"approved": False, "reason": "no"}, "said False"),
        ("c", {"approved": True, "arguments": {"ok?": 2}}, "said {'ok?': 2}"),
    ):
        outcome = durable(asks()).run(session, "go")
        assert outcome.kind == "suspended_client_tool"
        ((call_id, entry),) = pending(store, session).items()
        assert (entry["kind"], entry["tool_name"], entry["arguments"]) == (
            "approval",
            "interrupt",
            {"ok?": 1},
        )
        store.submit_tool_result(session, call_id, **answer)
        outcome = SessionRunner(durable(asks())).wake(session)
        assert (outcome.kind, outcome.output) == ("completed", told)
        assert store.get_messages(session).messages[-1]["content"] == told


def test_an_interrupt_in_a_tool_is_told_before_its_results(store: SessionStore) -> None:
    def refund() -> str:
        return "paid" if interrupt("Refund?") else "kept"

    answers = (AIMessage("I refund it.", tool_calls=[call("refund")]), "done")
    graph = react(says(*answers), executes(refund=refund))
    durable(graph).run("s", "go")
    assert shape(store)[1:] == [("assistant", "I refund it.", ["interrupt"])]
    approve(store, "s")
    assert SessionRunner(graph).wake("s").output == "done"
    assert shape(store)[2:] == [
        ("tool", True, []),
        ("assistant", "", ["refund"]),
        ("tool", "paid", []),
        ("assistant", "done", []),
    ]


def test_answers_that_are_no_decisions(store: SessionStore) -> None:
    options = {"interrupt": ToolOptions(approval=False, client=True)}
    durable(asks("Your name?"), tools=options).run("s", "go")
    ((call_id, entry),) = pending(store).items()
    assert (entry["kind"], entry["arguments"]) == ("client_tool", {"value": "Your name?"})
    store.submit_tool_result("s", call_id, result="Bo")
    assert SessionRunner(durable(asks("Your name?"), tools=options)).wake("s").output == "said 'Bo'"

    class City(BaseModel):
        name: str

    if "response_schema" in interrupt.__code__.co_varnames:  # since langgraph 1.2
        durable(asks("Where?", response_schema=City)).run("t", "go")
        ((call_id, entry),) = pending(store, "t").items()
        with pytest.raises(SubmissionMismatch):
            store.submit_tool_result("t", call_id, result={"name": 7})
        store.submit_tool_result("t", call_id, result={"name": "Bern"})
        graph = asks("Where?", response_schema=City)
        assert SessionRunner(graph).wake("t").output == "said City(name='Bern')"


def test_the_actions_of_langchains_middleware_are_calls_of_their_own(store: SessionStore) -> None:
    names = ("pay", "mail", "stop")
    value = {"action_requests": [{"name": name, "args": {"n": 1}} for name in names], "review_configs": []}
    durable(asks(value)).run("s", "go")
    calls = pending(store)
    assert [(entry["tool_name"], entry["arguments"]) for entry in calls.values()] == [
        (name, {"n": 1}) for name in names
    ]
    first, second, third = calls
    store.submit_tool_result("s", first, approved=True)
    store.submit_tool_result("s", second, approved=True, arguments={"n": 2})
    store.submit_tool_result("s", third, approved=False, reason="no")
    said = SessionRunner(asks(value)).wake("s").output
    assert "{'type': 'approve'}" in said
    assert "{'type': 'edit', 'edited_action': {'name': 'mail', 'args': {'n': 2}}}" in said
    assert "'type': 'reject'" in said


def test_several_interrupts_and_the_same_one_again(store: SessionStore) -> None:
    def twice(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"{interrupt('a?')} {interrupt('b?')}")]}

    def other(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"other {interrupt('c?')}")]}

    builder: Any = StateGraph(MessagesState)
    for name, node in (("twice", twice), ("other", other)):
        builder.add_node(name, node)
        builder.add_edge(START, name)
    graph = builder.compile(name="g")
    durable(graph).run("s", "go")
    assert len(pending(store)) == 2
    approve(store, "s")
    assert SessionRunner(graph).wake("s").kind == "suspended_client_tool"
    assert len(pending(store)) == 1
    approve(store, "s")
    assert SessionRunner(graph).wake("s").kind == "completed"
    assert {m["content"] for m in store.get_messages("s").messages[-2:]} == {"True True", "other True"}


def test_what_is_said_meanwhile_is_answered_too(store: SessionStore) -> None:
    def node(state: MessagesState) -> Any:
        said = [message.text for message in state["messages"] if message.type == "human"]
        return {"messages": [AIMessage(f"{said} {interrupt('ok?')}")]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("ask", node)
    builder.add_edge(START, "ask")
    graph = builder.compile(name="g")
    durable(graph).run("s", "one")
    store.admit_input("s", "two", resume=False)
    approve(store, "s")
    SessionRunner(graph).wake("s")
    approve(store, "s")
    SessionRunner(graph).wake("s")
    said = [m["content"] for m in store.get_messages("s").messages if m["role"] == "assistant"]
    assert said[-1] == "['one', 'two'] True"
    assert store.load_state("s").status == "completed"


def test_text_and_arguments_are_streamed(store: SessionStore) -> None:
    agent = durable(react(says("Hello there my friend")))

    async def collect() -> list[Any]:
        return [found async for found in agent.astream("s", "go")]

    found = async_to_sync(collect)()
    pieces = [each.data["text"] for each in found if isinstance(each, Fragment)]
    assert len(pieces) > 1
    assert "".join(pieces) == "Hello there my friend" == store.get_messages("s").messages[-1]["content"]


def test_sub_graphs_are_lines_in_the_timeline(store: SessionStore) -> None:
    inner = react(says(AIMessage("a", tool_calls=[call("look")]), "b"), executes(look=lambda: "seen"))
    builder: Any = StateGraph(MessagesState)
    builder.add_node("helper", inner)
    builder.add_edge(START, "helper")
    assert durable(builder.compile(name="g")).run("s", "go").output == "b"
    names = [(e.type, e.data["name"]) for e in store.get_events("s") if e.type.startswith("subgraph")]
    assert names == [("subgraph_started", "helper"), ("subgraph_finished", "helper")]
    assert [content for _, content, _ in shape(store)] == ["go", "a", "seen", "b"]


def test_graphs_with_other_states(store: SessionStore) -> None:
    class State(TypedDict, total=False):
        topic: str
        words: Annotated[list[str], operator.add]

    builder: Any = StateGraph(State)
    builder.add_node("one", lambda state: {"words": [state["topic"]]})
    builder.add_node("two", lambda state: {"words": [state["topic"].upper()]})
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    agent = durable(builder.compile(name="g"))
    assert agent.run("s", {"topic": "x"}).output == {"topic": "x", "words": ["x", "X"]}
    assert agent.run("s", {"topic": "y"}).output["words"] == ["x", "X", "y", "Y"]
    outcome = agent.run("t", "plain text")
    assert outcome.kind == "failed"
    assert "takes no messages" in str(outcome.error)

    class Answer(BaseModel):
        name: str

    class Structured(MessagesState):
        structured_response: Answer

    builder = StateGraph(Structured)
    builder.add_node("one", lambda state: {"structured_response": Answer(name="Bern")})
    builder.add_edge(START, "one")
    assert durable(builder.compile(name="g")).run("u", "go").output == {"name": "Bern"}


def test_messages_that_a_graph_removes_are_kept_in_the_transcript(store: SessionStore) -> None:
    def forgets(state: MessagesState) -> Any:
        gone = [RemoveMessage(id=message.id) for message in state["messages"][:-1]]
        return {"messages": [*gone, AIMessage(f"{len(state['messages'])}")]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("one", forgets)
    builder.add_edge(START, "one")
    agent = durable(builder.compile(name="g"))
    assert [agent.run("s", "go").output for _ in range(3)] == ["1", "3", "3"]
    assert [content for _, content, _ in shape(store)] == ["go", "1", "go", "3", "go", "3"]


def test_rewinding_and_branching(store: SessionStore) -> None:
    """The graph goes back with the transcript, and a branch begins with what was said."""
    numbers = iter(range(100))

    def counts(state: MessagesState) -> Any:
        said = ",".join(message.text for message in state["messages"])
        return {"messages": [AIMessage(f"[{said}] {next(numbers)}")]}

    agent = durable(react(counts))
    agent.run("s", "a")
    first = store.get_latest_checkpoint("s").checkpoint_id
    assert agent.run("s", "b").output == "[a,[a] 0,b] 1"
    store.rewind("s", checkpoint_id=first)
    assert agent.run("s", "c").output == "[a,[a] 0,c] 2"
    store.truncate_messages("s", 1)
    assert SessionRunner(agent).run("s").output == "[a] 3"
    store.clone_session("s", "now")
    assert agent.run("now", "d").output == "[a,[a] 3,d] 4"
    store.clone_session("s", "then", checkpoint_id=first)
    assert agent.run("then", "e").output == "[a,[a] 0,e] 5"


def test_errors_of_providers_are_tried_again_where_the_graph_stopped(store: SessionStore) -> None:
    class Slow(Exception):
        status_code = 429
        response = httpx.Response(429, headers={"retry-after": "0.01"})

    ran: list[str] = []
    errors: list[Exception] = [Slow("slow"), httpx.ConnectError("gone")]

    def first(state: MessagesState) -> Any:
        ran.append("first")
        return {}

    def second(state: MessagesState) -> Any:
        ran.append("second")
        if errors:
            raise errors.pop()
        return {"messages": [AIMessage("done")]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    graph = builder.compile(name="g")
    assert durable(graph, retry=RetryPolicy(initial=0.01)).run("s", "go").output == "done"
    assert ran == ["first", "second", "second", "second"]
    errors.append(ValueError("broken"))
    outcome = durable(graph).run("s", "again")
    assert (outcome.kind, "broken" in str(outcome.error)) == ("failed", True)
    store.retry_run("s")
    assert SessionRunner(graph).wake("s").output == "done"
    assert ran[4:] == ["first", "second", "second"]
    assert in_the_graph("s") == ["go", "done", "again", "done"]


def test_a_graph_that_never_answers_ends(store: SessionStore) -> None:
    builder: Any = StateGraph(MessagesState)
    builder.add_node("one", lambda state: {})
    builder.add_edge(START, "one")
    builder.add_edge("one", "one")
    outcome = durable(builder.compile(name="g").with_config(recursion_limit=5)).run("s", "go")
    assert (outcome.kind, outcome.error["code"]) == ("failed", "recursion_limit")


class Endless(Script):
    """Asks to be stopped while it speaks."""

    async def _astream(self, *args: Any, **kwargs: Any) -> Any:
        if self.lines:
            for chunk in self._stream():
                yield chunk
            return
        for word in ("Once upon ", "a time"):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))
        await AsyncSessionStore().set_interrupt_flag("s", "enough")
        for _ in range(2000):
            await asyncio.sleep(0.005)
            yield ChatGenerationChunk(message=AIMessageChunk(content="."))


def test_a_stop_keeps_what_was_said_and_one_can_write_on(store: SessionStore) -> None:
    seen: list[Any] = []
    model = Endless(lines=[])

    async def agent(state: MessagesState) -> Any:
        seen.append([message.text for message in state["messages"]])
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = react(agent)
    assert async_to_sync(durable(graph).arun)("s", "go").kind == "interrupted"
    said = store.get_messages("s").messages[-1]
    assert said["interrupted"] is True
    assert said["content"].startswith("Once upon a time")
    model.lines.append(AIMessage("done"))
    assert durable(graph).run("s", "more").output == "done"
    assert seen[-1] == ["go", said["content"], "more"]
    assert [role for role, _, _ in shape(store)] == ["user", "assistant", "user", "assistant"]


def test_calls_that_a_stop_left_open_are_answered_for_the_model(store: SessionStore) -> None:
    asked: list[Any] = []

    def agent(state: MessagesState) -> Any:
        asked.append(state["messages"])
        if len(asked) > 1:
            return {"messages": [AIMessage("done")]}
        return {"messages": [AIMessage("", tool_calls=[call("look")])]}

    def tools(state: MessagesState) -> Any:
        raise ValueError("broken")

    graph = react(agent, tools)
    assert durable(graph).run("s", "go").kind == "failed"
    assert durable(graph).run("s", "more").output == "done"
    assert [(m.type, getattr(m, "status", "")) for m in asked[1]] == [
        ("human", ""),
        ("ai", ""),
        ("tool", "error"),
        ("human", ""),
    ]
    assert [role for role, _, _ in shape(store)] == ["user", "user", "assistant", "tool", "assistant"]


def test_a_session_of_section_5_is_continued(store: SessionStore) -> None:
    store.create_session("s", agent_type="g")
    called = [{"id": "c", "name": "look", "arguments": {"n": 1}}]
    store.append_messages(
        "s",
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "", "tool_calls": called},
            {"role": "tool", "tool_call_id": "c", "tool_name": "look", "content": {"a": 1}},
            {"role": "assistant", "content": "seen"},
        ],
    )
    seen: list[Any] = []

    def agent(state: MessagesState) -> Any:
        seen.extend(state["messages"])
        return {"messages": [AIMessage("done")]}

    assert durable(react(agent)).run("s", "more").output == "done"
    assert [type(m) for m in seen] == [HumanMessage, AIMessage, ToolMessage, AIMessage, HumanMessage]
    assert seen[1].tool_calls[0]["args"] == {"n": 1}
    assert [content for _, content, _ in shape(store)][4:] == ["more", "done"]


def test_the_definition_and_the_context_reach_the_nodes(store: SessionStore) -> None:
    class Context(TypedDict):
        session: str

    def node(state: MessagesState, runtime: Any, config: Any) -> Any:
        found = config["configurable"]
        return {
            "messages": [AIMessage(f"{runtime.context['session']} {found['model']} {found['system_prompt']}")]
        }

    from langchain_core.runnables import RunnableConfig
    from langgraph.runtime import Runtime

    node.__annotations__.update(runtime=Runtime[Context], config=RunnableConfig)
    builder: Any = StateGraph(MessagesState, context_schema=Context)
    builder.add_node("one", node)
    builder.add_edge(START, "one")
    graph = builder.compile(name="g")
    with pytest.raises(NotConfigured, match="context_schema"):
        durable(graph)
    from helix_sessions.runtime import SessionRuntime
    from helix_sessions.values.agents import AgentDefinition

    SessionRuntime().create(AgentDefinition("g", model="m", system_prompt="Be kind."), session_id="s")
    agent = durable(graph, deps=lambda turn: {"session": turn.session_id})
    assert agent.run("s", "go").output == "s m Be kind."


def test_what_is_refused() -> None:
    graph = react(says())
    for match, build in (
        ("interrupt_before", lambda: durable(react(says(), interrupt_before=["tools"]))),
        ("subagents", lambda: durable(graph, subagents={"ask": "helper"})),
        ("options of 'refund'", lambda: durable(graph, tools={"refund": ToolOptions(approval=True)})),
        ("options of 'refund'", lambda: durable(graph, tools={"refund": ToolOptions(retries=2)})),
        ("compiled StateGraph", lambda: durable(entrypoint()(lambda x: x))),
        ("no agent", lambda: durable(StateGraph(MessagesState))),
    ):
        with pytest.raises(NotConfigured, match=match):
            build()


def test_killed_in_a_node_and_resumed_elsewhere(store: SessionStore, tmp_path: Path, settings: Any) -> None:
    """The node that ran is run again, those before it are not; a third process executes what was approved."""
    from tests.agents import settings as configured

    settings.HELIX_SESSIONS = configured.HELIX_SESSIONS
    notes = tmp_path / "notes"
    store.create_session("s", agent_type="graph-clerk", user_id=str(notes))
    store.admit_input("s", "hang")
    killed_while("s", "graph-clerk", lambda: "looked" in lines(notes))
    Path(f"{notes}.go").touch()
    swept("graph-clerk")
    assert lines(notes) == ["asked", "looked", "looked"]
    assert agent_for("graph-clerk").name == "graph-clerk"
    assert [entry["arguments"] for entry in pending(store).values()] == [{"refund": 7}]
    approve(store, "s")
    worker = Worker(drive, "graph-clerk", "s")
    try:
        worker.wait_until_ready()
        worker.go()
        worker.result(60)
    finally:
        worker.kill()
    assert lines(notes) == ["asked", "looked", "looked", "refunded"]
    assert store.load_state("s").status == "completed"
    assert [content for _, content, _ in shape(store)][:4] == ["hang", "Looking.", "seen", "seen"]


def test_what_the_graph_has_done_before_we_could_commit_it_is_told_and_not_done_again(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def agent(state: MessagesState) -> Any:
        ran.append("agent")
        return {"messages": [AIMessage("done")]}

    def dies(*_: Any, **__: Any) -> Any:
        raise RuntimeError("dead")

    with monkeypatch.context() as patched:
        patched.setattr(GraphTurn, "_told", dies)
        assert durable(react(agent)).run("s", "go").kind == "failed"
    store.retry_run("s")
    assert SessionRunner(react(agent)).wake("s").output == "done"
    assert ran == ["agent"]
    assert [content for _, content, _ in shape(store)] == ["go", "done"]
