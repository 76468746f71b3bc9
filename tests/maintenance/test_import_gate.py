"""What an import lets in is what every other way in lets in, whatever the engine."""

import io
import json
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from helix_sessions.content.documents import MAX_DEPTH
from helix_sessions.exceptions import InvalidExport
from helix_sessions.store import SessionStore
from helix_sessions.store.maintenance import export_rows
from tests.invariants import assert_healthy, dump
from tests.maintenance.test_transfer import exported, imported, wipe

DIGITS = "9" * 5_000
DEEP = "[" * 600 + "]" * 600
NOT_NUMBERS = ("1e400", "-1e400", "1e309", "-1E+999999", "NaN", "-Infinity", DIGITS)

REFUSED: list[tuple[str, str, str]] = [
    *(("state_snapshot", "document", f'{{"n":{number}}}') for number in NOT_NUMBERS),
    ("state_snapshot", "document", '{"n":"\\ud800"}'),
    ("state_snapshot", "document", "[1]"),
    ("state_snapshot", "document", f'{{"n":{DEEP}}}'),
    ("message", "content", '{"role":"user","content":1e400}'),
    ("message", "content", '{"role":"assistant","content":"another role"}'),
    ("message", "content", '{"content":"no role"}'),
    ("message", "content", '["role"]'),
    ("note", "document", "[1e400]"),
    ("note", "document", DEEP),
    ("note", "key", '"\\u0000"'),
    ("note", "key", '"line\\nbreak"'),
    ("event", "data", '{"n":-1e400}'),
    ("event", "type", '"\\u0000"'),
    ("session", "metadata", '{"a":["\\u0000"]}'),
    ("session", "metadata", '{"\\u0000":1}'),
    ("session", "metadata", '{"a":"\\udfff"}'),
    ("session", "metadata", '{"a":1e400}'),
    ("session", "metadata", "[]"),
    ("session", "tags", '["\\u0000"]'),
    ("session", "tags", "[1]"),
    ("session", "tags", '{"a":1}'),
    ("session", "tags", f'["{"a" * 300}"]'),
    ("session", "user_id", '"\\u0000"'),
    ("session", "user_id", f'"{"a" * 300}"'),
    ("session", "failure_reason", '"\\u0000"'),
    ("session", "version", str(2**63)),
    ("session", "version", "1e3"),
    ("session", "owner_id", str(2**70)),
    ("session", "created_at", '"0001-01-01T00:00:00+14:00"'),
    ("session", "pending_client_tool_calls", "[]"),
    ("session", "output", "1e400"),
    ("checkpoint", "frame", '{"tags":[],"metadata":{"a":"\\u0000"}}'),
    ("checkpoint", "frame", '{"tags":["\\u0000"],"metadata":{}}'),
    ("checkpoint", "frame", '{"metadata":{}}'),
    ("checkpoint", "frame", "[]"),
    ("checkpoint", "checkpoint_id", '""'),
    ("run", "usage", '{"tokens":1e400}'),
    ("staged_change", "writes", '[{"op":"what"}]'),
    ("input", "prompt", "5"),
    ("input", "kind", "[]"),
]


def with_value(text: str, kind: str, column: str, value: str) -> str:
    """The export with another value in the last record of a kind."""
    lines = text.splitlines()
    place = max(n for n, line in enumerate(lines) if line.startswith(f'{{"kind":"{kind}"'))
    found = {**export_rows.split(lines[place]), column: value}
    lines[place] = "{" + ",".join(f'"{name}":{written}' for name, written in found.items()) + "}"
    return "\n".join([*lines, ""])


@pytest.fixture
def text(store: SessionStore) -> str:
    """An export of a session with a row of every kind that is asked about."""
    store.create_session("s", agent_type="writer", custom_state={"n": 1}, metadata={"a": 1}, tags=["t"])
    store.append_messages("s", [{"role": "user", "content": "hello"}])
    store.put_notes("s", {"k": 1})
    run = store.create_run("s")
    store.update_run_status("s", run.run_id, "completed", usage={"tokens": 1})
    store.create_checkpoint("s")
    store.admit_input("s", "hello", input_id="i")
    store.stage_changes("s", "step", "call", [])
    made = exported(store)
    wipe()
    return made


@pytest.mark.django_db
def test_nothing_comes_in_that_no_other_way_lets_in(store: SessionStore, text: str) -> None:
    let_in = []
    for kind, column, value in REFUSED:
        try:
            imported(store, with_value(text, kind, column, value), check=False)
        except InvalidExport as error:
            if not str(error).startswith("Line ") or any(dump().values()):
                let_in.append((kind, column, value[:60], str(error)))
        else:
            let_in.append((kind, column, value[:60], "came in"))
            wipe()
    assert let_in == []


@pytest.mark.django_db
def test_what_is_within_the_limits_comes_in(store: SessionStore, text: str) -> None:
    deepest = "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)
    custom = f'{{"n":[1e308,-1E-400,{"9" * 4_000},"\\u0000",{deepest[1:-1]}]}}'
    made = with_value(text, "note", "document", f'["\\u0000",{deepest}]')
    imported(store, with_value(made, "state_snapshot", "document", custom), check=False)

    state = store.load_state("s")
    assert state.custom_state["n"][:4] == [1e308, 0.0, int("9" * 4_000), "\0"]
    store.save_state("s", state)
    store.rewind("s")
    assert_healthy("s")


@pytest.mark.django_db
def test_the_deepest_documents_travel_wherever_the_store_puts_them(store: SessionStore) -> None:
    deepest: Any = 1.5
    for _ in range(MAX_DEPTH - 1):
        deepest = [deepest]
    owner = get_user_model().objects.create_user("ada")
    store.create_session(
        "s", agent_type="writer", custom_state={"n": deepest[0], "pad": "x" * 20_000}, owner=owner
    )
    store.create_session("child", agent_type="writer", parent_session_id="s")
    store.merge_custom_state("s", [{"op": "set", "path": ["m"], "value": deepest[0]}])
    store.emit_event("s", "progress", deepest, idempotency_key="k")
    store.add_sub_session_refs("s", [{"sub_session_id": "child", "agent_type": "writer", "result": deepest}])
    store.update_sub_session_ref("s", "child", result=[deepest[0]])
    store.update_status("s", "active", output=deepest)
    store.create_checkpoint("s", {"metadata": {"a": deepest[0]}})
    store.settle_child("child", "completed", output=deepest)
    made, rows = exported(store), dump()
    wipe()

    imported(store, made)

    assert dump() == rows


@pytest.mark.django_db
def test_a_document_may_be_as_large_as_the_setting_says(
    store: SessionStore, text: str, settings: Any
) -> None:
    large = with_value(text, "note", "document", json.dumps("x" * 5_000))
    settings.HELIX_SESSIONS = {"MAX_DOCUMENT_BYTES": 4_000}
    with pytest.raises(InvalidExport, match="bytes"):
        imported(store, large)
    settings.HELIX_SESSIONS = {}
    imported(store, large)


@pytest.mark.django_db
def test_archived_events_go_through_the_gate(store: SessionStore, archive_storage: Any) -> None:
    store.create_session("s", agent_type="writer")
    for number in range(5):
        store.emit_event("s", "progress", {"n": number})
    store.archive_events("s", keep=1)
    made = exported(store)
    wipe()
    broken = [made.replace('{"n":3}', f'{{"n":{number}}}') for number in (*NOT_NUMBERS, DEEP, '"\\ud800"')]
    for text in (*broken, made.replace('"type":"progress"', '"type":[]')):
        with pytest.raises(InvalidExport, match="Line "):
            store.import_sessions(io.StringIO(text))
        assert not any(dump().values()), text[:2_000]
    imported(store, made)
