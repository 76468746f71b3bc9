"""Notes: documents under keys, kept with a session."""

import io
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from helix_sessions.exceptions import InvalidDocument, InvalidInput, SessionNotFound, StaleState
from helix_sessions.store import SessionStore
from helix_sessions.types import Note
from tests.contract.calls import ASSISTANT, USER
from tests.rows import each

pytestmark = pytest.mark.django_db(transaction=True)

EXACT = {"b": [1, None, 10**30, "\u0000 é"], "a": {}}


@pytest.fixture
def session(store: SessionStore) -> str:
    store.create_session("s", agent_type="writer")
    return "s"


def kept(store: SessionStore, session: str = "s", **options: Any) -> dict[str, Any]:
    return {note.key: note.document for note in store.get_notes(session, **options)}


def test_a_note_comes_back_exactly(store: SessionStore, session: str) -> None:
    store.put_notes(session, {"k": EXACT, "null": None}, run_id="r")

    [found, null] = store.get_notes(session)
    assert found == Note(session_id="s", key="k", document=EXACT, run_id="r")
    assert list(found.document) == ["b", "a"]
    assert null.document is None


def test_a_note_replaces_what_is_there(store: SessionStore, session: str) -> None:
    store.put_notes(session, {"a": 1, "b": 1}, run_id="first")
    put = store.put_notes(session, {"b": 2, "c": 2}, append_messages=[USER], expected_version=2)
    store.put_notes(session, {"a": 3, "d": 3}, quietly=True)

    assert kept(store) == {"a": 3, "b": 2, "c": 2, "d": 3}
    assert put.version == store.load_state(session).version == 3
    assert store.get_messages(session).messages == [USER]
    assert [note.key for note in store.find_notes(run_id="first")] == []


def test_notes_of_several_runs_are_one_write(store: SessionStore, session: str) -> None:
    store.put_notes(
        session, {"a": 1, "b": 1, "c": 1}, run_id="new", run_ids={"a": "old", "b": None, "x": "y"}
    )

    found = {note.key: note.run_id for note in store.get_notes(session)}
    assert found == {"a": "old", "b": None, "c": "new"}


def test_messages_and_notes_are_one_write(store: SessionStore, session: str) -> None:
    put = store.put_notes(session, {"a": 1}, append_messages=[USER, ASSISTANT])

    assert (put.first_position, put.message_count, put.version) == (0, 2, 2)
    types = [event.type for event in store.get_events(session)]
    assert types == ["session_started", "user_message", "assistant_message"]
    with pytest.raises(StaleState):
        store.put_notes(session, {"a": 2}, append_messages=[USER], expected_version=1)
    assert kept(store) == {"a": 1}
    assert store.get_message_count(session) == 2


def test_notes_are_found_by_key_and_by_the_beginning_of_one(store: SessionStore, session: str) -> None:
    store.put_notes(session, {key: key for key in ("c|1", "c|2", "c|10", "w|1", "c")})

    assert list(kept(store)) == ["c", "c|1", "c|10", "c|2", "w|1"]
    assert list(kept(store, prefix="c|")) == ["c|1", "c|10", "c|2"]
    assert list(kept(store, prefix="c|", last_first=True, limit=2)) == ["c|2", "c|10"]
    assert list(kept(store, keys=["w|1", "none", "c"])) == ["c", "w|1"]
    assert list(kept(store, keys=["w|1", "c"], last_first=True, limit=1)) == ["w|1"]
    assert kept(store, keys=[]) == {}
    assert kept(store, limit=0) == {}
    assert len(kept(store, keys=[str(n) for n in range(1200)] + ["c"])) == 1


def test_removing_counts_what_was_there(store: SessionStore, session: str) -> None:
    store.put_notes(session, {str(number): number for number in range(30)})

    assert store.remove_notes(session, [*map(str, range(29)), "none"]) == 29
    assert kept(store) == {"29": 29}
    assert store.get_events(session)[-1].data == {"count": 29}
    with pytest.raises(StaleState):
        store.remove_notes(session, ["29"], expected_version=1)


def test_notes_of_a_run_are_found_in_every_session(store: SessionStore, session: str) -> None:
    user = get_user_model().objects.create_user("ada")
    store.create_session("mine", agent_type="writer", owner=user)
    store.put_notes("mine", {"b": 1}, run_id="r")
    store.put_notes(session, {"a": 1, "b": 2}, run_id="r")
    store.put_notes(session, {"c": 3})

    found = [(note.session_id, note.key) for note in store.find_notes(run_id="r")]
    assert found == [("mine", "b"), ("s", "a"), ("s", "b")]
    mine = SessionStore(owned_by=user).find_notes(run_id="r")
    assert [note.session_id for note in mine] == ["mine"]


def test_notes_go_where_the_session_goes(store: SessionStore, session: str) -> None:
    store.put_notes(session, {"a": EXACT}, run_id="r", append_messages=[USER])
    checkpoint = store.create_checkpoint(session).checkpoint_id
    store.clone_session(session, "branch")
    store.clone_session(session, "past", checkpoint_id=checkpoint)
    file = io.StringIO()
    store.export_sessions(file, session_ids=[session])
    store.delete_session(session)

    assert kept(store, "branch") == {"a": EXACT}
    assert kept(store, "past") == {}
    with pytest.raises(SessionNotFound):
        store.get_notes(session)
    store.import_sessions(file.getvalue().splitlines(keepends=True))
    assert kept(store) == {"a": EXACT}
    assert store.examine_sessions(deep=True) == []


@each("key", ["", "x" * 256, "\u0000", "a\nb", 1, None, "\ud800"])
def test_a_bad_key(store: SessionStore, session: str, key: Any) -> None:
    with pytest.raises(InvalidInput):
        store.put_notes(session, {key: 1})
    with pytest.raises(InvalidInput):
        store.get_notes(session, keys=[key])
    with pytest.raises(InvalidInput):
        store.remove_notes(session, [key])


def test_other_bad_input(store: SessionStore, session: str) -> None:
    before = store.load_state(session)
    for notes in (None, [], "a", [("a", 1)]):
        with pytest.raises(InvalidInput):
            store.put_notes(session, notes)  # type: ignore[arg-type]
    for document in (float("nan"), {1: 2}, object(), "\ud800"):
        with pytest.raises(InvalidDocument):
            store.put_notes(session, {"a": 1, "b": document})
    loud: list[dict[str, Any]] = [{"append_messages": [USER]}, {"expected_version": 1}]
    for options in loud:
        with pytest.raises(InvalidInput):
            store.put_notes(session, {"a": 1}, quietly=True, **options)
    for run_ids in ("r", [("a", "r")], {"a": ""}, {"a": 1}):
        with pytest.raises(InvalidInput):
            store.put_notes(session, {"a": 1}, run_ids=run_ids)  # type: ignore[arg-type]
    bad: list[dict[str, Any]]
    bad = [
        {"keys": "abc"},
        {"prefix": 1},
        {"limit": -1},
        {"last_first": 1},
        {"keys": 1},
    ]
    for options in bad:
        with pytest.raises(InvalidInput):
            store.get_notes(session, **options)
    with pytest.raises(InvalidInput):
        store.find_notes(run_id="")
    assert store.load_state(session) == before
    assert kept(store) == {}


def test_of_many_writers_of_one_key_one_is_last(store: SessionStore, session: str, run_threads: Any) -> None:
    done = run_threads(4, lambda index: store.put_notes("s", {"k": index, f"own-{index}": index}))

    assert [type(result).__name__ for result in done] == ["AppendResult"] * 4
    assert store.load_state(session).version == 5
    last = max(done, key=lambda result: result.version)
    assert kept(store)["k"] == done.index(last)
    assert len(kept(store)) == 5
