"""Section 3: the event log, but for `subscribe` and `wake`."""

from dataclasses import fields
from typing import Any

import pytest

from helix_sessions.exceptions import InvalidInput
from helix_sessions.store import SessionStore
from helix_sessions.types import EventRecord
from tests.contract.calls import ASSISTANT, USER
from tests.invariants import assert_invariants, dump
from tests.rows import each

pytestmark = pytest.mark.django_db

MESSAGES = ["user_message", "assistant_message", "system_message", "tool_message"]


class TestAttach:
    def test_the_head_of_a_session_that_is_there(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, [USER, USER])
        assert store.attach(session) == 3
        assert store.load_state(session).version == 2

    def test_a_session_is_created_when_absent(self, store: SessionStore) -> None:
        assert store.attach("new") == 1
        state = store.load_state("new")
        assert (state.version, state.head_seq, state.status) == (1, 1, "active")

    def test_an_agent_type_may_be_given(self, store: SessionStore) -> None:
        store.attach("new", agent_type="writer")
        assert store.load_state("new").agent_type == "writer"


class TestDetach:
    def test_events_stay(self, store: SessionStore, session: str) -> None:
        before = dump()
        store.detach(session)
        store.detach(session)
        assert dump() == before


class TestEmit:
    def test_a_record_says_what_was_emitted(self, store: SessionStore, session: str) -> None:
        record = store.emit_event(
            session, "tool_called", {"tool_call_id": "c", "arguments": {}}, turn_id="t", run_id="r"
        )
        assert record == EventRecord(
            session_id=session,
            seq=2,
            type="tool_called",
            data={"tool_call_id": "c", "arguments": {}},
            turn_id="t",
            run_id="r",
            created_at=record.created_at,
        )
        assert store.get_events(session, 2) == [record]

    @each("data", [None, 0, "", "text", [], {}, [None], False, {"content": 1}])
    def test_the_data_is_any_json(self, store: SessionStore, session: str, data: Any) -> None:
        record = store.emit_event(session, "note", data)
        [again] = store.get_events(session, record.seq)
        assert again == record
        assert again.data == data
        assert type(again.data) is type(data)

    def test_the_list_of_types_is_open(self, store: SessionStore, session: str) -> None:
        assert store.emit_event(session, "my_own_type").type == "my_own_type"

    @each("kind", MESSAGES)
    def test_a_message_type_with_content_is_a_message(
        self, store: SessionStore, session: str, kind: str
    ) -> None:
        role = kind.removesuffix("_message")
        record = store.emit_event(session, kind, {"content": "hi", "extra": 1})
        assert store.get_messages(session).messages == [{"role": role, "content": "hi", "extra": 1}]
        assert record.data == store.get_messages(session).messages[0]
        assert store.get_events(session, record.seq) == [record]
        assert store.load_state(session).version == 2
        assert_invariants(session)

    @each("content", [None, "", [], {"type": "text"}])
    def test_any_content_will_do(self, store: SessionStore, session: str, content: Any) -> None:
        store.emit_event(session, "user_message", {"content": content})
        assert store.get_messages(session).messages[0]["content"] == content

    @each("kind", MESSAGES)
    @each("data", [None, {}, {"text": "hi"}, "content", ["content"]])
    def test_a_message_type_without_content_is_an_event_only(
        self, store: SessionStore, session: str, kind: str, data: Any
    ) -> None:
        record = store.emit_event(session, kind, data)
        assert store.get_message_count(session) == 0
        assert store.load_state(session).version == 1
        assert store.get_events(session, 2) == [record]

    def test_a_message_keeps_its_keys_in_order(self, store: SessionStore, session: str) -> None:
        store.emit_event(session, "user_message", {"z": 1, "content": "hi", "role": "user", "a": 2})
        assert list(store.get_messages(session).messages[0]) == ["z", "content", "role", "a"]

    def test_another_role_than_the_type_s_is_refused(self, store: SessionStore, session: str) -> None:
        before = dump()
        with pytest.raises(InvalidInput):
            store.emit_event(session, "user_message", {"content": "hi", "role": "assistant"})
        assert dump() == before

    def test_messages_emitted_and_appended_stand_in_one_row(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, [USER])
        store.emit_event(session, "assistant_message", {"content": "emitted"})
        store.append_messages(session, [ASSISTANT])
        assert [message["content"] for message in store.get_messages(session).messages] == [
            *("hello", "emitted", "hi")
        ]
        assert_invariants(session)

    def test_the_run_under_way_is_carried_unless_given(self, store: SessionStore, session: str) -> None:
        store.create_run(session, run_id="running")
        assert store.emit_event(session, "note").run_id == "running"
        assert store.emit_event(session, "note", run_id="given").run_id == "given"
        assert store.emit_event(session, "user_message", {"content": ""}).run_id == "running"
        assert [event.run_id for event in store.get_events(session, 3)] == ["running", "given", "running"]


class TestIdempotency:
    @each("kind", ["note", "user_message"])
    def test_the_same_key_returns_the_first_record(
        self, store: SessionStore, session: str, kind: str
    ) -> None:
        first = store.emit_event(session, kind, {"content": "first"}, turn_id="t", idempotency_key="k")
        before = dump()
        assert store.emit_event(session, kind, {"content": "first"}, idempotency_key="k") == first
        assert store.emit_event(session, "other", {"content": "second"}, idempotency_key="k") == first
        assert dump() == before

    def test_even_when_its_message_was_truncated(self, store: SessionStore, session: str) -> None:
        first = store.emit_event(session, "user_message", {"content": "x"}, idempotency_key="k")
        store.truncate_messages(session, 0)
        assert store.emit_event(session, "user_message", {"content": "x"}, idempotency_key="k") == first
        assert store.get_message_count(session) == 0

    def test_another_key_and_another_session_are_other_events(
        self, store: SessionStore, session: str
    ) -> None:
        store.create_session("other", agent_type="writer")
        assert store.emit_event(session, "note", idempotency_key="k").seq == 2
        assert store.emit_event(session, "note", idempotency_key="K").seq == 3
        assert store.emit_event("other", "note", idempotency_key="k").seq == 2
        assert store.emit_event(session, "note").seq == 4
        assert_invariants(session)


class TestRead:
    @pytest.fixture
    def session(self, store: SessionStore, session: str) -> str:
        """A session with the events 1 to 5."""
        store.emit_event(session, "a", run_id="r1")
        store.emit_event(session, "b", run_id="r2")
        store.emit_event(session, "a", run_id="r2")
        store.append_messages(session, [USER], run_id="r1")
        return session

    @each(
        ("options", "expected"),
        [
            ({}, [1, 2, 3, 4, 5]),
            ({"from_seq": 3}, [3, 4, 5]),
            ({"to_seq": 3}, [1, 2]),
            ({"from_seq": 2, "to_seq": 4}, [2, 3]),
            ({"from_seq": 2, "to_seq": 3}, [2]),
            ({"from_seq": 3, "to_seq": 3}, []),
            ({"from_seq": 4, "to_seq": 2}, []),
            ({"from_seq": 0, "to_seq": 2**63 - 1}, [1, 2, 3, 4, 5]),
            ({"from_seq": 6}, []),
            ({"limit": 2}, [1, 2]),
            ({"limit": 0}, []),
            ({"from_seq": 2, "limit": 2}, [2, 3]),
            ({"types": ["a"]}, [2, 4]),
            ({"types": ["b", "user_message"]}, [3, 5]),
            ({"types": {"a"}}, [2, 4]),
            ({"types": "a"}, [2, 4]),
            ({"types": []}, []),
            ({"types": ["unknown"]}, []),
            ({"run_id": "r1"}, [2, 5]),
            ({"run_id": "r2", "types": ["a"]}, [4]),
            ({"run_id": "r1", "from_seq": 3, "limit": 1}, [5]),
            ({"run_id": "unknown"}, []),
        ],
    )
    def test_ranges_and_filters(
        self, store: SessionStore, session: str, options: dict[str, Any], expected: list[int]
    ) -> None:
        assert [event.seq for event in store.get_events(session, **options)] == expected

    def test_a_range_by_place(self, store: SessionStore, session: str) -> None:
        assert [event.seq for event in store.get_events(session, 2, 4)] == [2, 3]

    def test_the_data_of_a_message_is_the_message(self, store: SessionStore, session: str) -> None:
        message = {"z": "\x00", "role": "assistant", "content": [1.5, None]}
        store.append_messages(session, [message])
        event = store.get_events(session)[-1]
        assert event.data == message
        assert list(event.data) == list(message)

    def test_many_types_are_no_trouble(self, store: SessionStore, session: str) -> None:
        types = ["a", *(f"type-{number}" for number in range(400))]
        assert [event.seq for event in store.get_events(session, types=types)] == [2, 4]

    def test_times_do_not_go_back(self, store: SessionStore, session: str) -> None:
        times = [event.created_at for event in store.get_events(session)]
        assert times == sorted(times)
        assert all(time.utcoffset() is not None for time in times)


class TestProjection:
    def test_the_classic_history_of_a_session(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, [USER])
        store.emit_event(session, "tool_called", {"tool_call_id": "1", "arguments": {"q": "x"}})
        store.emit_event(session, "tool_responded", {"tool_call_id": "1", "result": [1]})
        store.emit_event(session, "tool_called", {"tool_call_id": "2", "arguments": {}})
        store.emit_event(session, "tool_error", {"tool_call_id": "2", "error": "no"})
        store.emit_event(session, "llm_responded", {"tokens": 1})
        store.append_messages(session, [ASSISTANT])
        projected = store.project_messages(store.get_events(session))
        assert [(line.role, line.content, line.tool_call_id, line.seq) for line in projected] == [
            ("user", "hello", None, 2),
            ("tool_call", {"q": "x"}, "1", 3),
            ("tool", [1], "1", 4),
            ("tool_call", {}, "2", 5),
            ("tool", "no", "2", 6),
            ("assistant", "hi", None, 8),
        ]

    def test_it_needs_no_store(self) -> None:
        assert SessionStore.project_messages([]) == []


def test_an_event_has_these_fields() -> None:
    names = "session_id seq type data turn_id run_id created_at"
    assert [field.name for field in fields(EventRecord)] == names.split()
