"""Feedback: one thumb of each person on an answer, kept with the session."""

from io import StringIO

import pytest

from helix_sessions.exceptions import InvalidInput, NotFound, SessionNotFound
from helix_sessions.models import Feedback, Session
from helix_sessions.store import SessionStore

pytestmark = pytest.mark.django_db

TALK = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "hi"},
    {"role": "user", "content": "more"},
    {"role": "assistant", "content": "gladly"},
]


@pytest.fixture(autouse=True)
def _talk(store: SessionStore) -> None:
    store.create_session("s", agent_type="a")
    store.append_messages("s", TALK)


def given(store: SessionStore) -> list[tuple[int, str, str | None, str]]:
    return [(each.position, each.rating, each.comment, each.by) for each in store.list_feedback("s")]


def test_a_thumb_is_kept_and_replaced_and_taken_back(store: SessionStore):
    version = store.load_state("s").version
    kept = store.give_feedback("s", 1, "up", comment="Right.", by="7")
    assert kept is not None
    assert (kept.position, kept.rating, kept.comment, kept.by) == (1, "up", "Right.", "7")
    store.give_feedback("s", 1, "down", by="8")
    assert given(store) == [(1, "up", "Right.", "7"), (1, "down", None, "8")]
    store.give_feedback("s", 1, "down", by="7")
    assert given(store) == [(1, "down", None, "7"), (1, "down", None, "8")]
    assert store.give_feedback("s", 1, None, by="7") is None
    assert given(store) == [(1, "down", None, "8")]
    events = store.get_events("s", types=["feedback_given"])
    assert [event.data["rating"] for event in events] == ["up", "down", "down", None]
    assert store.load_state("s").version == version


def test_repeating_changes_nothing(store: SessionStore):
    for _ in range(2):
        store.give_feedback("s", 1, "up", comment="Right.", by="7")
        store.give_feedback("s", 3, None, by="7")
    assert len(store.get_events("s", types=["feedback_given"])) == 1


def test_it_stays_with_its_message(store: SessionStore):
    store.give_feedback("s", 3, "down", by="7")
    store.truncate_messages("s", 2)
    store.append_messages("s", TALK[2:])
    assert given(store) == [(3, "down", None, "7")]
    store.give_feedback("s", 3, "up", by="7")
    assert given(store) == [(3, "down", None, "7"), (3, "up", None, "7")]


def test_what_is_refused(store: SessionStore):
    for error, call in (
        (SessionNotFound, lambda: store.give_feedback("absent", 1, "up")),
        (SessionNotFound, lambda: store.list_feedback("absent")),
        (NotFound, lambda: store.give_feedback("s", 9, "up")),
        (InvalidInput, lambda: store.give_feedback("s", 0, "up")),
        (InvalidInput, lambda: store.give_feedback("s", -1, "up")),
        (InvalidInput, lambda: store.give_feedback("s", 1, "sideways")),  # type: ignore[arg-type]
        (InvalidInput, lambda: store.give_feedback("s", 1, "up", comment="x" * 2001)),
    ):
        with pytest.raises(error):
            call()
    assert given(store) == []


def test_it_goes_with_the_session_and_not_with_a_branch(store: SessionStore):
    store.give_feedback("s", 1, "up", by="7")
    store.clone_session("s", "branch")
    assert store.list_feedback("branch") == []
    file = StringIO()
    store.export_sessions(file, session_ids=["s"])
    store.import_sessions(file.getvalue().splitlines(keepends=True), on_collision="renew")
    imported = Session.objects.exclude(session_id__in=["s", "branch"]).get().session_id
    assert [each.rating for each in store.list_feedback(imported)] == ["up"]
    store.delete_session("s")
    assert not Feedback.objects.filter(session_id="s").exists()
