"""Which tool calls are given a result when a worker died."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from helix_sessions.messages.repairs import LoggedEvent, repairs
from helix_sessions.transcripts import INTERRUPTED, open_tool_calls


def log(*entries: tuple[Any, ...]) -> list[LoggedEvent]:
    return [
        LoggedEvent(seq=seq, type=kind, data=data, truncated_seq=rest[0] if rest else None)
        for seq, (kind, data, *rest) in enumerate(entries, 1)
    ]


def assistant(*calls: str, truncated: int | None = None) -> tuple[Any, ...]:
    made = [{"id": call, "name": "look", "arguments": {}} for call in calls]
    return "assistant_message", {"role": "assistant", "content": "", "tool_calls": made}, truncated


def answer(call: str, truncated: int | None = None) -> tuple[Any, ...]:
    return "tool_message", {"role": "tool", "tool_call_id": call, "content": "seen"}, truncated


def called(call: str) -> tuple[Any, ...]:
    return "tool_called", {"tool_call_id": call, "name": "look"}


def responded(call: str, result: Any = "logged") -> tuple[Any, ...]:
    return "tool_responded", {"tool_call_id": call, "result": result}


def failed(call: str) -> tuple[Any, ...]:
    return "tool_error", {"tool_call_id": call, "error": "broken"}


TRUNCATED = ("messages_truncated", {"count": 0, "removed": 1})


def given_to(*entries: tuple[Any, ...], waiting: tuple[str, ...] = ()) -> list[tuple[str, Any]]:
    found = repairs(log(*entries), waiting)
    return [(repair.message["tool_call_id"], repair.message["content"]) for repair in found]


def test_a_call_in_a_message_or_in_the_log_or_in_both_fails_once() -> None:
    assert given_to(assistant("c1"), called("c2"), called("c1")) == [("c1", INTERRUPTED), ("c2", INTERRUPTED)]


def test_an_answered_call_is_left_alone() -> None:
    assert given_to(assistant("c1"), called("c1"), responded("c1"), answer("c1")) == []
    assert given_to(assistant("c1"), called("c1"), answer("c1"), responded("c1")) == []
    assert given_to(assistant("c1"), answer("c1")) == []
    assert given_to(called("c1"), responded("c1"), called("c2"), failed("c2")) == []


def test_a_result_that_only_the_log_has_is_carried_over() -> None:
    found = repairs(log(assistant("c1", "c2"), called("c1"), responded("c1", {"n": 1}), failed("c2")))

    assert [repair.is_new for repair in found] == [False, False]
    assert [repair.message for repair in found] == [
        {"role": "tool", "tool_call_id": "c1", "tool_name": "look", "content": {"n": 1}},
        {
            "role": "tool",
            "tool_call_id": "c2",
            "tool_name": "look",
            "content": "broken",
            "is_error": True,
        },
    ]


def test_an_id_that_comes_again_is_another_call() -> None:
    turn = (assistant("c1"), called("c1"))

    assert given_to(*turn, answer("c1"), *turn) == [("c1", INTERRUPTED)]
    assert given_to(*turn, responded("c1"), answer("c1"), *turn) == [("c1", INTERRUPTED)]
    assert given_to(*turn, answer("c1"), responded("c1"), *turn) == [("c1", INTERRUPTED)]
    assert given_to(*turn, responded("c1"), *turn) == [("c1", "logged"), ("c1", INTERRUPTED)]


def test_what_was_truncated_is_undone() -> None:
    assert given_to(assistant("c1", truncated=3), called("c1"), TRUNCATED) == []
    assert given_to(assistant("c1", truncated=3), called("c1"), TRUNCATED, called("c1")) == [
        ("c1", INTERRUPTED)
    ]


def test_a_truncated_result_does_not_come_back() -> None:
    turn = (assistant("c1"), called("c1"), responded("c1"), answer("c1", 5), TRUNCATED)

    assert given_to(*turn) == [("c1", INTERRUPTED)]


def test_calls_that_wait_for_somebody_are_left_alone() -> None:
    assert given_to(assistant("c1", "c2"), waiting=("c1",)) == [("c2", INTERRUPTED)]


def test_what_is_no_call_is_passed_over() -> None:
    assert given_to(("tool_called", None), ("tool_called", {"tool_call_id": 5}), ("tool_error", "x")) == []


ids = st.sampled_from(["a", "b", "c"])
entries = st.one_of(
    st.lists(ids, max_size=3, unique=True).map(lambda calls: assistant(*calls)),
    ids.map(answer),
    ids.map(called),
    ids.map(responded),
    ids.map(failed),
)


@given(st.lists(entries, max_size=25))
def test_afterwards_no_call_is_without_a_result_and_nothing_is_repaired_twice(some: list[Any]) -> None:
    first = repairs(log(*some))
    added: list[tuple[Any, ...]] = []
    for repair in first:
        if repair.is_new:
            added.append(failed(repair.message["tool_call_id"]))
        added.append(("tool_message", repair.message))
    after = [*some, *added]

    assert repairs(log(*after)) == []
    assert open_tool_calls(data for kind, data, *_ in after if kind.endswith("_message")) == []
