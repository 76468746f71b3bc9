"""The writes between two documents."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from helix_sessions.exceptions import InvalidWrites
from helix_sessions.writes import Write, apply_writes, diff, parse_writes
from tests.rows import each
from tests.writes.documents import objects, text, writes


@each(
    ("old", "new", "expected"),
    [
        ({}, {}, []),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}, []),
        ({"a": 1}, {"a": 2}, [{"op": "set", "path": ["a"], "value": 2}]),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, [{"op": "set", "path": ["a", "b"], "value": 2}]),
        ({"a": 1}, {"a": 1, "b": 2}, [{"op": "set", "path": ["b"], "value": 2}]),
        ({"a": 1, "b": 2}, {"a": 1}, [{"op": "delete", "path": ["b"]}]),
        ({"a": [1]}, {"a": [1, 2, 3]}, [{"op": "append", "path": ["a"], "values": [2, 3]}]),
        ({"a": [1, 2]}, {"a": [0, 1, 2]}, [{"op": "insert", "path": ["a", 0], "value": 0}]),
        ({"a": [1, 2, 3]}, {"a": [1, 3]}, [{"op": "delete", "path": ["a", 1]}]),
        ({"a": [{"b": 1}, 2]}, {"a": [{"b": 9}, 2]}, [{"op": "set", "path": ["a", 0, "b"], "value": 9}]),
        ({"a": None}, {"a": {"b": 1}}, [{"op": "set", "path": ["a"], "value": {"b": 1}}]),
        ({"a": 1}, {}, [{"op": "set", "path": [], "value": {}}]),
    ],
)
def test_small_changes_give_small_writes(
    old: dict[str, Any], new: dict[str, Any], expected: list[Write]
) -> None:
    assert diff(old, new) == expected


@each(
    ("old", "new"),
    [(1, True), (1, 1.0), (0, False), (0.0, -0.0), (None, False), ([], {}), ("1", 1), (10**40, 10**40 + 1)],
)
def test_values_that_only_look_equal_differ(old: Any, new: Any) -> None:
    for before, after in [({"a": old}, {"a": new}), ({"a": [old]}, {"a": [new]}), ({"a": new}, {"a": old})]:
        assert text(apply_writes(before, diff(before, after))) == text(after)


def test_a_key_that_moved_is_written_again_and_its_siblings_are_not() -> None:
    old = {"big": {"x": 1}, "moved": 1, "last": 2}

    assert diff(old, {"big": {"x": 1}, "last": 2, "moved": 1}) == [
        {"op": "delete", "path": ["moved"]},
        {"op": "set", "path": ["moved"], "value": 1},
    ]


def test_another_first_key_replaces_its_object_only() -> None:
    old = {"kept": [1], "object": {"a": 1, "b": 2}}

    assert diff(old, {"kept": [1], "object": {"new": 0, "a": 1, "b": 2}}) == [
        {"op": "set", "path": ["object"], "value": {"new": 0, "a": 1, "b": 2}}
    ]


def test_a_list_with_much_changed_is_replaced() -> None:
    assert diff({"v": list(range(100))}, {"v": list(range(1, 101))}) == [
        {"op": "set", "path": ["v"], "value": list(range(1, 101))}
    ]


def test_deep_documents_are_no_trouble() -> None:
    def nest(leaf: Any) -> dict[str, Any]:
        for level in range(2500):
            leaf = {"a": [leaf]} if level % 2 else {"a": leaf}
        return {"a": leaf}

    writes = diff(nest(1), nest(2))

    assert len(writes) == 1
    assert diff(apply_writes(nest(1), writes), nest(2)) == []


@given(objects, objects)
def test_any_document_becomes_any_other_exactly(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert text(apply_writes(old, diff(old, new))) == text(new)


@given(objects, st.lists(writes, max_size=6))
def test_what_writes_did_is_found_again(old: dict[str, Any], steps: list[Write]) -> None:
    new = copy.deepcopy(old)
    for step in steps:
        try:
            new = apply_writes(new, [step])
        except InvalidWrites:
            continue

    found = diff(old, new)

    assert text(apply_writes(old, found)) == text(new)
    assert parse_writes(found) == found


@given(objects, st.randoms(use_true_random=False))
def test_the_order_of_keys_comes_back_at_every_level(old: dict[str, Any], random: Any) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, list):
            return [shuffled(item) for item in value]
        if not isinstance(value, dict):
            return value
        keys = list(value)
        random.shuffle(keys)
        return {key: shuffled(value[key]) for key in keys}

    new = shuffled(old)

    assert text(apply_writes(old, diff(old, new))) == text(new)


@given(objects)
def test_the_same_document_has_no_diff(document: dict[str, Any]) -> None:
    assert diff(document, copy.deepcopy(document)) == []
