"""Open tool calls, and what closes them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from helix_sessions.transcripts import heal, open_tool_calls
from tests.rows import each


def call(call_id: str, name: str = "look", arguments: Any = None) -> dict[str, Any]:
    return {"id": call_id, "name": name, "arguments": arguments or {}}


def calling(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls)}


def openai(call_id: str, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": arguments}}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "tool_name": "look", "content": "found"}


def native_call(call_id: str) -> dict[str, Any]:
    block = {"type": "tool_use", "id": call_id, "name": "look", "input": {"q": 1}}
    return {"role": "assistant", "content": [{"type": "text", "text": "looking"}, block]}


def native_result(call_id: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": [{"type": "tool_result", "tool_use_id": call_id, "content": "found"}]}


def open_ids(*messages: Any) -> list[str]:
    return [open_call["id"] for open_call in open_tool_calls(messages)]


def test_a_call_without_a_result_is_open() -> None:
    messages = [
        {"role": "user", "content": "hi"},
        calling(call("c1", "look", {"q": 1}), call("c2")),
        result("c2"),
    ]

    assert open_tool_calls(messages) == [{"id": "c1", "name": "look", "arguments": {"q": 1}}]


def test_a_call_may_be_the_item_of_a_message() -> None:
    item = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"q": 1}'}
    message = {"role": "assistant", "tool_name": "look", "item": item}

    assert open_tool_calls([message]) == [{"id": "c1", "name": "look", "arguments": {"q": 1}}]
    assert open_ids(message, {"role": "tool", "tool_call_id": "c1", "item": {}}) == []
    assert open_ids({**message, "item": {**item, "type": "reasoning"}}) == []
    assert open_ids({**message, "item": "function_call"}) == []


def test_open_calls_come_in_the_order_they_were_made() -> None:
    assert open_ids(calling(call("c3"), call("c1")), calling(call("c2")), result("c1")) == ["c3", "c2"]


@each(
    ("arguments", "read"),
    [
        ('{"q": [1]}', {"q": [1]}),
        ({"q": 1}, {"q": 1}),
        ("", ""),
        ('{"q": ', '{"q": '),
        ("NaN", "NaN"),
        ("1e999", "1e999"),
        (r'"\ud800"', r'"\ud800"'),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_openai_arguments_are_parsed_when_they_can_be(arguments: Any, read: Any) -> None:
    assert open_tool_calls([calling(openai("c1", arguments))]) == [
        {"id": "c1", "name": "look", "arguments": read}
    ]


def test_flat_arguments_are_taken_as_they_are() -> None:
    assert open_tool_calls([calling(call("c1", arguments="5"))])[0]["arguments"] == "5"


def test_a_native_call_is_read() -> None:
    assert open_tool_calls([native_call("c1")]) == [{"id": "c1", "name": "look", "arguments": {"q": 1}}]


@each("answer", [result("c1"), native_result("c1"), native_result("c1", role="tool")])
@each("asked", [calling(call("c1")), calling(openai("c1", "{}")), native_call("c1")])
def test_any_kind_of_result_closes_any_kind_of_call(asked: dict[str, Any], answer: dict[str, Any]) -> None:
    assert open_ids(asked, answer) == []


def test_a_call_held_in_two_formats_is_one_call() -> None:
    both = {**native_call("c1"), "tool_calls": [call("c1")]}

    assert open_ids(both) == ["c1"]
    assert open_ids(both, {**native_result("c1", role="tool"), "tool_call_id": "c1"}) == []


def test_a_result_held_in_two_formats_closes_one_call() -> None:
    both = {**native_result("c1", role="tool"), "tool_call_id": "c1"}

    assert open_ids(calling(call("c1")), calling(call("c1")), both) == ["c1"]


def test_a_result_closes_the_earliest_open_call_of_its_id() -> None:
    messages = [calling(call("c1", "first")), calling(call("c1", "second")), result("c1")]

    assert [open_call["name"] for open_call in open_tool_calls(messages)] == ["second"]


def test_an_id_may_come_again_in_a_later_turn() -> None:
    assert open_ids(calling(call("c1")), result("c1"), calling(call("c1"))) == ["c1"]


def test_a_result_closes_no_later_call() -> None:
    assert open_ids(result("c1"), calling(call("c1"))) == ["c1"]


def test_only_the_right_roles_call_and_answer() -> None:
    asked = {**calling(call("c1")), "role": "user"}
    answer = {**result("c2"), "role": "user"}

    assert open_ids(asked, calling(call("c2")), answer) == ["c2"]


def test_healing_answers_each_open_call_with_an_error_in_order() -> None:
    messages = [calling(call("c1"), call("c2", "write"), call("c3")), result("c1")]

    assert heal(messages) == [
        {
            "role": "tool",
            "tool_call_id": call_id,
            "tool_name": name,
            "content": "Tool execution interrupted",
            "is_error": True,
        }
        for call_id, name in [("c2", "write"), ("c3", "look")]
    ]


def test_healing_gives_the_call_of_a_finish_tool_a_result_that_is_no_error() -> None:
    messages = [calling(call("c1"), call("c2", "__finish__"), call("c3", "done"))]

    def errors(*finish_tools: str) -> list[str]:
        results = heal(messages, finish_tools=finish_tools) if finish_tools else heal(messages)
        assert [result["tool_call_id"] for result in results] == ["c1", "c2", "c3"]
        return [result["tool_call_id"] for result in results if "is_error" in result]

    assert errors() == ["c1", "c3"]
    assert errors("done", "__finish__") == ["c1"]
    assert errors("done") == ["c1", "c2"]


def test_a_healed_transcript_needs_no_more_healing() -> None:
    messages = [calling(call("c1"), call("c1")), native_call("c2")]

    assert heal([*messages, *heal(messages)]) == []


odd = st.recursive(
    st.none() | st.integers() | st.sampled_from(["", "c1", "assistant", "tool", "tool_use", "tool_result"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "type", "function", "name", "arguments", "input", "tool_use_id"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
odd_messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["assistant", "tool", "user", "other"]) | odd},
    optional={"content": odd | st.lists(odd), "tool_calls": odd | st.lists(odd), "tool_call_id": odd},
)


@given(st.lists(odd_messages | odd, max_size=5))
def test_odd_messages_are_never_an_error(messages: list[Any]) -> None:
    for open_call in open_tool_calls(messages):
        assert open_call["id"]
        assert isinstance(open_call["name"], str)
    heal(messages)
