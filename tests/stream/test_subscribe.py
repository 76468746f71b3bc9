"""Reading along in a thread."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from time import monotonic
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction

from helix_sessions.exceptions import InvalidInput, SessionNotFound, StoreUnavailable
from helix_sessions.store import SessionStore
from helix_sessions.stream.hub import hub
from helix_sessions.types import EventRecord, Fragment

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("slow_polls")]


@pytest.fixture
def session(store: SessionStore) -> str:
    store.create_session("s", agent_type="a")
    return "s"


@contextmanager
def meanwhile(function: Any) -> Iterator[threading.Thread]:
    """Run a function in another thread, with its own connection, for the length of the block."""

    def call() -> None:
        try:
            function()
        finally:
            connections.close_all()

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(30)
        assert not thread.is_alive()


def numbers(events: Any) -> list[int]:
    return [event.data["n"] for event in events]


def emit(store: SessionStore, *values: int) -> None:
    for n in values:
        store.emit_event("s", "ticked", {"n": n})


def undone(store: SessionStore, *values: int) -> None:
    """Emit in a transaction, or a savepoint, that is rolled back."""
    with transaction.atomic():
        emit(store, *values)
        transaction.set_rollback(True)


def test_what_was_and_then_what_comes(store: SessionStore, session: str) -> None:
    emit(store, 1, 2)

    with store.subscribe(session, after=1) as tail, meanwhile(lambda: emit(store, *range(3, 60))):
        assert numbers(islice(tail, 59)) == list(range(1, 60))


def test_events_are_those_of_get_events(store: SessionStore, session: str) -> None:
    store.append_messages(session, [{"role": "user", "content": "hé\u0000"}])
    store.create_run(session)
    emit(store, 1)

    with store.subscribe(session, after=0) as tail:
        assert list(islice(tail, 4)) == store.get_events(session)


def test_more_than_a_batch_comes_whole(store: SessionStore, session: str) -> None:
    store.append_messages(session, [{"role": "user", "content": n} for n in range(450)])

    with store.subscribe(session, after=0) as tail:
        assert [event.seq for event in islice(tail, 451)] == list(range(1, 452))


def test_without_a_place_it_starts_at_the_head_as_of_the_call(store: SessionStore, session: str) -> None:
    emit(store, 1)
    with store.subscribe(session) as tail:
        emit(store, 2)

        assert numbers([next(tail)]) == [2]


def test_an_unknown_session_is_reported_by_the_call(store: SessionStore) -> None:
    with pytest.raises(SessionNotFound):
        store.subscribe("nobody")
    with pytest.raises(InvalidInput):
        store.subscribe("s", after=-1)


def test_it_ends_when_the_session_is_deleted(store: SessionStore, session: str) -> None:
    with store.subscribe(session, after=1) as tail, meanwhile(lambda: store.delete_session(session)):
        assert list(tail) == []


def test_events_before_the_deletion_need_not_be_seen_but_a_new_session_never_is(
    store: SessionStore, session: str
) -> None:
    with store.subscribe(session, after=1) as tail:
        store.delete_session(session)
        store.create_session(session, agent_type="another")
        emit(store, 1, 2, 3)

        assert list(tail) == []


def test_closing_ends_it_in_the_middle_of_a_wait(store: SessionStore, session: str) -> None:
    tail = store.subscribe(session)
    seen: list[Any] = []

    with meanwhile(lambda: seen.extend(tail)) as reader:
        reader.join(0.05)
        tail.close()

    assert seen == []
    assert list(tail) == []


def test_detaching_ends_what_the_process_holds(store: SessionStore, session: str) -> None:
    tail = store.subscribe(session)
    store.detach(session)

    assert list(tail) == []
    assert store.get_events(session) != []
    with pytest.raises(SessionNotFound):
        store.detach("nobody")


def test_a_forgotten_subscription_leaves(store: SessionStore, session: str) -> None:
    tail = store.subscribe(session)
    assert hub.watched("default") == 1

    del tail
    gc.collect()

    assert hub.watched("default") == 0


def test_a_callers_transaction_is_seen_when_it_commits(store: SessionStore, session: str) -> None:
    with store.subscribe(session) as tail:
        with transaction.atomic():
            emit(store, 1)
            undone(store, 2)
            emit(store, 3)
            assert tail_in_another_thread(tail, 0.05) == []

        assert numbers(islice(tail, 2)) == [1, 3]


def tail_in_another_thread(tail: Any, timeout: float) -> Any:
    found: list[Any] = []
    with meanwhile(lambda: found.extend(tail.some(timeout))):
        pass
    return found


def test_a_write_after_a_savepoint_that_was_undone_is_announced(store: SessionStore, session: str) -> None:
    with store.subscribe(session) as tail:
        with transaction.atomic():
            undone(store, 1)
            with transaction.atomic():
                emit(store, 2)

        assert numbers([next(tail)]) == [2]


def test_a_transaction_wakes_once_for_each_session(store: SessionStore, session: str) -> None:
    store.create_session("t", agent_type="a")
    with transaction.atomic():
        emit(store, 1, 2, 3)
        store.emit_event("t", "ticked", {"n": 1})
        assert len(connection.run_on_commit) == 1


def test_nothing_is_announced_that_did_not_happen(store: SessionStore, session: str) -> None:
    with store.subscribe(session) as tail:
        undone(store, 1)

        assert tail.some(0.05) == []


def test_two_subscriptions_do_not_share_what_can_be_changed(store: SessionStore, session: str) -> None:
    with store.subscribe(session) as one, store.subscribe(session) as other:
        emit(store, 1)
        next(one).data["n"] = 99

        assert next(other).data == {"n": 1}


def test_fragments_come_in_their_place_and_are_not_stored(store: SessionStore, session: str) -> None:
    with store.subscribe(session, fragments=True) as tail, store.subscribe(session) as plain:
        store.publish_fragment(session, {"text": "Hel"})
        store.publish_fragment(session, {"text": "lo"})
        emit(store, 1)
        store.publish_fragment(session, ["next"])
        seen = list(islice(tail, 4))

        assert [item.data for item in seen] == [{"text": "Hel"}, {"text": "lo"}, {"n": 1}, ["next"]]
        assert [type(item) for item in seen] == [Fragment, Fragment, EventRecord, Fragment]
        assert numbers([next(plain)]) == [1]
    assert [event.type for event in store.get_events(session)] == ["session_started", "ticked"]


def test_a_fragment_after_an_event_that_was_not_poked_makes_its_reader_look(
    store: SessionStore, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.subscribe(session, after=1, fragments=True) as tail:
        assert tail.some(0.2) == []  # until the poke of the creation has come, too: pokes are sent together
        with monkeypatch.context() as patch:
            patch.setattr(hub, "announce", lambda *_: None)  # the poke is lost
            store.emit_event(session, "ticked", 1)
            assert tail.some(0.01) == []
        store.publish_fragment(session, "after it")
        assert [next(tail).data for _ in range(2)] == [1, "after it"]


def test_fragments_are_dropped_first(store: SessionStore, session: str) -> None:
    with store.subscribe(session, fragments=True) as tail:
        for n in range(2_000):
            store.publish_fragment(session, n)
        emit(store, 1)
        items = tail.some(5) or []

        assert len(items) < 1_000
        assert items[-1].seq == 2  # type: ignore[union-attr]


def test_a_fragment_is_a_document_for_a_known_session(store: SessionStore, session: str) -> None:
    with pytest.raises(SessionNotFound):
        store.publish_fragment("nobody", {})
    with pytest.raises(ValueError, match="NaN"):
        store.publish_fragment(session, float("nan"))


def test_in_a_transaction_that_broke_it_is_told_at_once(
    store: SessionStore, session: str, engine: str
) -> None:
    """Nobody could read on in the caller's transaction with another connection."""
    if engine != "postgresql":
        pytest.skip("An SQLite file does not hang up.")
    began = monotonic()
    with pytest.raises((StoreUnavailable, OperationalError)), transaction.atomic():
        _subscribe_after_a_loss(store, session)

    assert monotonic() - began < 10
    assert store.session_exists(session)


def _subscribe_after_a_loss(store: SessionStore, session: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [pid] = cursor.fetchone()
    with meanwhile(lambda: _terminate(pid)):
        pass
    store.subscribe(session)


def _terminate(pid: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
