"""The transcript."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from helix_sessions.exceptions import InvalidInput
from helix_sessions.store import SessionStore
from helix_sessions.types import AppendResult, MessagePage
from tests.contract.calls import ASSISTANT, USER
from tests.invariants import assert_invariants, dump
from tests.rows import each

pytestmark = pytest.mark.django_db


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text} for text in texts]


def heard(page: MessagePage) -> list[Any]:
    return [message["content"] for message in page.messages]


class TestAppend:
    def test_positions_count_from_zero(self, store: SessionStore, session: str) -> None:
        first = store.append_messages(session, said("a", "b"))
        assert first == AppendResult(first_position=0, message_count=2, version=2, head_seq=3)
        second = store.append_messages(session, said("c"))
        assert second == AppendResult(first_position=2, message_count=3, version=3, head_seq=4)

    def test_nothing_appended_says_where_it_stands(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, said("a"))
        assert store.append_messages(session, []) == AppendResult(
            first_position=1, message_count=1, version=2, head_seq=2
        )

    @each("role", ["user", "assistant", "tool", "system"])
    def test_every_role_has_its_event(self, store: SessionStore, session: str, role: str) -> None:
        message = {"content": "x", "role": role, "tool_call_id": "t"}
        store.append_messages(session, [message])
        event = store.get_events(session)[-1]
        assert (event.type, event.data) == (f"{role}_message", message)

    def test_a_message_needs_nothing_but_its_role(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, [{"role": "user"}])
        assert store.get_messages(session).messages == [{"role": "user"}]

    def test_messages_come_back_exactly(self, store: SessionStore, session: str) -> None:
        message = {"z": 1, "role": "assistant", "content": [{"type": "text", "text": "é\x00"}], "a": None}
        store.append_messages(session, [message])
        [again] = store.get_messages(session).messages
        assert again == message
        assert list(again) == ["z", "role", "content", "a"]

    def test_one_bad_message_refuses_all(self, store: SessionStore, session: str) -> None:
        before = dump()
        with pytest.raises(InvalidInput):
            store.append_messages(session, [USER, {"role": "robot"}])
        assert dump() == before

    def test_a_thousand_at_once(self, store: SessionStore, session: str) -> None:
        texts = [str(number) for number in range(1203)]
        result = store.append_messages(session, said(*texts))
        assert (result.message_count, result.version) == (1203, 2)
        assert heard(store.get_messages(session)) == texts
        assert_invariants(session)

    def test_events_carry_the_run_given_or_under_way(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, [USER], run_id="given")
        store.create_run(session, run_id="running")
        store.append_messages(session, [USER])
        store.append_messages(session, [USER], run_id="given")
        events = store.get_events(session, types=["user_message"])
        assert [event.run_id for event in events] == ["given", "running", "given"]

    def test_any_iterable_of_mappings_will_do(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, (MappingProxyType(m) for m in [USER, ASSISTANT]))  # type: ignore[arg-type]
        assert store.get_messages(session).messages == [USER, ASSISTANT]


class TestRead:
    @pytest.fixture
    def session(self, store: SessionStore, session: str) -> str:
        store.append_messages(session, said("a", "b", "c", "d", "e"))
        return session

    @each(
        ("options", "expected", "has_more"),
        [
            ({}, "abcde", False),
            ({"limit": 2}, "ab", True),
            ({"limit": 5}, "abcde", False),
            ({"limit": 6}, "abcde", False),
            ({"limit": 0}, "", True),
            ({"offset": 3}, "de", False),
            ({"offset": 1, "limit": 2}, "bc", True),
            ({"offset": 3, "limit": 2}, "de", False),
            ({"offset": 5}, "", False),
            ({"offset": 6, "limit": 1}, "", False),
            ({"newest_first": True}, "edcba", False),
            ({"newest_first": True, "limit": 2}, "ed", True),
            ({"newest_first": True, "offset": 2, "limit": 2}, "cb", True),
            ({"newest_first": True, "offset": 4, "limit": 2}, "a", False),
            ({"newest_first": True, "offset": 9}, "", False),
            ({"offset": 2**63 - 1, "limit": 2**63 - 1}, "", False),
            ({"offset": 2**63 - 1, "limit": 2**63 - 1, "newest_first": True}, "", False),
            ({"limit": 2**63 - 1, "newest_first": True}, "edcba", False),
        ],
    )
    def test_ranges(
        self, store: SessionStore, session: str, options: dict[str, Any], expected: str, has_more: bool
    ) -> None:
        page = store.get_messages(session, **options)
        assert "".join(heard(page)) == expected
        assert (page.total, page.has_more) == (5, has_more)

    def test_an_empty_transcript(self, store: SessionStore) -> None:
        store.create_session("empty", agent_type="writer")
        assert store.get_messages("empty") == MessagePage(messages=[], total=0, has_more=False)
        assert store.get_message_count("empty") == 0

    def test_the_count(self, store: SessionStore, session: str) -> None:
        assert store.get_message_count(session) == 5


class TestTruncate:
    @pytest.fixture
    def session(self, store: SessionStore, session: str) -> str:
        store.append_messages(session, said("a", "b", "c"))
        return session

    @each(("count", "gone"), [(0, 3), (1, 2), (3, 0), (4, 0), (2**63 - 1, 0)])
    def test_the_first_stay(self, store: SessionStore, session: str, count: int, gone: int) -> None:
        assert store.truncate_messages(session, count) == gone
        assert heard(store.get_messages(session)) == ["a", "b", "c"][:count]
        assert_invariants(session)

    def test_everything_agrees_at_once(self, store: SessionStore, session: str) -> None:
        store.truncate_messages(session, 1)
        assert store.get_message_count(session) == store.load_state(session).message_count == 1
        assert store.list_sessions().items[0].message_count == 1
        page = store.get_messages(session, newest_first=True, limit=2)
        assert (heard(page), page.total, page.has_more) == (["a"], 1, False)
        assert store.create_checkpoint(session).message_count == 1

    def test_positions_are_given_again(self, store: SessionStore, session: str) -> None:
        store.truncate_messages(session, 1)
        assert store.append_messages(session, said("new")).first_position == 1
        assert heard(store.get_messages(session)) == ["a", "new"]
        assert heard(store.get_messages(session, newest_first=True, limit=1)) == ["new"]
        store.truncate_messages(session, 1)
        store.append_messages(session, said("newer", "newest"))
        assert heard(store.get_messages(session)) == ["a", "newer", "newest"]
        assert_invariants(session)

    def test_what_happened_stays_readable_in_the_log(self, store: SessionStore, session: str) -> None:
        store.truncate_messages(session, 0)
        store.append_messages(session, said("new"))
        events = store.get_events(session, types=["user_message"])
        assert [event.data["content"] for event in events] == ["a", "b", "c", "new"]

    def test_the_event_says_how_many(self, store: SessionStore, session: str) -> None:
        store.truncate_messages(session, 1)
        event = store.get_events(session)[-1]
        assert event.type == "messages_truncated"
        assert (event.data["count"], event.data["removed"]) == (1, 2)

    def test_an_earlier_checkpoint_keeps_its_count(self, store: SessionStore, session: str) -> None:
        store.create_checkpoint(session, {"checkpoint_id": "c"})
        store.truncate_messages(session, 1)
        assert store.get_checkpoint(session, "c").message_count == 3

    def test_the_projection_leaves_them_out(self, store: SessionStore, session: str) -> None:
        store.truncate_messages(session, 1)
        store.append_messages(session, said("new"))
        projected = store.project_messages(store.get_events(session))
        assert [message.content for message in projected] == ["a", "new"]


def test_a_state_is_read_without_its_messages(store: SessionStore, session: str) -> None:
    store.append_messages(session, said(*"abc"))
    state = store.load_state(session)
    assert state.message_count == 3
    assert store.save_state(session, replace(state, message_count=0)).message_count == 3
