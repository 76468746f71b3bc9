"""The fragments of one reader: each once and in order, whichever way they come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_sessions.stream import fragment_cursor
from helix_sessions.stream.followers import Entry
from helix_sessions.stream.fragment_cursor import MOST_FRAGMENTS, FragmentCursor
from helix_sessions.types import Fragment

POLL = 15.0


def piece(index: int, message: str = "m1", *, turn: str = "run:1", after: int = 5) -> Fragment:
    return Fragment(
        session_id="s",
        data={"text": str(index)},
        after_seq=after,
        turn_id=turn,
        message_id=message,
        index=index,
    )


def pieces(count: int, message: str = "m1") -> list[Fragment]:
    return [piece(index, message) for index in range(count)]


def event(kind: str, seq: int, *, turn: str | None = "run:1", run: str = "run") -> Entry:
    return Entry((seq, kind, None, turn, run, None))


def shown(cursor: FragmentCursor, seq: int = 100) -> str:
    """What the reader is handed out now, the texts behind each other."""
    return "".join(fragment.data["text"] for fragment in cursor.until(seq))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(fragment_cursor, "monotonic", lambda: now[0])
    return now


def test_what_comes_both_ways_is_shown_once():
    cursor = FragmentCursor()
    cursor.offer(piece(0))
    cursor.take(pieces(2), POLL)
    for fragment in pieces(3):
        cursor.offer(fragment)
    assert shown(cursor) == "012", "and what follows is not kept back"
    cursor.take(pieces(3), POLL)
    assert shown(cursor) == ""


def test_what_is_missing_is_waited_for_and_then_done_without(clock: list[float]):
    cursor = FragmentCursor()
    cursor.take([], POLL)
    for fragment in (piece(0), piece(2), piece(3)):
        cursor.offer(fragment)
    assert shown(cursor) == "0"
    assert cursor.look_at <= clock[0] + 0.1, "what is kept is read soon"
    cursor.take(pieces(3), POLL)
    assert shown(cursor) == "123"
    cursor.offer(piece(5))
    clock[0] += 1.0
    cursor.take(pieces(3), POLL)
    assert shown(cursor) == "", "the missing one may still come"
    clock[0] += 1.1
    cursor.take(pieces(3), POLL)
    assert shown(cursor) == "5"


def test_what_was_published_just_before_the_first_look_is_looked_for_again(clock: list[float]):
    cursor = FragmentCursor()
    assert cursor.look_at <= clock[0]
    cursor.take([], POLL)
    assert cursor.look_at <= clock[0] + 0.25
    cursor.take([], POLL)
    assert cursor.look_at == clock[0] + POLL


def test_a_message_that_is_over_is_shown_no_more():
    for kind, turn, run in (
        ("assistant_message", "run:1", "run"),
        ("model_call_failed", "run:1", "run"),
        ("turn_finished", "run:1", "run"),
        ("run_finished", None, "run"),
    ):
        for late in (False, True):
            cursor = FragmentCursor()
            cursor.offer(piece(0))
            cursor.pass_by(event(kind, 9, turn=turn, run=run))
            if late:
                cursor.offer(piece(1))
                cursor.take(pieces(2), POLL)
            assert shown(cursor) == "", (kind, late)
            cursor.offer(piece(0, "m2", after=9))
            assert shown(cursor) == "0", f"what the same turn says after {kind}"
    cursor = FragmentCursor()
    cursor.offer(piece(0))
    cursor.pass_by(event("assistant_message", 9, turn="other:1", run="other"))
    cursor.pass_by(event("tool_called", 10))
    assert shown(cursor) == "0"


def test_an_older_message_that_is_still_kept_does_not_come_back():
    cursor = FragmentCursor()
    for fragment in pieces(2, "m2"):
        cursor.offer(fragment)
    cursor.take(pieces(3, "m1"), POLL)
    cursor.offer(piece(2, "m2"))
    assert shown(cursor) == "012"


def test_a_fragment_waits_for_the_event_it_follows():
    cursor = FragmentCursor()
    cursor.offer(piece(0, after=7))
    assert (shown(cursor, 6), cursor.newest) == ("", 7)
    assert shown(cursor, 7) == "0"


def test_a_slow_reader_holds_so_many(clock: list[float]):
    cursor = FragmentCursor()
    said = pieces(MOST_FRAGMENTS * 3)
    for fragment in said:
        cursor.offer(fragment)
    first = list(cursor.until(100))
    assert len(first) == MOST_FRAGMENTS
    cursor.take(said, POLL)
    assert "".join(fragment.data["text"] for fragment in [*first, *cursor.until(100)]) == "".join(
        fragment.data["text"] for fragment in said
    )
    for fragment in [Fragment(session_id="s", data=n, after_seq=1) for n in range(MOST_FRAGMENTS * 3)]:
        cursor.offer(fragment)
    assert len(list(cursor.until(100))) == MOST_FRAGMENTS, "those of no message are dropped"


@given(st.data())
def test_in_any_order_and_with_any_losses(data: st.DataObject):
    """Live pieces get lost, come twice and out of order; what is kept grows behind them."""
    count = data.draw(st.integers(1, 8))
    steps = data.draw(st.lists(st.tuples(st.booleans(), st.integers(0, count - 1)), max_size=30))
    cursor, seen = FragmentCursor(), ""
    kept = 0
    for is_live, index in steps:
        if is_live:
            cursor.offer(piece(index))
        else:
            kept = max(kept, index)
            cursor.take(pieces(kept), POLL)
        seen += shown(cursor)
        assert is_beginning(seen, count)
    cursor.take(pieces(count), POLL)
    seen += shown(cursor)
    assert seen == "".join(map(str, range(count)))


def is_beginning(text: str, count: int) -> bool:
    return "".join(map(str, range(count))).startswith(text)
