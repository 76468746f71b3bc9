"""The classic message history, out of a range of events."""

from datetime import UTC, datetime
from typing import Any

from helix_sessions.messages.projection import project_messages
from helix_sessions.types import EventRecord, ProjectedMessage
from tests.rows import each

NOW = datetime(2025, 1, 1, tzinfo=UTC)


def log(*entries: tuple[str, Any], first: int = 1) -> list[EventRecord]:
    return [
        EventRecord(session_id="s", seq=seq, type=type_, data=data, turn_id=None, run_id=None, created_at=NOW)
        for seq, (type_, data) in enumerate(entries, first)
    ]


def user(content: Any) -> tuple[str, Any]:
    return "user_message", {"role": "user", "content": content}


def assistant(content: Any, *calls: str) -> tuple[str, Any]:
    tool_calls = [{"id": call, "name": "look", "arguments": {}} for call in calls]
    return "assistant_message", {"role": "assistant", "content": content, "tool_calls": tool_calls}


def tool_message(call: str, content: Any) -> tuple[str, Any]:
    return "tool_message", {"role": "tool", "tool_call_id": call, "content": content}


def tool(kind: str, call: str, **data: Any) -> tuple[str, Any]:
    return f"tool_{kind}", {"tool_call_id": call, **data}


def truncated(removed: int) -> tuple[str, Any]:
    return "messages_truncated", {"count": 0, "removed": removed}


def lines(*entries: tuple[str, Any]) -> list[tuple[str, Any]]:
    return [(message.role, message.content) for message in project_messages(log(*entries))]


def test_messages_keep_role_content_place_and_time() -> None:
    events = log(user("hi"), ("session_woken", {}), tool_message("c1", {"found": 1}), first=7)

    assert project_messages(events) == [
        ProjectedMessage(role="user", content="hi", tool_call_id=None, seq=7, created_at=NOW),
        ProjectedMessage(role="tool", content={"found": 1}, tool_call_id="c1", seq=9, created_at=NOW),
    ]


def test_each_message_type_has_its_role() -> None:
    history = lines(("system_message", {"content": "be kind"}), user("hi"), assistant("hello"))

    assert history == [("system", "be kind"), ("user", "hi"), ("assistant", "hello")]


def test_tool_events_become_calls_and_results() -> None:
    history = lines(
        tool("called", "c1", name="look", arguments={"q": 1}),
        tool("responded", "c1", result=["found"]),
        tool("called", "c2", name="look", arguments={}),
        tool("error", "c2", error="broken"),
    )

    assert history == [("tool_call", {"q": 1}), ("tool", ["found"]), ("tool_call", {}), ("tool", "broken")]


@each(
    ("data", "content"),
    [
        ({"tool_call_id": "c1", "content": None}, None),
        ({"tool_call_id": "c1", "output": 5}, 5),
        ({"tool_call_id": "c1", "rows": 3, "ok": True}, {"rows": 3, "ok": True}),
        ("just text", "just text"),
        (None, None),
    ],
)
def test_a_result_is_found_wherever_the_tool_put_it(data: Any, content: Any) -> None:
    assert lines(("tool_responded", data)) == [("tool", content)]


@each("kind", ["responded", "error"])
def test_a_result_that_is_also_a_message_appears_once_as_the_message(kind: str) -> None:
    history = lines(
        tool("called", "c1", arguments={}),
        tool(kind, "c1", result="raw", error="raw"),
        tool_message("c1", "seen"),
    )

    assert history == [("tool_call", {}), ("tool", "seen")]


def test_the_message_may_come_before_its_event() -> None:
    history = lines(tool("called", "c1"), tool_message("c1", "seen"), tool("responded", "c1", result="raw"))

    assert history == [("tool_call", {}), ("tool", "seen")]


def test_a_repeated_call_id_is_another_call() -> None:
    history = lines(
        tool("called", "c1"),
        tool_message("c1", "first"),
        tool("called", "c1"),
        tool("error", "c1", error="second"),
    )

    assert history == [("tool_call", {}), ("tool", "first"), ("tool_call", {}), ("tool", "second")]


def test_truncated_messages_are_left_out() -> None:
    history = lines(user("a"), assistant("b"), user("c"), truncated(2), user("d"))

    assert history == [("user", "a"), ("user", "d")]


def test_each_truncation_counts_from_what_still_stands() -> None:
    history = lines(user("a"), user("b"), truncated(1), user("c"), user("d"), truncated(2), user("e"))

    assert history == [("user", "a"), ("user", "e")]


def test_a_truncation_may_reach_back_before_the_range() -> None:
    assert lines(user("y"), user("z"), truncated(5), user("new")) == [("user", "new")]


def test_truncating_counts_messages_only() -> None:
    history = lines(
        user("a"),
        ("user_message", {"note": "no message"}),
        tool("called", "c1"),
        ("turn_ended", {}),
        truncated(1),
    )

    assert history == [("user", None), ("tool_call", {})]


def test_a_truncated_call_takes_its_tool_events_along() -> None:
    turn = (
        assistant("looking", "c1"),
        tool("called", "c1", arguments={}),
        tool("responded", "c1", result=1),
        tool_message("c1", 1),
    )

    assert lines(user("a"), *turn, truncated(2)) == [("user", "a")]


def test_a_truncated_result_does_not_come_back_as_its_event() -> None:
    history = lines(
        assistant("looking", "c1"),
        tool("called", "c1", arguments={}),
        tool("responded", "c1", result=1),
        tool_message("c1", 1),
        truncated(1),
    )

    assert history == [("assistant", "looking"), ("tool_call", {})]


def test_compaction_leaves_the_history_whole() -> None:
    assert lines(user("a"), ("compacted", {"through": 1}), user("b")) == [("user", "a"), ("user", "b")]


@each("data", [None, {}, [], {"removed": None}, {"removed": "2"}, {"removed": -1}, {"removed": 0}])
def test_a_truncation_that_says_nothing_removes_nothing(data: Any) -> None:
    assert lines(user("a"), ("messages_truncated", data)) == [("user", "a")]


def test_calls_without_a_result_are_marked() -> None:
    events = log(
        tool("called", "c1"),
        tool("responded", "c1", result=1),
        tool("called", "c2"),
        tool_message("c2", "seen"),
        tool("called", "c3"),
        tool("called", "c1"),
        tool("error", "c4", error="of a call before the range"),
    )
    history = project_messages(events)

    assert [(message.tool_call_id, message.seq) for message in history if message.dangling] == [
        ("c3", 5),
        ("c1", 6),
    ]
    assert history[4] == ProjectedMessage(
        role="tool_call", content={}, tool_call_id="c3", seq=5, created_at=NOW
    )


def test_the_message_of_a_compaction_is_no_part_of_the_history() -> None:
    summary = ("user_message", {"role": "user", "kind": "compaction", "content": "in short"})

    assert lines(user("a"), ("compacted", {"from_seq": 1, "to_seq": 1}), summary, user("b")) == [
        ("user", "a"),
        ("user", "b"),
    ]


def test_any_iterable_will_do_and_nothing_gives_nothing() -> None:
    assert project_messages(iter(())) == []
