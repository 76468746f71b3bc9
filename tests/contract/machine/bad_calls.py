"""Calls that are refused whatever the session is like, each with the error that says why."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from helix_sessions.exceptions import (
    HelixSessionsError,
    InvalidCursor,
    InvalidDocument,
    InvalidInput,
    InvalidWrites,
    SessionNotFound,
)
from helix_sessions.store import SessionStore
from helix_sessions.types import SessionState
from tests.contract.machine import values
from tests.contract.machine.harness import Harness, operation

Bad = tuple[type[HelixSessionsError], Callable[[SessionStore, str], Any]]

STATE = SessionState(session_id="s", agent_type="agent")
NAN, SURROGATE = float("nan"), "\ud800"

BAD_CALLS: list[Bad] = [
    (InvalidInput, lambda store, key: store.append_messages(key, [{"role": "robot"}])),
    (InvalidInput, lambda store, key: store.append_messages(key, [{"content": "no role"}])),
    (InvalidInput, lambda store, key: store.append_messages(key, [3])),  # type: ignore[list-item]
    (InvalidDocument, lambda store, key: store.append_messages(key, [{"role": "user", "content": NAN}])),
    (
        InvalidDocument,
        lambda store, key: store.append_messages(key, [{"role": "user", "content": SURROGATE}]),
    ),
    (
        InvalidDocument,
        lambda store, key: store.append_messages(key, [{"role": "user"}, {"role": "user", "x": object()}]),
    ),
    (InvalidInput, lambda store, key: store.get_messages(key, offset=-1)),
    (InvalidInput, lambda store, key: store.get_messages(key, limit=-1)),
    (InvalidInput, lambda store, key: store.truncate_messages(key, -1)),
    (InvalidInput, lambda store, key: store.update_status(key, "asleep")),
    (InvalidDocument, lambda store, key: store.update_status(key, "active", output={1})),
    (InvalidInput, lambda store, key: store.compare_and_set_status(key, ["asleep"], "active")),
    (InvalidInput, lambda store, key: store.compare_and_set_status(key, ["active"], "asleep")),
    (InvalidInput, lambda store, key: store.save_state(key, replace(STATE, status="asleep"))),
    (InvalidInput, lambda store, key: store.save_state(key, replace(STATE, step_count=-1))),
    (InvalidDocument, lambda store, key: store.save_state(key, replace(STATE, custom_state={"a": NAN}))),
    (InvalidDocument, lambda store, key: store.save_state(key, replace(STATE, output=SURROGATE))),
    (
        InvalidInput,
        lambda store, key: store.save_state_and_promote_staging(key, STATE, [{"role": "robot"}]),
    ),
    (
        InvalidInput,
        lambda store, key: store.save_state_and_promote_staging(key, STATE, (), {"checkpoint": "c"}),
    ),
    (InvalidWrites, lambda store, key: store.merge_custom_state(key, [{"op": "explode", "path": ["a"]}])),
    (
        InvalidWrites,
        lambda store, key: store.merge_custom_state(key, [{"op": "set", "path": "a", "value": 1}]),
    ),
    (
        InvalidWrites,
        lambda store, key: store.merge_custom_state(key, [{"op": "set", "path": [], "value": 1}]),
    ),
    (
        InvalidWrites,
        lambda store, key: store.merge_custom_state(key, [{"op": "test", "path": "/a", "value": 1}]),
    ),
    (
        InvalidDocument,
        lambda store, key: store.merge_custom_state(key, [{"op": "set", "path": ["a"], "value": NAN}]),
    ),
    (InvalidWrites, lambda store, key: store.stage_changes(key, "s1", "t1", [{"op": "move", "path": "/a"}])),
    (InvalidInput, lambda store, key: store.stage_changes(key, "", "t1", [])),
    (InvalidInput, lambda store, key: store.create_run(key, run_id="")),
    (InvalidInput, lambda store, key: store.create_run(key, run_id="r\n")),
    (InvalidInput, lambda store, key: store.update_run_status(key, "r1", "asleep")),
    (InvalidInput, lambda store, key: store.update_run_status(key, "r1", "running", step_count=-1)),
    (InvalidInput, lambda store, key: store.list_runs(key, limit=0)),
    (InvalidCursor, lambda store, key: store.list_runs(key, cursor="elsewhere")),
    (InvalidCursor, lambda store, key: store.list_checkpoints(key, cursor="elsewhere")),
    (InvalidCursor, lambda store, key: store.list_sessions(cursor="elsewhere")),
    (InvalidInput, lambda store, key: store.list_sessions(status="asleep")),
    (InvalidInput, lambda store, key: store.create_checkpoint(key, {"checkpoint_id": ""})),
    (InvalidInput, lambda store, key: store.set_interrupt_flag(key, 3)),  # type: ignore[arg-type]
    (
        InvalidInput,
        lambda store, key: store.add_sub_session_refs(
            key, [{"sub_session_id": "x", "agent_type": "agent", "mode": "eternal"}]
        ),
    ),
    (InvalidInput, lambda store, key: store.update_sub_session_ref(key, "a", created_at=None)),
    (InvalidInput, lambda store, key: store.emit_event(key, "")),
    (InvalidDocument, lambda store, key: store.emit_event(key, "my_own", {"a": NAN})),
    (InvalidInput, lambda store, key: store.get_events(key, -1)),
    (HelixSessionsError, lambda store, key: store.patch_metadata(key, {"k": "a\x00b"})),
    (InvalidInput, lambda store, key: store.create_session("", agent_type="agent")),
    (InvalidInput, lambda store, key: store.create_session("x" * 256, agent_type="agent")),
    (InvalidInput, lambda store, key: store.create_session("a\tb", agent_type="agent")),
    (InvalidInput, lambda store, key: store.create_session("new", agent_type="agent", mode="eternal")),
    (InvalidInput, lambda store, key: store.clone_session(key, "new", message_count=-1)),
    (InvalidInput, lambda store, key: store.load_state("")),
]


class Mistakes(Harness):
    """Calls that change nothing, because they are wrong."""

    @operation(weight=2, key=values.session_ids, bad=st.sampled_from(range(len(BAD_CALLS))))
    def bad_call(self, key, bad):
        kind, function = BAD_CALLS[bad]
        kinds: tuple[type[HelixSessionsError], ...] = (kind,)
        if key not in self.model.sessions:
            kinds = (kind, SessionNotFound)
        with pytest.raises(kinds):
            self.call(lambda: function(self.store, key))
        self.unchanged()
