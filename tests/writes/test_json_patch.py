"""RFC 6902 patches, read as StepWrites."""

from typing import Any

import pytest

from helix_sessions.exceptions import InvalidWrites
from helix_sessions.writes import Write, apply_writes, parse_writes
from tests.rows import each


@each(
    ("operation", "write"),
    [
        ({"op": "add", "path": "/a/b", "value": 1}, {"op": "insert", "path": ["a", "b"], "value": 1}),
        ({"op": "add", "path": "/a/0", "value": 1}, {"op": "insert", "path": ["a", "0"], "value": 1}),
        ({"op": "add", "path": "/a/-", "value": 1}, {"op": "append", "path": ["a"], "values": [1]}),
        ({"op": "add", "path": "/-", "value": 1}, {"op": "insert", "path": ["-"], "value": 1}),
        ({"op": "add", "path": "/", "value": 1}, {"op": "insert", "path": [""], "value": 1}),
        ({"op": "add", "path": "", "value": {}}, {"op": "set", "path": [], "value": {}}),
        ({"op": "replace", "path": "", "value": {}}, {"op": "set", "path": [], "value": {}}),
        ({"op": "replace", "path": "/a", "value": None}, {"op": "set", "path": ["a"], "value": None}),
        ({"op": "remove", "path": "/a/0"}, {"op": "delete", "path": ["a", "0"]}),
        ({"op": "remove", "path": "/a~1b/m~0n/~01"}, {"op": "delete", "path": ["a/b", "m~n", "~1"]}),
    ],
)
def test_operations_become_writes(operation: dict[str, Any], write: Write) -> None:
    assert parse_writes([operation]) == [write]


@each(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 1},
        {"op": "move", "path": "/a", "from": "/b"},
        {"op": "copy", "path": "/a", "from": "/b"},
        {"op": "add", "path": "/a"},
        {"op": "add", "value": 1},
        {"op": "replace", "path": "/a"},
        {"op": "add", "path": ["a"], "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "path": "/a~2", "value": 1},
        {"op": "add", "path": "/a~", "value": 1},
        {"op": "replace", "path": "", "value": [1]},
        {"op": "remove", "path": ""},
    ],
)
def test_what_cannot_be_read_is_refused_by_name(operation: dict[str, Any]) -> None:
    with pytest.raises(InvalidWrites, match="Write 0: "):
        parse_writes([operation])


def test_members_the_rfc_does_not_define_are_ignored() -> None:
    operation = {"op": "remove", "path": "/a", "value": None, "from": None}

    assert parse_writes([operation]) == [{"op": "delete", "path": ["a"]}]


def test_patches_and_step_writes_may_be_mixed() -> None:
    document = apply_writes(
        {"items": [1]},
        [
            {"op": "add", "path": "/items/-", "value": 2},
            {"op": "append", "path": ["items"], "values": [3]},
            {"op": "add", "path": "/items/0", "value": 0},
        ],
    )

    assert document == {"items": [0, 1, 2, 3]}


def test_removing_what_is_not_there_is_no_error() -> None:
    assert apply_writes({"a": 1}, [{"op": "remove", "path": "/b/c"}]) == {"a": 1}


def test_a_digit_part_is_a_key_of_an_object_and_an_index_of_a_list() -> None:
    patch = [{"op": "replace", "path": f"/{name}/0", "value": "new"} for name in ("object", "list")]

    document = apply_writes({"object": {"0": "old"}, "list": ["old"]}, patch)

    assert document == {"object": {"0": "new"}, "list": ["new"]}
