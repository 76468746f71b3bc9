"""Large contents of a LangGraph thread: each is one attachment, however often the graph writes it."""

import operator
from base64 import b64encode
from hashlib import sha256
from random import Random
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import END, START, MessagesState, StateGraph

from helix_sessions.integrations.forms import framework_of
from helix_sessions.integrations.langgraph import DjangoSaver
from helix_sessions.models import Blob, Note
from helix_sessions.store import SessionStore

pytestmark = pytest.mark.django_db(transaction=True)

RAW = Random(24).randbytes(100_000)
PICTURE = b64encode(RAW).decode()
THREAD: Any = {"configurable": {"thread_id": "t"}}


class State(TypedDict):
    data: bytes
    count: int
    many: Annotated[list[Any], operator.add]


class Rot:
    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "rot", bytes(byte ^ 42 for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return bytes(byte ^ 42 for byte in ciphertext)


@pytest.fixture(autouse=True)
def usual_threshold(blob_storage: Any, settings: Any) -> None:
    settings.HELIX_SESSIONS = {**settings.HELIX_SESSIONS, "BLOB_THRESHOLD": 64 * 1024}


def kept() -> list[str]:
    return sorted(Blob.objects.values_list("sha256", flat=True))


def counting(saver: DjangoSaver, **nodes: Any) -> Any:
    builder = StateGraph(State)
    for name, node in nodes.items():
        builder.add_node(name, node)
    for first, second in zip([START, *nodes], [*nodes, END], strict=True):
        builder.add_edge(first, second)
    return builder.compile(checkpointer=saver)


def history(graph: Any) -> list[Any]:
    return [snapshot.values for snapshot in graph.get_state_history(THREAD)]


def test_bytes_are_kept_once() -> None:
    def build() -> Any:
        return counting(
            DjangoSaver(),
            count=lambda state: {"count": 1, "data": state["data"]},
            wrap=lambda state: {"many": [{"in": state["data"]}]},
        )

    build().invoke({"data": RAW, "count": 0, "many": []}, THREAD)
    for number in range(3):
        build().invoke({"count": number}, THREAD)

    assert kept() == [sha256(RAW).hexdigest()]
    assert all(len(document["packed"]) < 10_000 for document in documents())
    values = history(build())
    assert len(values) == 12 + 4
    assert {value["data"] for value in values if "data" in value} == {RAW}
    assert values[0]["many"] == [{"in": RAW}] * 4


def documents() -> list[dict[str, Any]]:
    return [note.document for note in Note.objects.all() if "packed" in note.document]


def test_a_picture_is_kept_once() -> None:
    """In the transcript, in the input and in what a node writes."""
    url = f"data:image/png;base64,{PICTURE}"
    said = HumanMessage([{"type": "image_url", "image_url": {"url": url}}], id="h")
    source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
    shown = AIMessage([{"type": "image", "source": source}], id="a")

    def build() -> Any:
        builder = StateGraph(MessagesState)
        builder.add_node("show", lambda state: {"messages": [shown]})
        builder.add_edge(START, "show")
        return builder.compile(checkpointer=DjangoSaver())

    build().invoke({"messages": [said]}, THREAD)
    assert kept() == [sha256(RAW).hexdigest()]
    assert build().get_state(THREAD).values["messages"] == [said, shown]
    assert history(build())[1]["messages"] == [said]
    build().invoke({"messages": [HumanMessage("and?", id="and")]}, THREAD)
    assert len(kept()) == 1


def test_a_message_that_only_the_serializer_writes(store: SessionStore) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("none", lambda state: {})
    graph.add_edge(START, "none")
    said = HumanMessage("look", id="h", additional_kwargs={"raw": RAW})
    graph.compile(checkpointer=DjangoSaver()).invoke({"messages": [said]}, THREAD)
    assert kept() == [sha256(RAW).hexdigest()]
    assert graph.compile(checkpointer=DjangoSaver()).get_state(THREAD).values["messages"] == [said]
    assert framework_of(store.get_messages("t").messages[0]) == "langgraph"


def test_any_serializer_brings_its_bytes_back() -> None:
    graph = counting(
        DjangoSaver(serde=EncryptedSerializer(Rot())),
        one=lambda state: {"count": 1, "many": [state["data"]]},
    )
    graph.invoke({"data": RAW, "many": []}, THREAD)
    values = history(graph)
    assert values[0] == {"data": RAW, "count": 1, "many": [RAW]}
    assert not {sha256(RAW).hexdigest()} & {*kept()}


def test_bytes_that_look_like_something_come_back() -> None:
    """What a head of msgpack seems to announce may be anything: the bytes are the same again."""
    odd = [
        b"\xc6\x00\x01\x11\x70" + RAW[:80_000],
        b"\xdb\x00\x01\x11\x70" + RAW[:70_000] + b"\xc6",
        b"\xdb\x00\x02\x00\x00" + b"A" * 70_000,
        PICTURE[:90_000].encode(),
        "ü" * 50_000,
        {"deep": [{"er": RAW[:66_000]}, PICTURE, "a" * 99_999 + "="]},
        bytearray(RAW),
    ]
    for number, value in enumerate(odd):
        thread: Any = {"configurable": {"thread_id": str(number)}}
        graph = counting(DjangoSaver(), one=lambda state: {"count": 1})
        graph.invoke({"data": value, "many": [value]}, thread)
        found = counting(DjangoSaver(), one=lambda state: None).get_state(thread).values
        assert found == {"data": value, "count": 1, "many": [value]}, number


def test_without_a_storage_all_is_in_the_notes(settings: Any) -> None:
    settings.HELIX_SESSIONS = {**settings.HELIX_SESSIONS, "BLOB_STORAGE": None}
    graph = counting(DjangoSaver(), one=lambda state: {"count": 1})
    graph.invoke({"data": RAW, "many": []}, THREAD)
    assert all(set(document) <= {"version", "id", "packed"} for document in documents())
    assert counting(DjangoSaver(), one=lambda state: None).get_state(THREAD).values["data"] == RAW
