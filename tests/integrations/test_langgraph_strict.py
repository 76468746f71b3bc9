"""Which types are built when a checkpoint is read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.core.management import call_command
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

from helix_sessions.deploy_checks import check_langgraph
from helix_sessions.exceptions import InvalidInput
from helix_sessions.integrations.langgraph import DjangoSaver, strictness
from tests.integrations.test_langgraph_older_forms import Rot

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Point:
    x: int


class Place(BaseModel):
    name: str


VALUES = {
    "point": Point(1),
    "place": Place(name="Oslo"),
    "messages": [HumanMessage("hi", id="h")],
    "set": {1, 2},
    "long": [Point(number) for number in range(200)],
}
THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def read(saver: DjangoSaver) -> dict[str, Any]:
    found = saver.get_tuple(THREAD)
    assert found is not None
    return found.checkpoint["channel_values"]


@pytest.fixture(autouse=True)
def stored() -> Iterator[None]:
    versions: Any = dict.fromkeys(VALUES, 1)
    checkpoint: Any = {**empty_checkpoint(), "channel_values": VALUES, "channel_versions": versions}
    DjangoSaver().put(THREAD, checkpoint, {}, versions)
    strictness.seen.clear()
    yield
    strictness.seen.clear()


def test_a_strict_saver_builds_only_what_is_safe() -> None:
    found = read(DjangoSaver(strict=True))
    assert found["point"] == {"x": 1}
    assert found["place"] == {"name": "Oslo"}
    assert found["long"][:2] == [{"x": 0}, {"x": 1}]
    assert found["messages"] == VALUES["messages"]
    assert found["set"] == {1, 2}


def test_a_serializer_allows_more() -> None:
    serde = JsonPlusSerializer(allowed_msgpack_modules=[Point, (Place.__module__, "Place")])
    assert read(DjangoSaver(serde=serde, strict=True)) == VALUES


def test_without_it_langgraph_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(DjangoSaver()) == VALUES
    monkeypatch.setattr("langgraph.checkpoint.serde._msgpack.STRICT_MSGPACK_ENABLED", True)
    assert read(DjangoSaver())["point"] == {"x": 1}
    assert read(DjangoSaver(strict=False)) == VALUES


def test_a_serializer_that_builds_anything_cannot_be_strict() -> None:
    for serde in (
        JsonPlusSerializer(),
        JsonPlusSerializer(allowed_msgpack_modules=[Point], pickle_fallback=True),
        EncryptedSerializer(Rot(), JsonPlusSerializer()),
    ):
        with pytest.raises(InvalidInput):
            DjangoSaver(serde=serde, strict=True)
    DjangoSaver(
        serde=EncryptedSerializer(Rot(), JsonPlusSerializer(allowed_msgpack_modules=None)), strict=True
    )


def test_the_check_of_a_deployment_asks_for_it(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def asked() -> bool:
        return bool(check_langgraph(None))

    assert asked(), "before a saver is made"
    call_command("check", deploy=True)
    assert "helix_sessions.W010" in capsys.readouterr().err
    DjangoSaver(strict=True)
    assert not asked()
    DjangoSaver()
    assert asked()
    strictness.seen.clear()
    monkeypatch.setattr("langgraph.checkpoint.serde._msgpack.STRICT_MSGPACK_ENABLED", True)
    assert not asked(), "LangGraph itself is strict"
    monkeypatch.undo()
    monkeypatch.delitem(__import__("sys").modules, strictness.__name__)
    assert not asked(), "the project does not use the adapter"
