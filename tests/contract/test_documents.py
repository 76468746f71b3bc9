"""Exact documents: whatever JSON goes in comes back equal, in every place that keeps one."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helix_sessions.content import documents
from helix_sessions.store import SessionStore
from tests.contract.calls import REF
from tests.rows import each

pytestmark = pytest.mark.django_db


def nested(depth: int, *, objects: bool = False) -> Any:
    document: Any = "the bottom"
    for _ in range(depth):
        document = {"k": document} if objects else [document]
    return document


DOCUMENTS: dict[str, Any] = {
    "null characters": {"a\x00b": "\x00", "": ["\x00\x00", "x\x00"]},
    "a null character written out": {"a": "\\u0000", "b": "\\\\u0000"},
    "control characters": "".join(map(chr, range(32))) + "\x7f\x80\x85\x9f",
    "separators": "\u2028\u2029\u00a0\ufeff\u200b",
    "beyond the basic plane": {"😀": "👩‍👩‍👧", "\U0010ffff": "\uffff\ufffe"},
    "escaped surrogates": ["\\ud800", "\ue000", "\ud7ff"],
    "a 400-digit integer": [int("9" * 400), -int("7" * 400)],
    "the ends of integers": [0, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1],
    "the ends of floats": [1e308, 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, -1e-300],
    "zeros": [0, 0.0, -0.0],
    "floats and integers": [1, 1.0, 100000000000000000000.0, 1e16, 10**16, 0.1, 1 / 3],
    "words": [True, False, None, "true", "null", ""],
    "lists 400 deep": nested(400),
    "objects 400 deep": nested(400, objects=True),
    "odd keys": {
        "": 1,
        " ": 2,
        "__proto__": 3,
        "constructor": 4,
        "0": 5,
        "00": 6,
        "-1": 7,
        "a.b": 8,
        "a/b~c": 9,
        "$ref": 10,
        "null": 11,
        '"': 12,
        "\\": 13,
    },
    "keys that normalise alike": {"é": 1, "e\u0301": 2, "K": 3, "\u212a": 4, "k": 5},
    "keys in their order": {"z": 1, "a": {"y": 1, "b": 2}, "m": [{"2": 1, "10": 2, "1": 3}]},
    "ten thousand keys": {f"key-{number * 7919 % 10_007}": number for number in range(10_000)},
    "a long list": list(range(20_000)),
    "a long text": "é" * 100_000,
    "empty containers": {"a": {}, "b": [], "c": [[], {}], "d": ""},
    "absent and null": {"here": None, "list": [None]},
    "what looks like code": ["'; DROP TABLE x; --", "%s %(x)s {} {0}", "<script>", "${x}", ":x ? $1"],
    "json in json": json.dumps({"a": [1, "\x00"]}),
}

PLACES: dict[str, Callable[[SessionStore, Any], Any]] = {}
"""Each puts a document somewhere and reads it back."""


def place(name: str) -> Callable[[Callable[[SessionStore, Any], Any]], Callable[[SessionStore, Any], Any]]:
    def register(function: Callable[[SessionStore, Any], Any]) -> Callable[[SessionStore, Any], Any]:
        PLACES[name] = function
        return function

    return register


@place("a created state")
def _(store: SessionStore, value: Any) -> Any:
    created = store.create_session("new", agent_type="a", custom_state={"v": value})
    assert exact(created.custom_state["v"]) == exact(value)
    return store.load_state("new").custom_state["v"]


@place("a saved state")
def _(store: SessionStore, value: Any) -> Any:
    saved = store.save_state("s", replace(store.load_state("s"), custom_state={"v": value}))
    assert exact(saved.custom_state["v"]) == exact(value)
    return store.load_state("s").custom_state["v"]


@place("a state saved over a large one")
def _(store: SessionStore, value: Any) -> Any:
    pad = {"pad": ["x" * 100] * 300}
    store.save_state("s", replace(store.load_state("s"), custom_state={**pad, "v": None}))
    store.save_state("s", replace(store.load_state("s"), custom_state={**pad, "v": value}))
    return store.load_state("s").custom_state["v"]


@place("the state of a checkpoint")
def _(store: SessionStore, value: Any) -> Any:
    saved = store.save_state("s", replace(store.load_state("s"), custom_state={"v": value}))
    store.save_state("s", replace(store.load_state("s"), custom_state={}))
    return store.get_checkpoint("s", saved.checkpoint_id or "").state.custom_state["v"]


@place("a document of a checkpoint's state")
def _(store: SessionStore, value: Any) -> Any:
    state = replace(store.load_state("s"), output=value, suspension_context=value)
    saved = store.save_state("s", state)
    store.save_state("s", replace(state, output=None, suspension_context=None))
    checkpoint = store.get_checkpoint("s", saved.checkpoint_id or "")
    assert exact(checkpoint.state.suspension_context) == exact(value)
    return checkpoint.state.output


@place("a map of the state")
def _(store: SessionStore, value: Any) -> Any:
    store.save_state("s", replace(store.load_state("s"), pending_client_tool_calls={"v": value}))
    return (store.load_state("s").pending_client_tool_calls or {})["v"]


@place("a merged state")
def _(store: SessionStore, value: Any) -> Any:
    merged = store.merge_custom_state("s", [{"op": "set", "path": ["v"], "value": value}])
    assert exact(merged.custom_state["v"]) == exact(value)
    [event] = store.get_events("s", types=["state_merged"])
    assert exact(event.data["writes"][0]["value"]) == exact(value)
    return store.load_state("s").custom_state["v"]


@place("a staged write")
def _(store: SessionStore, value: Any) -> Any:
    store.stage_changes("s", "step", "call", [{"op": "append", "path": ["v"], "values": [value]}])
    [change] = store.get_staged_changes("s")
    assert exact(change.writes[0]["values"][0]) == exact(value)
    store.save_state_and_promote_staging("s", store.load_state("s"))
    return store.load_state("s").custom_state["v"][0]


@place("a message")
def _(store: SessionStore, value: Any) -> Any:
    store.append_messages("s", [{"role": "user", "content": value}, {"role": "user"}])
    event = store.get_events("s", types=["user_message"])[0]
    assert exact(event.data["content"]) == exact(value)
    return store.get_messages("s").messages[0]["content"]


@place("a message of a branch")
def _(store: SessionStore, value: Any) -> Any:
    store.append_messages("s", [{"role": "user", "content": value}])
    store.clone_session("s", "branch")
    return store.get_messages("branch").messages[0]["content"]


@place("the state of a branch")
def _(store: SessionStore, value: Any) -> Any:
    store.save_state("s", replace(store.load_state("s"), custom_state={"v": value}))
    return store.clone_session("s", "branch").custom_state["v"]


@place("event data")
def _(store: SessionStore, value: Any) -> Any:
    record = store.emit_event("s", "note", value)
    assert exact(record.data) == exact(value)
    return store.get_events("s")[-1].data


@place("an output")
def _(store: SessionStore, value: Any) -> Any:
    store.update_status("s", "completed", output=value)
    return store.load_state("s").output


@place("an interrupt context")
def _(store: SessionStore, value: Any) -> Any:
    store.compare_and_set_status("s", ["active"], "interrupted", interrupt_context=value)
    return store.load_state("s").interrupt_context


@place("a run's output")
def _(store: SessionStore, value: Any) -> Any:
    store.create_run("s", run_id="r", metadata={"v": value})
    run = store.update_run_status("s", "r", "completed", output=value, usage=value)
    assert exact(run.metadata["v"]) == exact(run.usage) == exact(value)
    return store.get_run("s", "r").output


@place("a checkpoint's metadata")
def _(store: SessionStore, value: Any) -> Any:
    store.create_checkpoint("s", {"checkpoint_id": "c", "metadata": {"v": value}})
    return store.get_checkpoint("s", "c").metadata["v"]


@place("a reference's result")
def _(store: SessionStore, value: Any) -> Any:
    store.add_sub_session_refs("s", [replace(REF, result=value)])
    return store.get_sub_session_refs("s")[0].result


@place("an updated reference's result")
def _(store: SessionStore, value: Any) -> Any:
    store.add_sub_session_refs("s", [REF])
    store.update_sub_session_ref("s", "child", result=value)
    return store.get_sub_session_refs("s")[0].result


def exact(value: Any) -> str:
    """The value as text: types, order of keys and all."""
    return json.dumps(value)


@each("where", PLACES)
@each("name", DOCUMENTS)
def test_a_document_comes_back_equal_and_in_order(
    store: SessionStore, session: str, name: str, where: str
) -> None:
    again = PLACES[where](store, DOCUMENTS[name])
    assert exact(again) == exact(DOCUMENTS[name])


@each("name", [name for name in DOCUMENTS if not name.endswith("characters")])
def test_metadata_comes_back_equal(store: SessionStore, session: str, name: str) -> None:
    value = DOCUMENTS[name]
    store.create_session("new", agent_type="a", metadata={"v": value})
    assert store.load_state("new").metadata == {"v": value}
    store.patch_metadata(session, {"v": value})
    assert store.load_state(session).metadata == {"v": value}
    store.save_state(session, replace(store.load_state(session), metadata={"w": value}))
    assert store.load_state(session).metadata == {"w": value}


@each("text", ["", "\x00", "é😀\n\t", '"\\', "x" * 100_000, "\u2028"])
def test_texts_come_back_equal(store: SessionStore, session: str, text: str) -> None:
    store.update_status(session, "failed", error=text)
    store.set_interrupt_flag(session, text)
    store.create_run(session, run_id="r")
    store.update_run_status(session, "r", "failed", error=text)
    assert store.load_state(session).error == text
    assert store.get_run(session, "r").error == text
    request = store.check_interrupt_flag(session)
    assert request is not None
    assert request.reason == text
    assert store.create_checkpoint(session).state.error == text


@each("name", ["lists 400 deep", "objects 400 deep"])
def test_a_deep_document_can_be_changed_step_by_step(store: SessionStore, session: str, name: str) -> None:
    pad = {"pad": ["x" * 100] * 300}
    for custom in ({**pad, "v": DOCUMENTS[name]}, {**pad, "v": DOCUMENTS[name], "w": DOCUMENTS[name]}):
        store.save_state(session, replace(store.load_state(session), custom_state=custom))
        assert exact(store.load_state(session).custom_state) == exact(custom)


def test_the_deepest_document_allowed_can_be_replaced(
    store: SessionStore, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MAX_DEPTH", 50)
    pad = {"pad": ["x" * 100] * 300}
    for custom in (
        {**pad, "v": nested(50)},
        {**pad, "v": nested(50, objects=True)},
        {**pad, "v": nested(50)},
    ):
        store.save_state(session, replace(store.load_state(session), custom_state=custom))
        assert exact(store.load_state(session).custom_state) == exact(custom)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(value=values, other=values)
def test_any_document_comes_back_equal(store: SessionStore, value: Any, other: Any) -> None:
    session = store.create_session(None, agent_type="a", custom_state={"v": value}).session_id
    store.append_messages(session, [{"role": "user", "content": value}])
    store.emit_event(session, "note", other)
    saved = store.save_state(
        session, replace(store.load_state(session), custom_state={"w": other}, output=value)
    )
    checkpoint = store.get_checkpoint(session, saved.checkpoint_id or "")
    assert exact(store.load_state(session).custom_state) == exact({"w": other})
    assert exact(store.load_state(session).output) == exact(checkpoint.state.output) == exact(value)
    assert exact(store.get_messages(session).messages[0]["content"]) == exact(value)
    assert exact(store.get_events(session, types=["note"])[0].data) == exact(other)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_the_text_of_a_document_does_not_depend_on_what_wrote_it(value):
    by_json = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert documents.dump(value) == by_json
    assert documents.load(documents.write(value)) == value
