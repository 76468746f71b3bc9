"""The row knows which calls of the transcript are open, as if it had read all of it."""

import json
import random
from typing import Any

import pytest

from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.store.engine.open_calls import read
from helix_sessions.transcripts import open_tool_calls
from tests.rows import each

pytestmark = pytest.mark.django_db


def call(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": i, "name": f"tool {i}", "arguments": {}} for i in ids]}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "done"}


def tracked(session_id: str) -> list[tuple[str, str]]:
    calls = read_row(session_id)
    return [(call.id, call.name) for call in calls]


def read_row(session_id: str):
    text = Session.objects.get(session_id=session_id).open_calls
    return read(None if text is None else json.dumps(text))


def expected(store: SessionStore, session_id: str) -> list[tuple[str, str]]:
    return [(c["id"], c["name"]) for c in open_tool_calls(store.get_messages(session_id).messages)]


def test_formats_of_every_provider_are_followed(store: SessionStore):
    store.create_session("s", agent_type="agent")
    blocks = [{"type": "text", "text": "?"}, {"type": "tool_use", "id": "b", "name": "tool b", "input": {}}]
    store.append_messages("s", [call("a"), {"role": "assistant", "content": blocks}])
    assert tracked("s") == [("a", "tool a"), ("b", "tool b")]
    answers = [{"type": "tool_result", "tool_use_id": "b", "content": "x"}]
    store.append_messages("s", [{"role": "user", "content": answers}])
    assert tracked("s") == [("a", "tool a")]
    store.emit_event("s", "tool_message", {"tool_call_id": "a", "content": 1})
    assert Session.objects.get(session_id="s").open_calls is None


@each("seed", range(25))
def test_appending_truncating_and_branching(store: SessionStore, seed: int):
    """Ids come again in later turns, calls stay open for long; what is tracked is what a reader finds."""
    chance = random.Random(seed)
    store.create_session("s", agent_type="agent")
    for number in range(40):
        is_open = [c["id"] for c in open_tool_calls(store.get_messages("s").messages)]
        what = chance.random()
        if what < 0.35:
            ids = [i for i in chance.sample("abcdefgh", chance.randint(1, 3)) if i not in is_open]
            store.append_messages("s", [call(*ids)])
        elif what < 0.7 and is_open:
            answered = chance.sample(is_open, chance.randint(1, len(is_open)))
            store.append_messages("s", [result(i) for i in answered])
        elif what < 0.8:
            store.append_messages("s", [{"role": "user", "content": 'about "tool_calls"'}])
        elif what < 0.9:
            count = store.get_message_count("s")
            store.truncate_messages("s", max(0, count - chance.choice([1, 2, 3, 5, 12])))
        else:
            most = chance.randint(0, store.get_message_count("s"))
            store.clone_session("s", f"branch {number}", message_count=most)
            assert tracked(f"branch {number}") == expected(store, f"branch {number}")
        assert tracked("s") == expected(store, "s")


@pytest.mark.one_machine("it counts the statements of one server")
def test_a_long_transcript_is_not_read(store: SessionStore, django_assert_max_num_queries):
    """Cutting the end of a long transcript finds the calls it opens again close by."""
    store.create_session("s", agent_type="agent")
    for _ in range(10):
        store.append_messages(
            "s", [m for _ in range(200) for m in (call("a", "b"), result("a"), result("b"))]
        )
    with django_assert_max_num_queries(12):
        store.truncate_messages("s", 5998)
    assert tracked("s") == [("a", "tool a"), ("b", "tool b")]
    with django_assert_max_num_queries(12):
        store.truncate_messages("s", 5000)
    assert tracked("s") == expected(store, "s") != []
