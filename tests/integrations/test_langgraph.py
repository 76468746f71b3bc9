"""Real graphs on our sessions: what comes back, what is stored, and who loses a race."""

import operator
import uuid
from copy import deepcopy
from typing import Annotated, Any, TypedDict

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from helix_sessions.exceptions import CheckpointNotFound, InvalidInput, StaleState
from helix_sessions.integrations.langgraph import DjangoSaver
from helix_sessions.store import SessionStore
from helix_sessions.transcripts import open_tool_calls

pytestmark = pytest.mark.django_db(transaction=True)


def config(thread: str = "t", **more: Any) -> Any:
    return {"configurable": {"thread_id": thread, **more}}


def chat(saver: Any, reply: Any = None) -> Any:
    """A graph of one node that answers."""

    def answer(state: MessagesState) -> Any:
        said = reply(state) if reply else AIMessage(f"answer {len(state['messages'])}")
        return {"messages": [said]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", answer)
    graph.add_edge(START, "agent")
    graph.add_edge("agent", END)
    return graph.compile(checkpointer=saver)


def texts(state: Any) -> list[str]:
    return [message.content for message in state["messages"]]


def test_a_conversation_goes_on_from_turn_to_turn(store: SessionStore) -> None:
    first = chat(DjangoSaver())
    first.invoke({"messages": [("user", "one")]}, config(user_id="ada"))
    after = chat(DjangoSaver()).invoke({"messages": [("user", "two")]}, config())

    assert texts(after) == ["one", "answer 1", "two", "answer 3"]
    state = store.load_state("t")
    assert (state.agent_type, state.user_id, state.message_count) == ("langgraph", "ada", 4)
    said = store.get_messages("t").messages
    assert [(message["role"], message["content"]) for message in said] == [
        ("user", "one"),
        ("assistant", "answer 1"),
        ("user", "two"),
        ("assistant", "answer 3"),
    ]
    types = [event.type for event in store.get_events("t")]
    assert types.count("user_message") == types.count("assistant_message") == 2


def test_async_graphs_are_the_same(store: SessionStore) -> None:
    @async_to_sync
    async def talk() -> Any:
        graph = chat(DjangoSaver())
        await graph.ainvoke({"messages": [("user", "one")]}, config())
        state = await graph.aget_state(config())
        history = [snapshot async for snapshot in graph.aget_state_history(config())]
        return texts(state.values), len(history)

    assert talk() == (["one", "answer 1"], 3)
    assert len(list(chat(DjangoSaver()).get_state_history(config()))) == 3


def test_what_is_read_is_what_langgraphs_own_saver_reads() -> None:
    reply = AIMessage(
        "calling",
        id="a1",
        tool_calls=[{"name": "look", "args": {"q": 1}, "id": "c1", "type": "tool_call"}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model": "m"},
    )
    results = []
    for saver in (DjangoSaver(), InMemorySaver()):
        graph = chat(saver, lambda state: reply)
        given = [
            SystemMessage("be brief", id="s"),
            HumanMessage([{"type": "text", "text": "\u0000 é"}], id="h", name="ada"),
            ToolMessage("42", id="t", tool_call_id="c0", artifact={1: {2, 3}}),
        ]
        graph.invoke({"messages": given}, config())
        state = graph.get_state(config())
        results.append((state.values, state.next, state.metadata))
    assert results[0] == results[1]
    assert [type(message) for message in results[0][0]["messages"]] == [
        *(SystemMessage, HumanMessage, ToolMessage, AIMessage)
    ]


def test_calls_are_known_to_the_transcript(store: SessionStore) -> None:
    call = {"name": "look", "args": {"q": 1}, "id": "c1", "type": "tool_call"}
    chat(DjangoSaver(), lambda state: AIMessage("", tool_calls=[call])).invoke(
        {"messages": [("user", "one")]}, config()
    )
    open_calls = open_tool_calls(store.get_messages("t").messages)
    assert open_calls == [{"id": "c1", "name": "look", "arguments": {"q": 1}}]


def test_messages_that_are_removed_changed_or_moved() -> None:
    graph = chat(DjangoSaver())
    for text in ("one", "two", "three"):
        graph.invoke({"messages": [HumanMessage(text, id=text)]}, config())
    before = graph.get_state(config())
    graph.update_state(config(), {"messages": [RemoveMessage("one"), HumanMessage("TWO", id="two")]})

    fresh = chat(DjangoSaver())
    after = fresh.get_state(config())
    assert texts(after.values) == ["answer 1", "TWO", "answer 3", "three", "answer 5"]
    assert texts(fresh.get_state(before.config).values)[:2] == ["one", "answer 1"]
    fresh.invoke({"messages": [("user", "four")]}, config())
    assert texts(graph.get_state(config()).values)[-2:] == ["four", "answer 6"]


def test_time_travel_branches_and_both_branches_stay() -> None:
    graph = chat(DjangoSaver())
    graph.invoke({"messages": [("user", "one")]}, config())
    early = graph.get_state(config()).config
    graph.invoke({"messages": [("user", "two")]}, config())
    late = graph.get_state(config()).config
    graph.invoke({"messages": [("user", "other")]}, early)

    fresh = chat(DjangoSaver())
    assert texts(fresh.get_state(config()).values) == ["one", "answer 1", "other", "answer 3"]
    assert texts(fresh.get_state(late).values) == ["one", "answer 1", "two", "answer 3"]


def test_an_interrupt_waits_in_the_database_for_its_answer() -> None:
    def build() -> Any:
        def ask(state: MessagesState) -> Any:
            return {"messages": [AIMessage(f"you said {interrupt('really?')}")]}

        graph = StateGraph(MessagesState)
        graph.add_node("ask", ask)
        graph.add_edge(START, "ask")
        return graph.compile(checkpointer=DjangoSaver())

    waiting = build().invoke({"messages": [("user", "one")]}, config())
    assert waiting["__interrupt__"][0].value == "really?"
    assert build().get_state(config()).interrupts[0].value == "really?"
    assert texts(build().invoke(Command(resume="yes"), config()))[-1] == "you said yes"


def test_subgraphs_have_namespaces_of_the_same_session(store: SessionStore) -> None:
    def build() -> Any:
        inner = StateGraph(MessagesState)
        inner.add_node("inside", lambda state: {"messages": [AIMessage(interrupt("inner?"))]})
        inner.add_edge(START, "inside")
        outer = StateGraph(MessagesState)
        outer.add_node("sub", inner.compile())
        outer.add_edge(START, "sub")
        return outer.compile(checkpointer=DjangoSaver())

    build().invoke({"messages": [("user", "one")]}, config())
    state = build().get_state(config(), subgraphs=True)
    assert texts(state.tasks[0].state.values) == ["one"]
    assert texts(build().invoke(Command(resume="two"), config())) == ["one", "two"]
    assert store.list_sessions().items[0].session_id == "t"
    assert len(store.list_sessions().items) == 1


class Lists(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    note: Any


def appending(saver: Any) -> Any:
    graph = StateGraph(Lists)
    graph.add_node("work", lambda state: {"note": len(state.get("log", []))})
    graph.add_edge(START, "work")
    return graph.compile(checkpointer=saver)


def test_other_lists_are_stored_item_by_item_once_they_are_long(store: SessionStore) -> None:
    graph = appending(DjangoSaver())
    for number in range(8):
        graph.invoke({"log": [f"{number} {prose(number)}", {number}]}, config())

    read = appending(DjangoSaver()).get_state(config()).values
    begun = [item[:1] if isinstance(item, str) else item for item in read["log"]]
    assert begun == [item for number in range(8) for item in (str(number), {number})]
    assert read["note"] == 16
    assert len(store.get_notes("t", prefix="i|")) == 16
    states = list(appending(DjangoSaver()).get_state_history(config()))
    assert [len(state.values.get("log", [])) for state in states][::3] == list(range(16, 0, -2))


def test_a_thread_may_begin_with_a_long_list() -> None:
    values = {"log": [prose(number) for number in range(9)], "messages": [prose(0)] * 30}
    put(DjangoSaver(), config(checkpoint_ns=""), values, 1)
    found = DjangoSaver().get_tuple(config())
    assert found is not None
    assert found.checkpoint["channel_values"] == values


def test_a_list_that_a_caller_changes_in_place_is_not_mistaken() -> None:
    saver = DjangoSaver()
    message = HumanMessage("one", id="m", additional_kwargs={"n": 1})
    items = [message]
    here = put(saver, config(checkpoint_ns=""), {"messages": items}, 1)
    message.additional_kwargs["n"] = 2
    items.append(HumanMessage("two", id="k"))
    put(saver, here, {"messages": items}, 2)

    newest, oldest = DjangoSaver().list(config())
    assert newest.checkpoint["channel_values"]["messages"] == items
    assert oldest.checkpoint["channel_values"]["messages"][0].additional_kwargs == {"n": 1}


def put(saver: Any, where: Any, values: Any, version: int, **metadata: Any) -> Any:
    """One put, as the loop makes it."""
    checkpoint = {
        **empty_checkpoint(),
        "id": str(uuid6(clock_seq=version)),
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, version),
    }
    described = {"source": "loop", "step": version, "parents": {}, **metadata}
    return saver.put(where, checkpoint, described, dict.fromkeys(values, version))


def test_values_that_did_not_change_are_found_where_they_are() -> None:
    saver = DjangoSaver()
    here = put(saver, config(checkpoint_ns=""), {"a": {"x": {1, 2}}, "b": 1}, 1)
    for version in (2, 3):
        checkpoint: Any = {
            **empty_checkpoint(),
            "id": str(uuid6(clock_seq=version)),
            "channel_values": {"a": {"x": {1, 2}}, "b": version},
            "channel_versions": {"a": 1, "b": version},
        }
        here = saver.put(here, checkpoint, {"run_id": f"r{version}"}, {"b": version})

    for reader in (saver, DjangoSaver()):
        found = [one.checkpoint["channel_values"] for one in reader.list(config())]
        assert found == [{"a": {"x": {1, 2}}, "b": number} for number in (3, 2, 1)]
    saver.prune(["t"])
    [left] = DjangoSaver().list(config())
    assert left.checkpoint["channel_values"] == {"a": {"x": {1, 2}}, "b": 3}
    saver.delete_for_runs(["r3"])
    assert list(DjangoSaver().list(config())) == []


def test_pruning_keeps_what_the_newest_needs(store: SessionStore) -> None:
    graph = appending(DjangoSaver())
    for number in range(4):
        graph.invoke({"log": [f"{number} {prose(number)}"]}, config())
    DjangoSaver().prune(["t"])

    read = appending(DjangoSaver())
    assert len(read.get_state(config()).values["log"]) == 4
    assert len(list(read.get_state_history(config()))) == 1
    assert len(store.get_notes("t", prefix="w|")) == 0
    read.invoke({"log": ["more"]}, config())
    assert len(read.get_state(config()).values["log"]) == 5


def test_archiving_the_log_leaves_the_thread_alone(store: SessionStore, settings: Any, tmp_path: Any) -> None:
    settings.STORAGES = {
        **settings.STORAGES,
        "archive": {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": str(tmp_path)},
        },
    }
    settings.HELIX_SESSIONS = {"ARCHIVE_STORAGE": "archive"}
    graph = chat(DjangoSaver())
    graph.invoke({"messages": [("user", "one")]}, config())
    store.archive_events("t", keep=0)

    assert texts(chat(DjangoSaver()).invoke({"messages": [("user", "two")]}, config())) == [
        *("one", "answer 1", "two", "answer 3")
    ]


def test_a_copy_is_a_thread_of_its_own(store: SessionStore) -> None:
    graph = chat(DjangoSaver())
    graph.invoke({"messages": [("user", "one")]}, config())
    DjangoSaver().copy_thread("t", "copy")
    graph.invoke({"messages": [("user", "two")]}, config("copy"))

    assert texts(graph.get_state(config()).values) == ["one", "answer 1"]
    assert texts(chat(DjangoSaver()).get_state(config("copy")).values) == [
        "one",
        "answer 1",
        "two",
        "answer 3",
    ]
    DjangoSaver().delete_thread("t")
    assert not store.session_exists("t")


class Model:
    """Answers with a kilobyte and an id, as models do; sometimes with a call as well."""

    def __init__(self) -> None:
        self.said = 0

    def __call__(self, state: Any) -> AIMessage:
        self.said += 1
        call = {"name": "look", "args": {"q": prose(self.said)}, "id": f"c{self.said}", "type": "tool_call"}
        calls = [call] if self.said % 2 else []
        return AIMessage(prose(10_000 + self.said), id=f"a{self.said}" * (self.said % 3), tool_calls=calls)


def everything(saver: Any) -> list[Any]:
    """What a saver tells of a thread, without what differs from run to run."""
    told = []
    for one in saver.list(config()):
        checkpoint = {name: one.checkpoint[name] for name in ("channel_values", "updated_channels")}
        writes = [(channel, value) for _, channel, value in one.pending_writes]
        told.append((checkpoint, one.metadata, writes))
    return told


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_the_whole_history_is_that_of_langgraphs_own_saver(durability: Any) -> None:
    inputs: list[Any] = [
        ("user", prose(1)),
        {"role": "user", "content": prose(2)},
        HumanMessage(prose(3), id="h3"),
        HumanMessage([{"type": "text", "text": prose(4)}], id="h4"),
        HumanMessage("short", id="h5", additional_kwargs={"!c": prose(5)}),
        [HumanMessage(prose(6), id="h6"), ("user", prose(6))],
    ]
    told = []
    for saver in (DjangoSaver(), InMemorySaver()):
        graph = chat(saver, Model())
        for number, given in enumerate(inputs):
            with_ids(
                graph, number, deepcopy(given) if isinstance(given, list) else [deepcopy(given)], durability
            )
        told.append(everything(saver))

    ours, theirs = told
    assert ours == everything(DjangoSaver()) == theirs
    assert len(theirs) == 3 * len(inputs)


def with_ids(graph: Any, number: int, given: list[Any], durability: Any) -> None:
    """Invoke with ids that are the same each time."""
    ids = iter(uuid.UUID(int=1000 * number + count) for count in range(100))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("langgraph.graph.message.uuid.uuid4", lambda: next(ids))
        graph.invoke({"messages": given}, config(), durability=durability)


def test_an_encrypting_serializer_leaves_nothing_readable(store: SessionStore) -> None:
    class Rot:
        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "rot", bytes(byte ^ 42 for byte in plaintext)

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            return bytes(byte ^ 42 for byte in ciphertext)

    def build() -> Any:
        return chat(DjangoSaver(serde=EncryptedSerializer(Rot())), lambda state: AIMessage("classified"))

    build().invoke({"messages": [("user", "secret")]}, config())
    assert texts(build().get_state(config()).values) == ["secret", "classified"]
    stored = [*store.get_messages("t").messages, *(note.document for note in store.get_notes("t"))]
    assert "secret" not in str(stored)
    assert "classified" not in str(stored)


def test_a_truncated_transcript_is_an_error_and_not_another_history(store: SessionStore) -> None:
    graph = chat(DjangoSaver())
    graph.invoke({"messages": [("user", "one")]}, config())
    store.truncate_messages("t", 1)
    with pytest.raises(CheckpointNotFound):
        chat(DjangoSaver()).get_state(config())
    store.append_messages("t", [{"role": "assistant", "content": "forged"}])
    with pytest.raises(CheckpointNotFound):
        chat(DjangoSaver()).get_state(config())


def test_what_a_task_wrote_goes_with_the_messages_it_wrote(store: SessionStore) -> None:
    graph = chat(DjangoSaver(), lambda state: AIMessage(prose(2)))
    graph.invoke({"messages": [("user", prose(1))]}, config(), durability="sync")
    _, asked, given = DjangoSaver().list(config())
    store.truncate_messages("t", 1)

    found = DjangoSaver().get_tuple(asked.config)
    assert found is not None
    assert found.checkpoint["channel_values"] == asked.checkpoint["channel_values"]
    assert (len(asked.pending_writes or []), found.pending_writes) == (1, [])
    store.truncate_messages("t", 0)
    with pytest.raises(CheckpointNotFound):
        DjangoSaver().get_tuple(given.config)


class TestPendingWrites:
    """They may be put before their checkpoint, with it, or long after it, and by anybody."""

    def begun(self) -> tuple[Any, Any]:
        saver = DjangoSaver()
        return saver, put(saver, config(checkpoint_ns=""), {"messages": [prose(0)]}, 1)

    def writes_of(self, where: Any) -> list[Any]:
        found = DjangoSaver().get_tuple(where)
        assert found is not None
        return list(found.pending_writes or [])

    def test_of_a_checkpoint_that_is_put_after_them(self) -> None:
        saver, here = self.begun()
        later = str(uuid6(clock_seq=2))
        other = str(uuid6(clock_seq=3))
        for name in (later, other):
            saver.put_writes(config(checkpoint_ns="", checkpoint_id=name), [("messages", [prose(1)])], "task")
        checkpoint: Any = {**empty_checkpoint(), "id": later}
        put_at = saver.put(here, checkpoint, {}, {})
        assert self.writes_of(put_at) == [("task", "messages", [prose(1)])]
        assert self.writes_of(here) == []
        newest = put(saver, put_at, {"messages": [prose(0), prose(1)]}, 4)
        assert self.writes_of(put_at) == [("task", "messages", [prose(1)])]
        saver.put(newest, {**checkpoint, "id": other}, {}, {})
        assert self.writes_of(config(checkpoint_ns="", checkpoint_id=other)) == [
            ("task", "messages", [prose(1)])
        ]

    def test_of_one_that_has_been_followed_by_another(self) -> None:
        saver, here = self.begun()
        saver.put_writes(here, [("messages", [HumanMessage(prose(1), id="m")]), ("b", 1)], "first", "~a")
        put(saver, here, {"messages": [prose(0), HumanMessage(prose(1), id="m")]}, 2)
        late = [("messages", [HumanMessage(prose(1), id="m")]), ("__error__", "bad")]
        saver.put_writes(here, late, "second", "~b")

        assert self.writes_of(here) == [
            ("first", "messages", [HumanMessage(prose(1), id="m")]),
            ("first", "b", 1),
            ("second", "__error__", "bad"),
            ("second", "messages", [HumanMessage(prose(1), id="m")]),
        ]

    def test_of_which_the_last_counts_wherever_the_others_are(self) -> None:
        """The first may come before its checkpoint, and before the thread."""
        saver = DjangoSaver()
        here = config(checkpoint_ns="", checkpoint_id=str(uuid6(clock_seq=1)))
        saver.put_writes(here, [("__interrupt__", "first?")], "task")
        checkpoint: Any = {**empty_checkpoint(), "id": here["configurable"]["checkpoint_id"]}
        saver.put(config(checkpoint_ns=""), checkpoint, {}, {})
        assert self.writes_of(here) == [("task", "__interrupt__", "first?")]
        for asked in ("second?", "third?"):
            saver.put_writes(here, [("__interrupt__", asked)], "task")
            assert self.writes_of(here) == [("task", "__interrupt__", asked)]
        put(saver, here, {"messages": [prose(0)]}, 2)
        DjangoSaver().put_writes(here, [("__interrupt__", "fourth?")], "task")
        assert self.writes_of(here) == [("task", "__interrupt__", "fourth?")]

    def test_of_many_tasks_and_of_large_ones(self) -> None:
        saver, here = self.begun()
        for number in range(12):
            saver.put_writes(here, [("log", [prose(number)] * (1 + 20 * (number == 5)))], f"task-{number:02}")
        put(saver, here, {"messages": [prose(0), prose(3)]}, 2)

        assert self.writes_of(here) == [
            (f"task-{number:02}", "log", [prose(number)] * (1 + 20 * (number == 5))) for number in range(12)
        ]

    def test_of_another_process_are_not_lost(self) -> None:
        saver, here = self.begun()
        saver.put_writes(here, [("a", 1)], "ours")
        DjangoSaver().put_writes(here, [("a", 2)], "theirs")
        saver.put_writes(here, [("a", 3)], "ours too")
        DjangoSaver().put_writes(here, [("a", 4)], "theirs too")
        put(saver, here, {"messages": [prose(0), prose(1)]}, 2)

        assert sorted(value for _, _, value in self.writes_of(here)) == [1, 2, 3, 4]

    def test_of_many_threads_are_not_lost(self, run_threads: Any) -> None:
        saver, here = self.begun()
        run_threads(
            4,
            lambda index: [
                (saver if index % 2 else DjangoSaver()).put_writes(here, [("a", index)], f"{index}-{number}")
                for number in range(5)
            ],
        )
        put(saver, here, {"messages": [prose(0), prose(1)]}, 2)

        assert len(self.writes_of(here)) == 20


def test_a_config_without_a_thread() -> None:
    with pytest.raises(InvalidInput):
        DjangoSaver().get_tuple({"configurable": {}})


class TestRaces:
    def test_pruning_under_a_run_takes_nothing_from_it(self) -> None:
        saver = DjangoSaver()
        kept = {"a": "kept", "log": [prose(1), prose(2), prose(3)]}
        here = put(saver, config(checkpoint_ns=""), {**kept, "b": 1}, 1)
        for version in (2, 3, 4):
            if version == 4:
                DjangoSaver().prune(["t"])
            checkpoint: Any = {
                **empty_checkpoint(),
                "id": str(uuid6(clock_seq=version)),
                "channel_values": {**kept, "b": version},
                "channel_versions": {"a": 1, "log": 1, "b": version},
            }
            here = saver.put(here, checkpoint, {}, {"b": version})

        newest, *_ = DjangoSaver().list(config())
        assert newest.checkpoint["channel_values"] == {**kept, "b": 4}

    def test_of_two_runs_on_one_thread_the_loser_gets_an_error(self, store: SessionStore) -> None:
        graph = chat(DjangoSaver())
        graph.invoke({"messages": [("user", "one")]}, config())

        def meanwhile(state: MessagesState) -> AIMessage:
            chat(DjangoSaver()).invoke({"messages": [("user", "the other")]}, config())
            return AIMessage("late")

        with pytest.raises(StaleState):
            chat(DjangoSaver(), meanwhile).invoke(
                {"messages": [("user", "two")]}, config(), durability="sync"
            )
        said = texts(graph.get_state(config()).values)
        assert "the other" in said
        assert "late" not in said

    @pytest.mark.parametrize("shared", [True, False])
    def test_no_message_of_a_run_that_ended_well_is_lost(self, shared: bool, run_threads: Any) -> None:
        saver = DjangoSaver()
        chat(saver).invoke({"messages": [("user", "begin")]}, config())

        def talk(index: int) -> list[str]:
            done = []
            for number in range(4):
                text = f"{index}-{number}"
                graph = chat(saver if shared else DjangoSaver())
                try:
                    graph.invoke({"messages": [("user", text)]}, config())
                except StaleState:
                    continue
                done.append(text)
            return done

        done = [text for each in run_threads(3, talk) for text in each]
        said = texts(chat(DjangoSaver()).get_state(config()).values)
        assert done
        assert set(done) <= set(said)

    def test_of_two_first_runs_one_wins(self) -> None:
        first, second = DjangoSaver(), DjangoSaver()
        begins = {"source": "input", "step": -1}
        put(first, config(checkpoint_ns=""), {"messages": ["a"]}, 1, **begins)
        with pytest.raises(StaleState) as refused:
            put(second, config(checkpoint_ns=""), {"messages": ["b"]}, 1, **begins)
        assert "run it again" in refused.value.__notes__[0]

    def test_what_follows_a_refused_checkpoint_is_refused_too(self) -> None:
        """LangGraph 1.0 puts the next checkpoint of a run although it was refused the one before."""
        saver = DjangoSaver()
        put(saver, config(checkpoint_ns=""), {"messages": ["a"]}, 1, source="input", step=-1)
        read = saver.get_tuple(config())
        assert read is not None
        put(DjangoSaver(), read.config, {"messages": ["a", "theirs"]}, 2)
        with pytest.raises(StaleState):
            put(saver, read.config, {"messages": ["a", "ours"]}, 2)

        refused = config(checkpoint_ns="", checkpoint_id=str(uuid6(clock_seq=2)))
        with pytest.raises(StaleState):
            put(saver, refused, {"messages": ["a", "ours", "more"]}, 3)
        newest, *_ = DjangoSaver().list(config())
        assert newest.checkpoint["channel_values"]["messages"] == ["a", "theirs"]

    def test_a_run_whose_checkpoint_was_pruned_under_another_run_is_refused(self) -> None:
        saver = DjangoSaver()
        ours = put(saver, config(checkpoint_ns=""), {"messages": ["a"]}, 1)
        read = DjangoSaver().get_tuple(config())
        assert read is not None
        put(DjangoSaver(), read.config, {"messages": ["a", "theirs"]}, 2)
        DjangoSaver().prune(["t"])

        with pytest.raises(StaleState):
            put(saver, ours, {"messages": ["a", "ours"]}, 2)

    def test_a_run_that_began_is_told_that_its_input_is_stored(self) -> None:
        """It stands under what the other run has seen: the same input again would be there twice."""

        def meanwhile(state: MessagesState) -> AIMessage:
            if texts(state)[-1] == "mine":
                chat(DjangoSaver()).invoke({"messages": [("user", "the other")]}, config())
            return AIMessage(f"answer {len(state['messages'])}")

        with pytest.raises(StaleState) as refused:
            chat(DjangoSaver(), meanwhile).invoke(
                {"messages": [("user", "mine")]}, config(), durability="sync"
            )
        assert "stored already" in refused.value.__notes__[0]
        assert texts(chat(DjangoSaver()).get_state(config()).values)[:2] == ["mine", "the other"]
        assert "mine" in texts(chat(DjangoSaver()).invoke(None, config()))

    def test_processes_that_take_turns_are_never_refused(self) -> None:
        """What a saver remembers of a thread may be old."""
        savers = [DjangoSaver(), DjangoSaver()]
        for turn in range(6):
            said = chat(savers[turn % 2]).invoke({"messages": [("user", str(turn))]}, config())
        assert len(said["messages"]) == 12

    def test_other_writers_of_the_session_disturb_nobody(self, store: SessionStore) -> None:
        saver = DjangoSaver()
        here = put(saver, config(checkpoint_ns=""), {"messages": ["a"]}, 1)
        store.patch_metadata("t", {"seen": True})
        store.append_messages("t", [{"role": "user", "content": "an aside"}])
        put(saver, here, {"messages": ["a", "b"]}, 2)

        found = DjangoSaver().get_tuple(config())
        assert found is not None
        assert found.checkpoint["channel_values"]["messages"] == ["a", "b"]


def compact_tables() -> None:
    """Give back the room of rows that other tests have deleted, so that growth is seen."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            for name in connection.introspection.table_names(cursor):
                if name.startswith("helix_sessions"):
                    cursor.execute(f'VACUUM FULL "{name}"')


def stored_bytes() -> int:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
                " WHERE relkind = 'r' AND relname LIKE 'helix_sessions%'"
            )
        else:
            cursor.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        return int(cursor.fetchone()[0])


WORDS = [uuid.UUID(int=number * 7919**9).hex[: 3 + number % 6] for number in range(1, 999)]


def prose(seed: int) -> str:
    """1 KB that compresses about as well as prose does."""
    return " ".join(WORDS[(seed * 37 + place * place) % len(WORDS)] for place in range(170))[:1024]


@pytest.mark.parametrize("kind", ["messages", "dicts", "strings", "another channel"])
def test_400_turns_of_1_kb_store_at_most_three_times_their_text(kind: str) -> None:
    compact_tables()
    saver = DjangoSaver()
    channel = "log" if kind == "another channel" else "messages"
    items: list[Any] = []
    before = stored_bytes()
    here = config(checkpoint_ns="")
    for turn in range(400):
        item: Any = prose(turn)
        if kind == "messages":
            item = HumanMessage(item, id=str(uuid.uuid4()))
        elif kind == "dicts":
            item = {"role": "user", "content": item}
        items = [*items, item]
        here = put(saver, here, {channel: items}, turn + 1)
    grown = stored_bytes() - before

    found = DjangoSaver().get_tuple(config())
    assert found is not None
    assert found.checkpoint["channel_values"][channel] == items
    assert grown <= 3 * 400 * 1024, f"{grown / 400 / 1024:.2f} times its text"


def test_100_turns_of_a_graph_store_at_most_three_times_their_text() -> None:
    """The text is that of the messages: one of 1 KB and an answer of 1 KB each turn. A real graph puts three
    checkpoints a turn, with the message in its input, in two pending writes and in the list. The thread's id,
    which every row has, is short."""
    compact_tables()
    graph = chat(DjangoSaver(), lambda state: AIMessage(prose(10_000 + len(state["messages"]))))
    for turn in range(20):  # so that the tables have their first pages
        graph.invoke({"messages": [("user", prose(turn))]}, config("another"))
    before = stored_bytes()
    for turn in range(100):
        graph.invoke({"messages": [("user", prose(turn))]}, config())
    grown = stored_bytes() - before

    text = sum(map(len, texts(chat(DjangoSaver()).get_state(config()).values)))
    assert text == 100 * 2 * 1024
    assert SessionStore().examine_sessions(deep=True) == []
    assert grown <= 3 * text, f"{grown / text:.2f} times its text"
