"""What well-formed writes are, and what they do to a document."""

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_sessions.exceptions import InvalidWrites
from helix_sessions.writes import Write, apply_writes, parse_writes
from tests.rows import each
from tests.writes.documents import objects, text, values, writes


def set_(*path: str | int, value: Any) -> Write:
    return {"op": "set", "path": list(path), "value": value}


def append(*path: str | int, values: list[Any]) -> Write:
    return {"op": "append", "path": list(path), "values": values}


def insert(*path: str | int, value: Any) -> Write:
    return {"op": "insert", "path": list(path), "value": value}


def delete(*path: str | int) -> Write:
    return {"op": "delete", "path": list(path)}


@each(
    ("document", "write", "expected"),
    [
        (
            {"user": {"name": "A", "age": 1}},
            set_("user", "name", value="B"),
            {"user": {"name": "B", "age": 1}},
        ),
        ({}, set_("a", "b", "c", value=1), {"a": {"b": {"c": 1}}}),
        ({"a": None}, set_("a", "b", value=1), {"a": {"b": 1}}),
        ({"a": [None]}, set_("a", 0, "b", value=1), {"a": [{"b": 1}]}),
        ({"a": [1, 2]}, set_("a", 0, value=9), {"a": [9, 2]}),
        ({"a": [1, 2]}, set_("a", "1", value=9), {"a": [1, 9]}),
        ({"a": [1]}, set_("a", 1, value=2), {"a": [1, 2]}),
        ({"a": []}, set_("a", 0, "b", value=1), {"a": [{"b": 1}]}),
        ({"a": {}}, set_("a", 0, value=1), {"a": {"0": 1}}),
        ({}, set_("a", 0, value=1), {"a": {"0": 1}}),
        ({"a": {}}, set_("a", -1, value=1), {"a": {"-1": 1}}),
        ({"a": 1}, set_("", value=2), {"a": 1, "": 2}),
        ({"a": 1}, set_(value={"b": 2}), {"b": 2}),
        ({"a": "text"}, set_("a", value=None), {"a": None}),
    ],
)
def test_set(document: dict[str, Any], write: Write, expected: dict[str, Any]) -> None:
    assert text(apply_writes(document, [write])) == text(expected)


@each(
    ("document", "write", "expected"),
    [
        ({"a": [1]}, append("a", values=[2, 3]), {"a": [1, 2, 3]}),
        ({}, append("a", values=[1]), {"a": [1]}),
        ({}, append("a", "b", values=[1]), {"a": {"b": [1]}}),
        ({"a": None}, append("a", values=[1]), {"a": [1]}),
        ({}, append("a", values=[]), {"a": []}),
        ({"a": [[1]]}, append("a", 0, values=[2]), {"a": [[1, 2]]}),
        ({"a": [[1]]}, append("a", 1, values=[2]), {"a": [[1], [2]]}),
    ],
)
def test_append(document: dict[str, Any], write: Write, expected: dict[str, Any]) -> None:
    assert text(apply_writes(document, [write])) == text(expected)


@each(
    ("document", "write", "expected"),
    [
        ({"a": [1, 2]}, insert("a", 0, value=0), {"a": [0, 1, 2]}),
        ({"a": [1, 2]}, insert("a", "1", value=0), {"a": [1, 0, 2]}),
        ({"a": [1]}, insert("a", 1, value=2), {"a": [1, 2]}),
        ({"a": {"b": 1}}, insert("a", "b", value=2), {"a": {"b": 2}}),
        ({"a": {}}, insert("a", 0, value=1), {"a": {"0": 1}}),
        ({}, insert("a", value=1), {"a": 1}),
    ],
)
def test_insert(document: dict[str, Any], write: Write, expected: dict[str, Any]) -> None:
    assert text(apply_writes(document, [write])) == text(expected)


@each(
    ("document", "write", "expected"),
    [
        ({"a": 1, "b": 2}, delete("a"), {"b": 2}),
        ({"a": None}, delete("a"), {}),
        ({"a": [1, 2, 3]}, delete("a", 1), {"a": [1, 3]}),
        ({"a": [1, 2, 3]}, delete("a", "0"), {"a": [2, 3]}),
        ({"a": {"0": 1}}, delete("a", 0), {"a": {}}),
    ],
)
def test_delete(document: dict[str, Any], write: Write, expected: dict[str, Any]) -> None:
    assert text(apply_writes(document, [write])) == text(expected)


@each(
    "path",
    [
        ["x"],
        ["x", "y"],
        ["s", "y"],
        ["n", "y"],
        ["l", 2],
        ["l", -1],
        ["l", "name"],
        ["l", 0, "y"],
        ["l", "00"],
    ],
)
def test_deleting_what_is_not_there_changes_nothing(path: list[str | int]) -> None:
    document = {"s": "text", "n": None, "l": [1, 2]}

    assert text(apply_writes(document, [{"op": "delete", "path": path}])) == text(document)


@each(
    "write",
    [
        set_("s", "x", value=1),
        set_("i", 0, value=1),
        set_("t", "x", "y", value=1),
        insert("s", 0, value=1),
        append("s", values=[1]),
        append("o", values=[1]),
        append("s", "x", values=[1]),
        set_("l", 3, value=1),
        set_("l", -1, value=1),
        set_("l", "-1", value=1),
        set_("l", "01", value=1),
        set_("l", "+1", value=1),
        set_("l", "\u0661", value=1),
        set_("l", "1" * 5000, value=1),
        set_("l", "name", value=1),
        set_("l", "-", value=1),
        set_("l", 3, "x", value=1),
        insert("l", 3, value=1),
        insert("l", -1, value=1),
        append("l", 3, values=[1]),
    ],
)
def test_what_cannot_be_applied_is_refused_by_name(write: Write) -> None:
    document = {"s": "text", "i": 5, "t": True, "o": {}, "l": [1, 2]}

    with pytest.raises(InvalidWrites, match=r"Write 1 \("):
        apply_writes(document, [set_("fine", value=1), write])


@each(
    "write",
    [
        None,
        "set",
        {},
        {"op": None, "path": ["a"]},
        {"op": ["set"], "path": ["a"], "value": 1},
        {"op": "merge", "path": ["a"], "value": 1},
        {"op": "set", "value": 1},
        {"op": "set", "path": ["a"]},
        {"op": "append", "path": ["a"], "value": 1},
        {"op": "append", "path": ["a"], "values": "text"},
        {"op": "append", "path": ["a"], "values": {}},
        {"op": "delete", "path": ["a"], "value": 1},
        {"op": "set", "path": ["a"], "value": 1, "when": "now"},
        {"op": "set", "path": "/a", "value": 1},
        {"op": "set", "path": {"a": 1}, "value": 1},
        {"op": "set", "path": [True], "value": 1},
        {"op": "set", "path": [1.0], "value": 1},
        {"op": "set", "path": [None], "value": 1},
        {"op": "set", "path": [10**5000], "value": 1},
        {"op": "set", "path": [], "value": []},
        {"op": "set", "path": [], "value": None},
        {"op": "append", "path": [], "values": [1]},
        {"op": "insert", "path": [], "value": {}},
        {"op": "delete", "path": []},
    ],
)
def test_malformed_writes_are_refused_by_name(write: Any) -> None:
    with pytest.raises(InvalidWrites, match=r"Write 1: "):
        parse_writes([delete("a"), write])


@each("value", [None, 5, "[]", b"", {}, {"op": "delete", "path": ["a"]}, iter([])])
def test_writes_are_a_list(value: Any) -> None:
    with pytest.raises(InvalidWrites):
        parse_writes(value)


def test_parsing_gives_plain_writes_in_canonical_key_order() -> None:
    parsed = parse_writes(({"value": 1, "path": ("a", 0), "op": "set"},))

    assert text(parsed) == '[{"op": "set", "path": ["a", 0], "value": 1}]'


def test_writes_are_applied_in_order() -> None:
    document = apply_writes({}, [append("a", values=[1]), insert("a", 0, value=0), delete("a", 1)])

    assert document == {"a": [0]}


def test_a_new_key_goes_to_the_end_and_a_known_one_keeps_its_place() -> None:
    document = apply_writes({"a": 1, "b": 2}, [set_("c", value=3), set_("a", value=0)])

    assert text(document) == '{"a": 0, "b": 2, "c": 3}'


def test_appends_of_two_tools_both_survive() -> None:
    stored = {"found": ["start"]}
    one, other = [append("found", values=["one"])], [append("found", values=["other"])]

    assert apply_writes(apply_writes(stored, one), other) == {"found": ["start", "one", "other"]}


def test_the_result_keeps_nothing_of_the_writes() -> None:
    value: dict[str, Any] = {"list": [1]}
    document = apply_writes(
        {}, [set_("a", value=value), append("b", values=[value]), set_("a", "x", value=value)]
    )

    value["list"].append(2)

    assert document == {"a": {"list": [1], "x": {"list": [1]}}, "b": [{"list": [1]}]}


def test_untouched_branches_are_shared() -> None:
    document = {"big": {"x": 1}, "small": {"y": 1}}

    result = apply_writes(document, [set_("small", "y", value=2)])

    assert result["big"] is document["big"]


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)

    with pytest.raises(InvalidWrites, match="Write 0"):
        apply_writes({}, [set_("a", value=value)])


def test_deep_values_and_paths_are_no_trouble() -> None:
    path: list[str | int] = ["a"] * 3000

    document = apply_writes({}, [set_(*path, value=1), set_(*path, value=2)])
    document = apply_writes({}, [set_("copy", value=document)])

    for key in ["copy", *path]:
        document = document[str(key)]
    assert document == 2  # type: ignore[comparison-overlap]


@given(objects, st.lists(writes, max_size=6))
def test_applying_never_changes_what_it_was_given(document: dict[str, Any], steps: list[Write]) -> None:
    before = text([document, steps])

    with contextlib.suppress(InvalidWrites):
        apply_writes(document, steps)

    assert text([document, steps]) == before


@given(objects, st.lists(writes, max_size=6))
def test_a_list_of_writes_is_its_writes_one_by_one(document: dict[str, Any], steps: list[Write]) -> None:
    one_by_one = copy.deepcopy(document)
    try:
        for step in steps:
            one_by_one = apply_writes(one_by_one, [step])
    except InvalidWrites:
        with pytest.raises(InvalidWrites):
            apply_writes(document, steps)
    else:
        assert text(apply_writes(document, steps)) == text(one_by_one)


@given(objects, values, values)
def test_appends_survive_in_any_document(document: dict[str, Any], one: Any, other: Any) -> None:
    document["found"] = [0]

    document = apply_writes(
        apply_writes(document, [append("found", values=[one])]), [append("found", values=[other])]
    )

    assert text(document["found"]) == text([0, one, other])
