"""What the machine passes in: few names and small numbers, so that calls meet.

Documents are drawn from lists rather than made up: the exactness of documents has tests of its own, and what
is drawn for a call leaves room for more calls.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from helix_sessions.types import RUN_STATUSES, SESSION_STATUSES

session_ids = st.sampled_from([*"aaaa", *"bbb", "c", "d"])
new_ids = st.sampled_from([*"ccc", *"ddd", "b", "a"])
doomed_ids = st.sampled_from([*"cccc", *"dddd", "b", "a"])
parents = st.sampled_from([None, None, *"abcd"])
statuses = st.sampled_from([*SESSION_STATUSES, "active", "active", "failed"])
run_statuses = st.sampled_from(RUN_STATUSES)
roles = st.sampled_from(["user", "assistant", "tool", "system"])
run_ids = st.sampled_from(["r1", "r2", "r3"])
checkpoint_ids = st.sampled_from(["c1", "c2", "c3"])
steps = st.sampled_from(["s1", "s2"])
calls = st.sampled_from(["t1", "t2", "t3"])
keys = st.sampled_from(["k1", "k2"])
texts = st.sampled_from(["", "why", "a\x00b", "é\U0001f600"])

versions = st.sampled_from([*[None] * 6, 0, 0, 0, 1, -1])
"""The expected version, as the distance from the right one."""

VALUES: list[Any] = [
    None,
    False,
    0,
    1,
    1.0,
    -0.0,
    2.5,
    10**40,
    "",
    "a\x00b",
    "é\U0001f600",
    [],
    {},
    [1, [True, None]],
    {"b": 1, "a": {"": [0]}},
    {"a": None},
]
OBJECTS: list[dict[str, Any]] = [
    {},
    {"a": 1},
    {"a": {"b": {"c": 1}}, "b": [1, 2, 3]},
    {"b": [1, 2, 3], "a": {"b": {"c": 1}}},
    {"a": [], "0": "zero", "1": None},
    {"a": [{"a": 1}, {"b": 2}], "c": "text"},
    {"list 1": [1], "a": True},
    {"a": None, "": {"-": [None, 1.0]}},
]
BALLAST = [{}, {}, {"ballast": "x" * 300}, {"ballast": "y" * 300}, {"ballast": "x" * 20_000}]

small = st.sampled_from(VALUES)
objects = st.sampled_from(OBJECTS)
custom_states = st.builds(
    lambda ballast, document: {**ballast, **document}, st.sampled_from(BALLAST), objects
)
metadata = st.dictionaries(
    st.sampled_from(["k", "l"]),
    st.sampled_from([1, "v", True, [1, {"a": None}], {"z": 1, "a": 2}]),
    max_size=2,
)
patches = st.dictionaries(st.sampled_from(["k", "l", "m"]), st.sampled_from([None, 1, "v", [2]]), max_size=2)
tags = st.lists(st.sampled_from(["t", "u"]), max_size=2, unique=True).map(tuple)
moments = st.none() | st.sampled_from(
    [datetime(2030, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(3)]
)
users = st.sampled_from([None, "u1", "u2"])
owners = st.sampled_from([None, 1, 2])
optional_maps: st.SearchStrategy[Any] = (
    st.none() | st.just({}) | st.just({"call": {"kind": "client_tool", "n": 1}})
)

message_lists = st.lists(
    st.builds(lambda role, content: {"role": role, "content": content}, roles, small), max_size=3
)
pointers = st.lists(st.sampled_from(["a", "b", "0", "1", "-", "é"]), min_size=1, max_size=3).map(
    lambda parts: "".join(f"/{part}" for part in parts)
)
patch_operations = st.one_of(
    st.builds(
        lambda op, path, value: {"op": op, "path": path, "value": value},
        st.sampled_from(["add", "replace"]),
        pointers,
        small,
    ),
    st.builds(lambda path: {"op": "remove", "path": path}, pointers),
)
paths = st.lists(st.sampled_from(["a", "b", "c", "0", 0, 1, 2, -1, "-", ""]), min_size=1, max_size=3)
step_writes = st.one_of(
    st.builds(lambda path, value: {"op": "set", "path": path, "value": value}, paths, small),
    st.builds(lambda path, value: {"op": "insert", "path": path, "value": value}, paths, small),
    st.builds(lambda path, value: {"op": "append", "path": path, "values": [value]}, paths, small),
    st.builds(lambda path: {"op": "delete", "path": path}, paths),
    st.builds(lambda value: {"op": "set", "path": [], "value": value}, objects),
)
write_lists = st.lists(step_writes | patch_operations, max_size=3)
gentle_writes = st.lists(
    st.builds(
        lambda key, value: {"op": "append", "path": [f"list {key}"], "values": [value]},
        st.integers(1, 3),
        small,
    )
    | st.builds(
        lambda key, value: {"op": "set", "path": [key], "value": value},
        st.sampled_from(["a", "b", "0"]),
        small,
    ),
    min_size=1,
    max_size=2,
)
"""Writes that fit most documents."""

_EDITS: dict[str, st.SearchStrategy[Any]] = {
    "status": statuses,
    "step_count": st.integers(0, 9),
    "output": small,
    "error": st.none() | texts,
    "failure_reason": st.sampled_from([None, "because"]),
    "interrupt_context": small,
    "pending_client_tool_calls": optional_maps,
    "suspended_awaiting_children": optional_maps,
    "suspended_step_id": st.sampled_from([None, "s1"]),
    "suspension_context": small,
    "completed_client_tool_calls": optional_maps,
    "client_tool_call_ownership": optional_maps,
    "tracing_context": small,
    "location": small,
    "expires_at": moments,
    "user_id": users,
    "tags": tags,
    "metadata": metadata,
    "workspace_ref": small,
}
edits = st.lists(
    st.sampled_from(list(_EDITS)).flatmap(lambda name: st.tuples(st.just(name), _EDITS[name])),
    max_size=2,
).map(dict)
"""What a caller changes of a state it loaded."""

tweaks = st.one_of(
    st.builds(lambda key, value: {key: value}, st.sampled_from(["a", "n1", "n2", "n3", "n4"]), small),
    st.builds(
        lambda key, value: {key: value}, st.sampled_from(["list 1", "n1", "n2"]), st.lists(small, max_size=2)
    ),
    st.none(),
    custom_states.map(lambda document: ("all of it", document)),
)
"""How an agent changes its own document: mostly a little."""

_NOT_OWNED = {
    "session_id": "other",
    "agent_type": "other",
    "stream_id": "other",
    "parent_session_id": "other",
    "root_session_id": "other",
    "forked_from": ("other", None),
    "owner_id": 99,
    "resume_count": 99,
    "message_count": 99,
    "checkpoint_id": "other",
    "checkpoint_source": "staging",
    "version": 99,
    "head_seq": 99,
}
not_owned = st.sampled_from([{}, {}, _NOT_OWNED])
"""What a save ignores."""

references = st.builds(
    lambda key, agent, location, result: {
        "sub_session_id": key,
        "agent_type": agent,
        "parent_tool_call_id": None if location == "local" else "t1",
        "status": "active",
        "mode": "ephemeral" if agent == "agent" else "persistent",
        "location": location,
        "result": result,
    },
    session_ids,
    st.sampled_from(["agent", "other"]),
    st.sampled_from(["local", "remote", "remote"]),
    st.sampled_from([None, {"a": [1]}]),
)
reference_changes = st.fixed_dictionaries(
    {},
    optional={
        "status": statuses,
        "result": small,
        "mode": st.sampled_from(["ephemeral", "persistent"]),
        "location": st.sampled_from(["local", "remote"]),
        "parent_tool_call_id": st.sampled_from([None, "t2"]),
    },
)
event_types = st.sampled_from(
    ["llm_requested", "tool_called", "user_message", "assistant_message", "tool_message", "my_own"]
)
event_data = st.one_of(
    st.none(),
    small,
    st.builds(lambda content: {"content": content}, small),
    st.builds(lambda role, content: {"role": role, "content": content}, roles, small),
)
