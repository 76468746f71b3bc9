"""What a caller gets wrong: always an error of ours that says so, and nothing written."""

import base64
import contextlib
import inspect
import json
from collections import UserDict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum
from functools import wraps
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser

from helix_sessions.exceptions import (
    CheckpointNotFound,
    HelixSessionsError,
    InvalidCursor,
    InvalidDocument,
    InvalidInput,
    InvalidWrites,
    RunNotFound,
    SessionNotFound,
)
from helix_sessions.store import SessionStore
from helix_sessions.types import CheckpointMeta, SubSessionRef
from tests.contract.calls import REF, USER, WRITES
from tests.invariants import assert_invariants, dump
from tests.rows import each

pytestmark = pytest.mark.django_db

INVALID = (InvalidInput, InvalidDocument, InvalidWrites, InvalidCursor)
HUGE = 10**5000
SURROGATE = "x\ud800y"


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("not to be shown")


class Color(str, Enum):  # noqa: UP042
    RED = "red"


class Role(str, Enum):  # noqa: UP042
    USER = "user"


class Status(str, Enum):  # noqa: UP042
    PAUSED = "paused"


class Number(IntEnum):
    TWO = 2


class Name(str):
    pass


def cyclic() -> dict[str, Any]:
    document: dict[str, Any] = {}
    document["self"] = [document, document]
    return document


def laughs() -> list[Any]:
    """Small in memory, 3 to the power of 200 items as JSON."""
    document: list[Any] = []
    for _ in range(200):
        document = [document, document, document]
    return document


def nested(depth: int) -> Any:
    document: Any = 1
    for _ in range(depth):
        document = [document]
    return document


WRONG_TYPES: dict[str, Any] = {
    "none": None,
    "int": 1,
    "bool": True,
    "float": 1.5,
    "huge": HUGE,
    "bytes": b"x",
    "list": ["x"],
    "dict": {"x": 1},
    "set": {"x"},
    "object": object(),
    "unprintable": Unprintable(),
    "deep": nested(100_000),
    "type": str,
    "nan": float("nan"),
}
BAD_IDS: dict[str, Any] = {
    **WRONG_TYPES,
    "empty": "",
    "long": "x" * 256,
    "newline": "a\nb",
    "null": "a\x00b",
    "escape": "\x1b[31m",
    "delete": "a\x7f",
    "c1": "a\x85b",
    "surrogate": SURROGATE,
}
OPTIONAL_BAD_IDS = {name: value for name, value in BAD_IDS.items() if name != "none"}
BAD_DOCUMENTS: dict[str, Any] = {
    "nan": float("nan"),
    "infinity": float("inf"),
    "minus infinity": float("-inf"),
    "nested nan": {"a": [float("nan")]},
    "set": {1, 2},
    "nested set": {"a": {1}},
    "frozenset": frozenset(),
    "bytes": b"x",
    "bytearray": bytearray(b"x"),
    "memoryview": memoryview(b"x"),
    "datetime": datetime(2030, 1, 1, tzinfo=UTC),
    "date": date(2030, 1, 1),
    "timedelta": timedelta(1),
    "decimal": Decimal(1),
    "complex": 1j,
    "object": object(),
    "namespace": SimpleNamespace(a=1),
    "unprintable": Unprintable(),
    "function": len,
    "generator": (number for number in range(3)),
    "range": range(3),
    "int key": {1: "x"},
    "huge key": {HUGE: "x"},
    "none key": {None: "x"},
    "bool key": {True: "x"},
    "tuple key": {("a",): "x"},
    "mixed keys": {"a": 1, 2: 3},
    "nested int key": [{"a": {1: 2}}],
    "surrogate": SURROGATE,
    "surrogate key": {SURROGATE: 1},
    "nested surrogate": {"a": ["\udfff"]},
    "cyclic": cyclic(),
    "laughs": laughs(),
    "deep": nested(502),
    "large": "x" * 100_000,
    "very deep": nested(100_000),
}


@pytest.fixture
def before(store: SessionStore, session: str) -> dict[str, list[Any]]:
    """Every table, with something of everything in it."""
    store.append_messages(session, [USER])
    store.create_run(session, run_id="run")
    store.create_checkpoint(session, {"checkpoint_id": "checkpoint"})
    store.stage_changes(session, "step", "call", WRITES)
    store.add_sub_session_refs(session, [REF])
    assert_invariants(session)
    return dump()


def unchanged(test: Callable[..., None]) -> Callable[..., None]:
    """After the test every table is as it was before it."""
    signature = inspect.signature(test)

    @wraps(test)
    def checked(*, before: dict[str, list[Any]], **given: Any) -> None:
        test(**given)
        assert dump() == before

    wanted = inspect.Parameter("before", inspect.Parameter.KEYWORD_ONLY)
    checked.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), wanted]
    )
    return checked


def refused(call: Callable[[], Any], *errors: type[HelixSessionsError]) -> None:
    with pytest.raises(errors or INVALID) as caught:
        call()
    assert isinstance(caught.value, HelixSessionsError)
    assert str(caught.value)


ID_CALLS: dict[str, Callable[[SessionStore, Any], Any]] = {
    "session_exists": lambda s, v: s.session_exists(v),
    "delete_session": lambda s, v: s.delete_session(v),
    "load_state": lambda s, v: s.load_state(v),
    "save_state": lambda s, v: s.save_state(v, s.load_state("s")),
    "merge_custom_state": lambda s, v: s.merge_custom_state(v, WRITES),
    "update_status": lambda s, v: s.update_status(v, "paused"),
    "compare_and_set_status": lambda s, v: s.compare_and_set_status(v, ["active"], "paused"),
    "increment_step_count": lambda s, v: s.increment_step_count(v),
    "increment_resume_count": lambda s, v: s.increment_resume_count(v),
    "patch_metadata": lambda s, v: s.patch_metadata(v, {"a": 1}),
    "commit": lambda s, v: s.save_state_and_promote_staging(v, s.load_state("s")),
    "append_messages": lambda s, v: s.append_messages(v, [USER]),
    "get_messages": lambda s, v: s.get_messages(v),
    "get_message_count": lambda s, v: s.get_message_count(v),
    "truncate_messages": lambda s, v: s.truncate_messages(v, 0),
    "create_run in": lambda s, v: s.create_run(v),
    "update_run_status in": lambda s, v: s.update_run_status(v, "run", "failed"),
    "get_current_run": lambda s, v: s.get_current_run(v),
    "get_run in": lambda s, v: s.get_run(v, "run"),
    "list_runs": lambda s, v: s.list_runs(v),
    "create_checkpoint": lambda s, v: s.create_checkpoint(v),
    "get_latest_checkpoint": lambda s, v: s.get_latest_checkpoint(v),
    "get_checkpoint in": lambda s, v: s.get_checkpoint(v, "checkpoint"),
    "list_checkpoints": lambda s, v: s.list_checkpoints(v),
    "stage_changes in": lambda s, v: s.stage_changes(v, "step", "call", WRITES),
    "get_staged_changes": lambda s, v: s.get_staged_changes(v),
    "has_staged_changes": lambda s, v: s.has_staged_changes(v),
    "promote_staging in": lambda s, v: s.promote_staging(v, "step"),
    "discard_staging": lambda s, v: s.discard_staging(v),
    "set_interrupt_flag": lambda s, v: s.set_interrupt_flag(v),
    "check_interrupt_flag": lambda s, v: s.check_interrupt_flag(v),
    "clear_interrupt_flag": lambda s, v: s.clear_interrupt_flag(v),
    "add_sub_session_refs": lambda s, v: s.add_sub_session_refs(v, [REF]),
    "update_sub_session_ref in": lambda s, v: s.update_sub_session_ref(v, "child", status="failed"),
    "get_sub_session_refs": lambda s, v: s.get_sub_session_refs(v),
    "attach": lambda s, v: s.attach(v),
    "detach": lambda s, v: s.detach(v),
    "emit_event in": lambda s, v: s.emit_event(v, "note"),
    "get_events": lambda s, v: s.get_events(v),
    "clone_session from": lambda s, v: s.clone_session(v, "new"),
    "agent_type": lambda s, v: s.create_session("new", agent_type=v),
    "attach agent_type": lambda s, v: s.attach("new", agent_type=v),
    "update_run_status": lambda s, v: s.update_run_status("s", v, "failed"),
    "get_run": lambda s, v: s.get_run("s", v),
    "step_id": lambda s, v: s.stage_changes("s", v, "call", WRITES),
    "tool_call_id": lambda s, v: s.stage_changes("s", "step", v, WRITES),
    "promote_staging": lambda s, v: s.promote_staging("s", v),
    "event type": lambda s, v: s.emit_event("s", v),
    "sub_session_id": lambda s, v: s.add_sub_session_refs(
        "s", [SubSessionRef(sub_session_id=v, agent_type="a")]
    ),
    "ref agent_type": lambda s, v: s.add_sub_session_refs("s", [{"sub_session_id": "x", "agent_type": v}]),
    "update_sub_session_ref": lambda s, v: s.update_sub_session_ref("s", v, status="failed"),
    "a tag": lambda s, v: s.create_session("new", agent_type="a", tags=[v]),
    "a saved tag": lambda s, v: s.save_state("s", replace(s.load_state("s"), tags=(v,))),
}
"""Calls with a place where an id must stand."""

OPTIONAL_ID_CALLS: dict[str, Callable[[SessionStore, Any], Any]] = {
    "clone_session to": lambda s, v: s.clone_session("s", v),
    "session_id": lambda s, v: s.create_session(v, agent_type="a"),
    "user_id": lambda s, v: s.create_session("new", agent_type="a", user_id=v),
    "stream_id": lambda s, v: s.create_session("new", agent_type="a", stream_id=v),
    "parent_session_id": lambda s, v: s.create_session("new", agent_type="a", parent_session_id=v),
    "root_session_id": lambda s, v: s.create_session("new", agent_type="a", root_session_id=v),
    "run_id": lambda s, v: s.create_run("s", run_id=v),
    "append run_id": lambda s, v: s.append_messages("s", [USER], run_id=v),
    "event run_id": lambda s, v: s.emit_event("s", "note", run_id=v),
    "event turn_id": lambda s, v: s.emit_event("s", "note", turn_id=v),
    "idempotency_key": lambda s, v: s.emit_event("s", "note", idempotency_key=v),
    "get_events run_id": lambda s, v: s.get_events("s", run_id=v),
    "meta step_id": lambda s, v: s.create_checkpoint("s", {"step_id": v}),
    "meta run_id": lambda s, v: s.create_checkpoint("s", CheckpointMeta(run_id=v)),
    "get_staged_changes": lambda s, v: s.get_staged_changes("s", v),
    "has_staged_changes": lambda s, v: s.has_staged_changes("s", v),
    "discard_staging": lambda s, v: s.discard_staging("s", v),
    "cleanup session_id": lambda s, v: s.cleanup_orphaned_staging(older_than=timedelta(0), session_id=v),
    "suspended_step_id": lambda s, v: s.save_state("s", replace(s.load_state("s"), suspended_step_id=v)),
    "saved user_id": lambda s, v: s.save_state("s", replace(s.load_state("s"), user_id=v)),
    "parent_tool_call_id": lambda s, v: s.add_sub_session_refs(
        "s", [SubSessionRef(sub_session_id="x", agent_type="a", parent_tool_call_id=v)]
    ),
    "list agent_type": lambda s, v: s.list_sessions(agent_type=v),
    "list user_id": lambda s, v: s.list_sessions(user_id=v),
    "list tag": lambda s, v: s.list_sessions(tag=v),
    "list parent_session_id": lambda s, v: s.list_sessions(parent_session_id=v),
}

DOCUMENT_CALLS: dict[str, Callable[[SessionStore, Any], Any]] = {
    "custom_state": lambda s, v: s.create_session("new", agent_type="a", custom_state={"v": v}),
    "metadata": lambda s, v: s.create_session("new", agent_type="a", metadata={"v": v}),
    "tracing_context": lambda s, v: s.create_session("new", agent_type="a", tracing_context=v),
    "workspace_ref": lambda s, v: s.create_session("new", agent_type="a", workspace_ref=v),
    "patch": lambda s, v: s.patch_metadata("s", {"good": 1, "v": v}),
    "saved state": lambda s, v: s.save_state("s", replace(s.load_state("s"), custom_state={"v": v})),
    "saved output": lambda s, v: s.save_state("s", replace(s.load_state("s"), output=v)),
    "saved pending": lambda s, v: s.save_state(
        "s", replace(s.load_state("s"), pending_client_tool_calls={"v": v})
    ),
    "saved children": lambda s, v: s.save_state(
        "s", replace(s.load_state("s"), suspended_awaiting_children={"v": v})
    ),
    "saved completed": lambda s, v: s.save_state(
        "s", replace(s.load_state("s"), completed_client_tool_calls={"v": v})
    ),
    "saved ownership": lambda s, v: s.save_state(
        "s", replace(s.load_state("s"), client_tool_call_ownership={"v": v})
    ),
    "saved suspension": lambda s, v: s.save_state("s", replace(s.load_state("s"), suspension_context=v)),
    "saved interrupt": lambda s, v: s.save_state("s", replace(s.load_state("s"), interrupt_context=v)),
    "saved location": lambda s, v: s.save_state("s", replace(s.load_state("s"), location=v)),
    "saved metadata": lambda s, v: s.save_state("s", replace(s.load_state("s"), metadata={"v": v})),
    "committed state": lambda s, v: s.save_state_and_promote_staging(
        "s", replace(s.load_state("s"), custom_state={"v": v})
    ),
    "committed message": lambda s, v: s.save_state_and_promote_staging(
        "s", s.load_state("s"), [USER, {"role": "user", "v": v}]
    ),
    "commit metadata": lambda s, v: s.save_state_and_promote_staging(
        "s", s.load_state("s"), (), CheckpointMeta(metadata={"v": v})
    ),
    "checkpoint metadata": lambda s, v: s.create_checkpoint("s", {"metadata": {"v": v}}),
    "promote metadata": lambda s, v: s.promote_staging("s", "step", {"metadata": {"v": v}}),
    "status output": lambda s, v: s.update_status("s", "paused", output=v),
    "status interrupt_context": lambda s, v: s.update_status("s", "paused", interrupt_context=v),
    "cas interrupt_context": lambda s, v: s.compare_and_set_status(
        "s", ["active"], "paused", interrupt_context=v
    ),
    "message": lambda s, v: s.append_messages("s", [USER, {"role": "user", "content": v}]),
    "run metadata": lambda s, v: s.create_run("s", metadata={"v": v}),
    "run output": lambda s, v: s.update_run_status("s", "run", "completed", output=v),
    "run usage": lambda s, v: s.update_run_status("s", "run", "completed", usage=v),
    "event data": lambda s, v: s.emit_event("s", "note", v),
    "event message": lambda s, v: s.emit_event("s", "user_message", {"content": v}),
    "ref result": lambda s, v: s.add_sub_session_refs("s", [replace(REF, sub_session_id="x", result=v)]),
    "updated ref result": lambda s, v: s.update_sub_session_ref("s", "child", result=v),
    "merged value": lambda s, v: s.merge_custom_state("s", [{"op": "set", "path": ["v"], "value": v}]),
    "merged values": lambda s, v: s.merge_custom_state("s", [{"op": "append", "path": ["v"], "values": [v]}]),
    "staged value": lambda s, v: s.stage_changes("s", "x", "y", [{"op": "set", "path": ["v"], "value": v}]),
}


@each("call", ID_CALLS.values(), ids=ID_CALLS)
@unchanged
def test_bad_ids(store: SessionStore, call: Callable[[SessionStore, Any], Any]) -> None:
    for value in BAD_IDS.values():
        refused(lambda value=value: call(store, value), InvalidInput)  # type: ignore[misc]


@each("call", OPTIONAL_ID_CALLS.values(), ids=OPTIONAL_ID_CALLS)
@unchanged
def test_bad_optional_ids(store: SessionStore, call: Callable[[SessionStore, Any], Any]) -> None:
    for value in OPTIONAL_BAD_IDS.values():
        refused(lambda value=value: call(store, value), InvalidInput)  # type: ignore[misc]


@each("call", DOCUMENT_CALLS.values(), ids=DOCUMENT_CALLS)
@unchanged
def test_bad_documents(store: SessionStore, settings: Any, call: Callable[[SessionStore, Any], Any]) -> None:
    settings.HELIX_SESSIONS = {"MAX_DOCUMENT_BYTES": 100_000}
    for value in BAD_DOCUMENTS.values():
        refused(lambda value=value: call(store, value), InvalidDocument)  # type: ignore[misc]


CHECKPOINT_ID_CALLS: dict[str, Callable[[SessionStore, Any], Any]] = {
    "create": lambda s, v: s.create_checkpoint("s", {"checkpoint_id": v}),
    "commit": lambda s, v: s.save_state_and_promote_staging(
        "s", s.load_state("s"), (), CheckpointMeta(checkpoint_id=v)
    ),
    "promote": lambda s, v: s.promote_staging("s", "step", {"checkpoint_id": v}),
    "clone": lambda s, v: s.clone_session("s", "new", checkpoint_id=v),
    "get": lambda s, v: s.get_checkpoint("s", v),
}


@each("call", CHECKPOINT_ID_CALLS.values(), ids=CHECKPOINT_ID_CALLS)
@unchanged
def test_bad_checkpoint_ids(store: SessionStore, call: Callable[[SessionStore, Any], Any]) -> None:
    for name, value in OPTIONAL_BAD_IDS.items():
        long_enough = value if name != "long" else "x" * 513
        refused(lambda value=long_enough: call(store, value), InvalidInput)  # type: ignore[misc]


STATUS_CALLS: dict[str, Callable[[SessionStore, Any], Any]] = {
    "update_status": lambda s, v: s.update_status("s", v),
    "cas new": lambda s, v: s.compare_and_set_status("s", ["active"], v),
    "cas expected": lambda s, v: s.compare_and_set_status("s", ["active", v], "paused"),
    "saved": lambda s, v: s.save_state("s", replace(s.load_state("s"), status=v)),
    "committed": lambda s, v: s.save_state_and_promote_staging("s", replace(s.load_state("s"), status=v)),
    "run": lambda s, v: s.update_run_status("s", "run", v),
    "ref": lambda s, v: s.update_sub_session_ref("s", "child", status=v),
    "added ref": lambda s, v: s.add_sub_session_refs("s", [replace(REF, sub_session_id="x", status=v)]),
    "ref mode": lambda s, v: s.update_sub_session_ref("s", "child", mode=v),
    "ref location": lambda s, v: s.update_sub_session_ref("s", "child", location=v),
    "mode": lambda s, v: s.create_session("new", agent_type="a", mode=v),
    "role": lambda s, v: s.append_messages("s", [USER, {"role": v, "content": ""}]),
    "committed role": lambda s, v: s.save_state_and_promote_staging(
        "s", s.load_state("s"), [{"role": v, "content": ""}]
    ),
}


@each("call", STATUS_CALLS.values(), ids=STATUS_CALLS)
@unchanged
def test_words_that_do_not_exist(store: SessionStore, call: Callable[[SessionStore, Any], Any]) -> None:
    words = {**BAD_IDS, "unknown": "sleeping", "capital": "Active", "space": "active ", "other": "user\x00"}
    for value in words.values():
        refused(lambda value=value: call(store, value), InvalidInput)  # type: ignore[misc]


def test_a_filter_by_a_status_that_does_not_exist(store: SessionStore) -> None:
    for value in ("sleeping", "", 1, ["active"], SURROGATE):
        refused(lambda value=value: store.list_sessions(status=value), InvalidInput)  # type: ignore[misc]


NUMBERS: dict[str, Callable[[SessionStore, Any], Any]] = {
    "offset": lambda s, v: s.get_messages("s", offset=v),
    "message limit": lambda s, v: s.get_messages("s", limit=v),
    "count": lambda s, v: s.truncate_messages("s", v),
    "clone message_count": lambda s, v: s.clone_session("s", "new", message_count=v),
    "session limit": lambda s, v: s.list_sessions(limit=v),
    "run limit": lambda s, v: s.list_runs("s", limit=v),
    "checkpoint limit": lambda s, v: s.list_checkpoints("s", limit=v),
    "checkpoint offset": lambda s, v: s.list_checkpoints("s", offset=v),
    "from_seq": lambda s, v: s.get_events("s", v),
    "to_seq": lambda s, v: s.get_events("s", None, v),
    "event limit": lambda s, v: s.get_events("s", limit=v),
    "step_count": lambda s, v: s.save_state("s", replace(s.load_state("s"), step_count=v)),
    "committed step_count": lambda s, v: s.save_state_and_promote_staging(
        "s", replace(s.load_state("s"), step_count=v)
    ),
    "run step_count": lambda s, v: s.update_run_status("s", "run", "running", step_count=v),
}


@each("call", NUMBERS.values(), ids=NUMBERS)
@unchanged
def test_bad_numbers(store: SessionStore, call: Callable[[SessionStore, Any], Any]) -> None:
    wrong = {name: value for name, value in WRONG_TYPES.items() if name not in ("int", "none")}
    for value in (-1, -HUGE, 2**63, "1", Decimal(1), *wrong.values()):
        refused(lambda value=value: call(store, value), InvalidInput)  # type: ignore[misc]


@each("version", ["1", 1.0, True, HUGE, [1], object(), b"1"])
@unchanged
def test_a_bad_expected_version(store: SessionStore, version: Any) -> None:
    refused(lambda: store.append_messages("s", [USER], expected_version=version), InvalidInput)
    refused(lambda: store.create_checkpoint("s", expected_version=version), InvalidInput)
    refused(
        lambda: store.compare_and_set_status("s", ["active"], "paused", expected_version=version),
        InvalidInput,
    )


class Nowhere(tzinfo):
    """Says nothing of its offset, so its times are naive."""

    def utcoffset(self, dt: Any) -> None:
        return None

    def dst(self, dt: Any) -> None:
        return None

    def tzname(self, dt: Any) -> str:
        return "nowhere"


FAR_EAST, FAR_WEST = timezone(timedelta(hours=23, minutes=59)), timezone(-timedelta(hours=23, minutes=59))


@each(
    "moment",
    [
        datetime(2030, 1, 1),
        datetime(2030, 1, 1, tzinfo=Nowhere()),
        datetime.min.replace(tzinfo=FAR_EAST),
        datetime.max.replace(tzinfo=FAR_WEST),
        date(2030, 1, 1),
        "2030-01-01T00:00:00Z",
        1893456000,
        True,
    ],
)
@unchanged
def test_bad_times(store: SessionStore, moment: Any) -> None:
    refused(lambda: store.create_session("new", agent_type="a", expires_at=moment), InvalidInput)
    refused(lambda: store.save_state("s", replace(store.load_state("s"), expires_at=moment)), InvalidInput)
    refused(lambda: store.list_sessions(updated_after=moment), InvalidInput)
    refused(lambda: store.list_sessions(expires_before=moment), InvalidInput)


@each("moment", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_the_ends_of_time_are_times(store: SessionStore, session: str, moment: datetime) -> None:
    store.create_session("new", agent_type="a", expires_at=moment)
    assert store.load_state("new").expires_at == moment
    store.list_sessions(updated_after=moment, expires_before=moment)


@each("age", [None, 3600, 1.5, "1h", timedelta.max, timedelta.min])
@unchanged
def test_bad_ages(store: SessionStore, age: Any) -> None:
    refused(lambda: store.cleanup_orphaned_staging(older_than=age), InvalidInput)


@each("value", [value for name, value in WRONG_TYPES.items() if name not in ("dict", "none")] + ["x"])
@unchanged
def test_what_must_be_an_object(store: SessionStore, value: Any) -> None:
    refused(lambda: store.create_session("new", agent_type="a", custom_state=value))
    refused(lambda: store.create_session("new", agent_type="a", metadata=value))
    refused(lambda: store.patch_metadata("s", value))
    refused(lambda: store.create_run("s", metadata=value))
    refused(lambda: store.save_state("s", value))
    refused(lambda: store.save_state_and_promote_staging("s", value))
    state = store.load_state("s")
    for name in (
        "custom_state",
        "metadata",
        "pending_client_tool_calls",
        "suspended_awaiting_children",
        "completed_client_tool_calls",
        "client_tool_call_ownership",
    ):
        changes: dict[str, Any] = {name: value}
        refused(lambda changes=changes: store.save_state("s", replace(state, **changes)))  # type: ignore[misc]


@each("value", [value for value in WRONG_TYPES.values() if value is not None])
@unchanged
def test_what_must_be_a_text(store: SessionStore, value: Any) -> None:
    refused(lambda: store.update_status("s", "failed", failure_reason=value))
    refused(lambda: store.compare_and_set_status("s", ["active"], "failed", failure_reason=value))
    refused(lambda: store.save_state("s", replace(store.load_state("s"), failure_reason=value)))
    refused(lambda: store.set_interrupt_flag("s", value))


@each("value", [value for value in WRONG_TYPES.values() if not isinstance(value, dict | None)])
@unchanged
def test_what_must_be_a_text_or_an_object(store: SessionStore, value: Any) -> None:
    refused(lambda: store.update_status("s", "failed", error=value))
    refused(lambda: store.compare_and_set_status("s", ["active"], "failed", error=value))
    refused(lambda: store.save_state("s", replace(store.load_state("s"), error=value)))
    refused(lambda: store.update_run_status("s", "run", "failed", error=value))


@unchanged
def test_texts_with_lone_surrogates(store: SessionStore) -> None:
    refused(lambda: store.update_status("s", "failed", error=SURROGATE))
    refused(lambda: store.update_status("s", "failed", failure_reason=SURROGATE))
    refused(lambda: store.save_state("s", replace(store.load_state("s"), failure_reason=SURROGATE)))
    refused(lambda: store.update_run_status("s", "run", "failed", error=SURROGATE))
    refused(lambda: store.set_interrupt_flag("s", SURROGATE))


@each(
    "messages",
    [
        *(None, 1, True, "hello", b"hello", USER, object(), Unprintable()),
        *([None], [1], ["user"], [[USER]], [["role", "user"]], [b"x"], [Unprintable()]),
        *([{}], [{"content": "x"}], [{"role": ["user"]}], [{"role": {"user"}}], [USER, {"Role": "user"}]),
        [SimpleNamespace(role="user")],
        [{"role": "user", 1: 2}],
    ],
)
@unchanged
def test_bad_messages(store: SessionStore, messages: Any) -> None:
    refused(lambda: store.append_messages("s", messages))
    refused(lambda: store.save_state_and_promote_staging("s", store.load_state("s"), messages))


@each(
    "meta",
    [
        *(1, True, "c", b"c", ["c"], [("checkpoint_id", "c")], {"c"}, object(), Unprintable()),
        {"id": "c"},
        {"checkpoint_id": "c", "extra": 1},
        {1: "c"},
        {None: "c"},
        {HUGE: "c"},
        {"metadata": None},
        {"metadata": []},
        {"metadata": "x"},
        {"metadata": {1: 2}},
        CheckpointMeta(metadata=None),  # type: ignore[arg-type]
    ],
)
@unchanged
def test_bad_metas(store: SessionStore, meta: Any) -> None:
    refused(lambda: store.create_checkpoint("s", meta))
    refused(lambda: store.promote_staging("s", "step", meta))
    refused(lambda: store.save_state_and_promote_staging("s", store.load_state("s"), (), meta))


@each(
    "writes",
    [
        *(None, 1, True, "set", b"set", {"op": "set"}, object(), {1}, (write for write in WRITES)),
        *([None], [1], ["set"], [[]], [Unprintable()], [{}], [{"op": None}], [{"op": ["set"]}]),
        [{"op": "set"}],
        [{"op": "set", "path": ["a"]}],
        [{"op": "set", "path": "a", "value": 1}],
        [{"op": "set", "path": None, "value": 1}],
        [{"op": "set", "path": [None], "value": 1}],
        [{"op": "set", "path": [1.0], "value": 1}],
        [{"op": "set", "path": [True], "value": 1}],
        [{"op": "set", "path": [["a"]], "value": 1}],
        [{"op": "set", "path": [HUGE], "value": 1}],
        [{"op": "set", "path": [SURROGATE], "value": 1}],
        [{"op": "set", "path": [], "value": 1}],
        [{"op": "set", "path": [], "value": None}],
        [{"op": "append", "path": ["a"], "values": "text"}],
        [{"op": "append", "path": ["a"], "value": 1}],
        [{"op": "append", "path": [], "values": [1]}],
        [{"op": "insert", "path": [], "value": {}}],
        [{"op": "delete", "path": []}],
        [{"op": "set", "path": ["a"], "value": 1, "extra": 2}],
        [{"op": "delete", "path": ["a"], HUGE: 1}],
        [{"op": "add", "path": "no slash", "value": 1}],
        [{"op": "add", "path": "/~2", "value": 1}],
        [{"op": "add", "path": ["a"], "value": 1}],
        [{"op": "add", "path": "/a"}],
        [{"op": "test", "path": "/a", "value": 1}],
    ],
)
@unchanged
def test_bad_writes(store: SessionStore, writes: Any) -> None:
    refused(lambda: store.merge_custom_state("s", writes), InvalidWrites, InvalidDocument)
    refused(lambda: store.stage_changes("s", "x", "y", writes), InvalidWrites, InvalidDocument)


@each(
    "refs",
    [
        *(None, 1, True, "child", b"child", REF, {"sub_session_id": "x", "agent_type": "a"}, object()),
        *([None], [1], ["child"], [[]], [object()], [{}], [Unprintable()]),
        [{"sub_session_id": "x"}],
        [{"agent_type": "a"}],
        [{"sub_session_id": "x", "agent_type": "a", "extra": 1}],
        [{"sub_session_id": "x", "agent_type": "a", 1: 1}],
        [replace(REF, sub_session_id="x", mode="standard")],
        [replace(REF, sub_session_id="x", location="moon")],
        [{"sub_session_id": "x", "agent_type": "a", "status": None}],
    ],
)
@unchanged
def test_bad_refs(store: SessionStore, refs: Any) -> None:
    refused(lambda: store.add_sub_session_refs("s", refs), InvalidInput)


@each("tags", [None, 1, True, "tag", object(), b"ab", [1], [None], [["a"]], [SURROGATE]])
@unchanged
def test_bad_tags(store: SessionStore, tags: Any) -> None:
    refused(lambda: store.create_session("new", agent_type="a", tags=tags), InvalidInput)
    refused(lambda: store.save_state("s", replace(store.load_state("s"), tags=tags)), InvalidInput)


@each("statuses", [None, 1, True, object(), [None], [["active"]], b"active", [HUGE]])
@unchanged
def test_bad_expected_statuses(store: SessionStore, statuses: Any) -> None:
    refused(lambda: store.compare_and_set_status("s", statuses, "paused"), InvalidInput)


@each("types", [1, True, object(), [None], [1], [["a"]], b"ab", [""], [f"t{n}" for n in range(100_000)]])
@unchanged
def test_bad_event_types(store: SessionStore, types: Any) -> None:
    refused(lambda: store.get_events("s", types=types), InvalidInput)


@each("newest_first", [None, [], {}, "yes", 2, object()])
@unchanged
def test_bad_directions(store: SessionStore, newest_first: Any) -> None:
    refused(lambda: store.get_messages("s", newest_first=newest_first), InvalidInput)


@each("role", ["tool", None, 1, ["user"], {}, Unprintable()])
@unchanged
def test_bad_roles_of_emitted_messages(store: SessionStore, role: Any) -> None:
    refused(lambda: store.emit_event("s", "user_message", {"content": "x", "role": role}), InvalidInput)


@each(
    "owner",
    [
        *(value for name, value in WRONG_TYPES.items() if name not in ("none", "int")),
        *(AnonymousUser(), "ada", "", "1.5", 2**63, -(2**64), "9" * 30, float("inf"), Decimal("NaN"), 1j),
    ],
)
@unchanged
def test_bad_owners(store: SessionStore, owner: Any) -> None:
    refused(lambda: store.create_session("new", agent_type="a", owner=owner), InvalidInput)
    refused(lambda: store.list_sessions(owner=owner), InvalidInput)


@unchanged
def test_an_owner_that_was_not_saved(store: SessionStore) -> None:
    user = get_user_model()(username="new")
    refused(lambda: store.create_session("new", agent_type="a", owner=user), InvalidInput)


def cursor(*values: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


NOW = datetime(2030, 1, 1, tzinfo=UTC).isoformat()
BAD_CURSORS: dict[str, Any] = {
    **{name: value for name, value in WRONG_TYPES.items() if name != "none"},
    "empty": "",
    "garbage": "garbage",
    "not base64": "%%%%",
    "not ascii": "é",
    "surrogate": SURROGATE,
    "null": "\x00",
    "not json": base64.urlsafe_b64encode(b"{").decode(),
    "not utf-8": base64.urlsafe_b64encode(b"\xff\xff").decode(),
    "deep json": base64.urlsafe_b64encode(b"[" * 100_000).decode(),
    "a number": base64.urlsafe_b64encode(b"1").decode(),
    "a huge number": base64.urlsafe_b64encode(b"[" + b"1" * 5000 + b"]").decode(),
    "an object": base64.urlsafe_b64encode(b'{"sessions": 1}').decode(),
    "of nothing": cursor(),
    "too short": cursor("sessions"),
    "too long": cursor("sessions", NOW, "s", 1),
    "of another listing": cursor("others", NOW, "s"),
    "no time": cursor("sessions", "yesterday", "s"),
    "a naive time": cursor("sessions", "2030-01-01T00:00:00", "s"),
    "a time out of range": cursor("sessions", "0001-01-01T00:00:00+23:59", "s"),
    "another time out of range": cursor("sessions", "9999-12-31T23:59:59-23:59", "s"),
    "a number for a time": cursor("sessions", 1, "s"),
    "a number for an id": cursor("sessions", NOW, 1),
    "a null in an id": cursor("sessions", NOW, "a\x00"),
    "a surrogate in an id": cursor("sessions", NOW, "\ud800"),
    "none for an id": cursor("sessions", NOW, None),
    "runs: text": cursor("runs", "1"),
    "runs: float": cursor("runs", 1.0),
    "runs: bool": cursor("runs", True),
    "runs: huge": cursor("runs", 2**63),
    "runs: nan": cursor("runs", float("nan")),
    "checkpoints: text": cursor("checkpoints", "1"),
    "checkpoints: huge": cursor("checkpoints", -(2**70)),
}


@each("value", BAD_CURSORS.values(), ids=BAD_CURSORS)
@unchanged
def test_bad_cursors(store: SessionStore, value: Any) -> None:
    refused(lambda: store.list_sessions(cursor=value), InvalidCursor)
    refused(lambda: store.list_runs("s", cursor=value), InvalidCursor)
    refused(lambda: store.list_checkpoints("s", cursor=value), InvalidCursor)


def test_a_cursor_belongs_to_its_listing(store: SessionStore, session: str) -> None:
    for number in range(2):
        store.create_session(f"s{number}", agent_type="a")
        store.create_run(session, run_id=f"r{number}")
        store.update_run_status(session, f"r{number}", "completed")
        store.create_checkpoint(session)
    listings: list[Callable[..., Any]] = [
        store.list_sessions,
        lambda **options: store.list_runs(session, **options),
        lambda **options: store.list_checkpoints(session, **options),
    ]
    for listing in listings:
        made = listing(limit=1).next_cursor
        assert listing(cursor=made).items
        for other in listings:
            if other is not listing:
                refused(lambda other=other, made=made: other(cursor=made), InvalidCursor)  # type: ignore[misc]


def test_a_cursor_with_a_character_changed(store: SessionStore, session: str) -> None:
    store.create_session("other", agent_type="a")
    made = store.list_sessions(limit=1).next_cursor
    assert made is not None
    for place in range(len(made)):
        tampered = made[:place] + ("A" if made[place] != "A" else "B") + made[place + 1 :]
        with contextlib.suppress(InvalidCursor):
            store.list_sessions(cursor=tampered)


def test_odd_but_harmless_values_are_taken_for_what_they_are(store: SessionStore) -> None:
    """Enums, subclasses and mappings that are the plain value in all but their type."""
    store.create_session(
        Color.RED,
        agent_type=Name("a"),
        custom_state=MappingProxyType({"color": Color.RED, "n": Number.TWO}),
        metadata=UserDict({"k": Name("v")}),
        tags=(tag for tag in [Color.RED]),
    )
    assert store.load_state("red").custom_state == {"color": "red", "n": 2}
    store.append_messages("red", [{"role": Role.USER, "content": Color.RED}])
    assert store.get_messages("red").messages == [{"role": "user", "content": "red"}]
    assert store.get_events("red")[-1].type == "user_message"
    store.update_status(Color.RED, Status.PAUSED)
    assert store.load_state("red").status == "paused"
    assert type(store.load_state("red").status) is str
    store.patch_metadata("red", MappingProxyType({"k": Color.RED}))
    assert store.load_state("red").metadata == {"k": "red"}
    store.create_run("red", run_id=Color.RED, metadata=MappingProxyType({"a": 1}))
    assert store.get_run("red", "red").metadata == {"a": 1}
    store.create_checkpoint(
        "red", MappingProxyType({"checkpoint_id": Color.RED, "metadata": MappingProxyType({"a": 1})})
    )
    assert store.get_checkpoint("red", "red").metadata == {"a": 1}
    store.stage_changes(Color.RED, Color.RED, Color.RED, WRITES)
    assert store.promote_staging(Color.RED, Color.RED).version == store.load_state("red").version
    store.emit_event("red", Color.RED, idempotency_key=Color.RED)
    assert store.emit_event("red", "red", idempotency_key="red").type == "red"
    store.add_sub_session_refs("red", [MappingProxyType({"sub_session_id": Color.RED, "agent_type": "a"})])
    store.update_sub_session_ref("red", "red", status=Status.PAUSED)
    [ref] = store.get_sub_session_refs("red")
    assert (ref.sub_session_id, ref.status) == ("red", "paused")
    store.truncate_messages("red", Number.TWO)
    assert store.list_sessions(tag=Color.RED, status=Status.PAUSED).items[0].session_id == "red"
    assert_invariants("red")


def test_ids_that_look_like_something_else_are_ids(store: SessionStore) -> None:
    odd = ["a b", " ", "'", '"; DROP TABLE x; --', "%s", "%(x)s", "{}", "../..", "null", "\u00a0", "é", "😀"]
    odd += ["x" * 255, "é" * 255, "e\u0301", "\ufeff", "\u202e", "\uffff", "-", "--", "\\", "$1", ":x", "?"]
    for key in odd:
        store.create_session(key, agent_type="a")
        store.append_messages(key, [USER])
        store.stage_changes(key, key, key, WRITES)
        store.promote_staging(key, key)
        assert store.load_state(key).session_id == key
    assert {item.session_id for item in store.list_sessions(limit=100).items} == set(odd)


def test_what_is_unknown_is_not_found_rather_than_invalid(store: SessionStore, session: str) -> None:
    with pytest.raises(SessionNotFound):
        store.load_state("x" * 255)
    with pytest.raises(RunNotFound):
        store.get_run(session, "x" * 255)
    with pytest.raises(CheckpointNotFound):
        store.get_checkpoint(session, "x" * 512)
