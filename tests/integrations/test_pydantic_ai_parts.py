"""Every kind of part that the installed pydantic-ai knows comes back equal. The kinds are asked for, so that
the test is about the oldest supported version and about the newest."""

import dataclasses
import types
from base64 import b64encode
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin

import pytest

pytest.importorskip("pydantic_ai")

from pydantic import TypeAdapter, ValidationError
from pydantic_ai import messages
from pydantic_ai.messages import ModelRequest, ModelResponse, UserPromptPart

from helix_sessions.integrations.pydantic_ai import DjangoHistory
from helix_sessions.store import SessionStore

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # old kinds are read as long as they are known
]

DATA = bytes(range(256)) * 3
VALUES: dict[str, Any] = {
    "url": "https://example.com/a.png",
    "data": b64encode(DATA).decode(),
    "media_type": "image/png",
    "provider_name": "openai",
    "args": {"q": [1, None, "é \u0000"]},
    "metadata": {"k": [1]},
    "provider_details": {"signature": "abc"},
    "signature": "abc",
    "id": "i-1",
    "tool_call_id": "call-1",
    "file_id": "file-1",
    "transcript": "spoken",
}
"""What the fields of a part are set to, by their names; other texts are their names."""


def classes_in(union: Any) -> Iterator[type]:
    """The classes of a union, however it is written."""
    if get_origin(union) is Annotated:
        yield from classes_in(get_args(union)[0])
    elif get_origin(union) in (Union, types.UnionType):
        for each in get_args(union):
            yield from classes_in(each)
    elif hasattr(union, "__value__"):
        yield from classes_in(union.__value__)
    elif isinstance(union, type):
        yield union


def made(part: type, speaker: str = "user") -> Any:
    """A part of a kind with as many of its fields set as it takes."""
    values = {**VALUES, "speaker": speaker}
    whole, least = dict[str, Any](), dict[str, Any]()
    for field in dataclasses.fields(part):
        if not field.init or field.name in ("kind", "part_kind"):
            continue
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if field.name in values:
            whole[field.name] = values[field.name]
        elif needed or field.name == "content":
            whole[field.name] = content_of(part) if field.name == "content" else field.name
        if needed:
            least[field.name] = whole[field.name]
    if part.__name__ == "CompactionPart" and speaker == "user":
        whole = {"content": "what was said"}  # in a request it is nobody's
    adapter: TypeAdapter[Any] = TypeAdapter(part)
    for given in (whole, least):
        try:
            return adapter.validate_python({**given, **special(part)})
        except ValidationError as error:  # with less it may do
            last = error
    raise AssertionError(f"no {part.__name__} can be made: {last}")


def content_of(part: type) -> Any:
    if part.__name__ == "FilePart":
        return {"data": b64encode(DATA).decode(), "media_type": "image/png", "kind": "binary"}
    if "ToolSearchReturn" in part.__name__:
        return {"discovered_tools": []}
    if "LoadCapabilityReturn" in part.__name__:
        return {"instructions": "be brief"}
    return f"what {part.__name__} says"


def special(part: type) -> dict[str, Any]:
    """Fields whose values have a form of their own."""
    known: dict[str, dict[str, Any]] = {
        "RetryFeedbackPart": {"retry": {"cause": "no_output", "attempt": 1}},
        "ModelSettingsDeltaPart": {"settings": {}},
        "InstructionBaselinePart": {"instructions": []},
    }
    return known.get(part.__name__, {})


def plain(said: list[Any]) -> list[Any]:
    """Messages as they are after pydantic-ai has written and read them once."""
    adapter = messages.ModelMessagesTypeAdapter
    found = adapter.validate_json(adapter.dump_json(said))
    assert adapter.validate_json(adapter.dump_json(found)) == found
    return list(found)


def kinds(union: str) -> dict[str, type]:
    return {each.__name__: each for each in classes_in(getattr(messages, union)) if each is not str}


def test_every_kind_of_part_comes_back_equal(store: SessionStore) -> None:
    requests, responses = kinds("ModelRequestPart"), kinds("ModelResponsePart")
    assert {"SystemPromptPart", "UserPromptPart", "ToolReturnPart", "RetryPromptPart"} <= requests.keys()
    assert {"TextPart", "ThinkingPart", "ToolCallPart", "FilePart"} <= responses.keys()
    asked = [made(each) for each in requests.values()]
    answered = [made(each, "assistant") for each in responses.values()]
    said = plain([ModelRequest(parts=[part]) for part in asked])
    said += plain([ModelResponse(parts=[part]) for part in answered])
    said += plain([ModelRequest(parts=asked), ModelResponse(parts=answered)])
    for number, message in enumerate(said):
        DjangoHistory(f"s-{number}").save([message])
        [found] = DjangoHistory(f"s-{number}").load()
        assert found == message
        assert [type(part) for part in found.parts] == [type(part) for part in message.parts]
    DjangoHistory("all").save(said)
    assert DjangoHistory("all").load() == said


def test_every_kind_of_user_content_comes_back_equal(store: SessionStore) -> None:
    contents = [made(each) for each in kinds("UserContent").values()]
    said = plain([ModelRequest(parts=[UserPromptPart(["text", *contents])])])
    DjangoHistory("s").save(said)
    assert DjangoHistory("s").load() == said
