"""A lock that is not had in time, or a deadlock, is `SessionBusy`; nothing is half written."""

import threading
from collections.abc import Callable

import pytest
from django.db import OperationalError, connection, transaction

from helix_sessions.exceptions import HelixSessionsError, SessionBusy, SessionExists
from helix_sessions.store import SessionStore
from helix_sessions.store.driving.claims import claim_next, claim_session
from tests.concurrency.calls import each_call, prepare
from tests.concurrency.locks import elsewhere, row_held
from tests.concurrency.outcomes import split
from tests.invariants import assert_invariants, dump
from tests.parallel import run_threads

pytestmark = pytest.mark.django_db(transaction=True)

MESSAGE = {"role": "user", "content": "hello"}


@pytest.mark.usefixtures("impatient")
class TestTimeout:
    def test_every_write_gives_up(self, store: SessionStore):
        for name, call in each_call(store):
            before = dump()
            with row_held("s"), pytest.raises(SessionBusy):
                call()
            assert dump() == before, name
            call()
            assert dump() != before, name

    def test_a_write_on_a_row_that_is_remembered_gives_up(self, store: SessionStore):
        store.create_session("s", agent_type="agent")
        store.append_messages("s", [MESSAGE])
        with row_held("s"), pytest.raises(SessionBusy):
            store.append_messages("s", [MESSAGE])
        assert store.append_messages("s", [MESSAGE]).message_count == 2

    def test_readers_do_not_wait(self, store: SessionStore):
        prepare(store)
        state = store.load_state("s")
        with row_held("s"):
            assert store.load_state("s") == state
            assert store.get_messages("s").total == state.message_count
            assert store.list_sessions().items[-1].session_id == "s"
            assert store.get_checkpoint("s", "c").checkpoint_id == "c"

    def test_the_creation_of_an_id_that_is_being_created(self, store: SessionStore):
        with (
            elsewhere(lambda: SessionStore().create_session("n", agent_type="agent")),
            pytest.raises(SessionBusy),
        ):
            store.create_session("n", agent_type="agent")
        with pytest.raises(SessionExists):
            store.create_session("n", agent_type="agent")

    def test_a_caller_in_a_transaction_of_its_own_may_go_on(self, store: SessionStore, engine: str):
        store.create_session("s", agent_type="agent")
        store.create_session("t", agent_type="agent")
        if engine == "sqlite":  # a transaction begins only when the lock is had
            with row_held("s"), pytest.raises(OperationalError), transaction.atomic():
                pass
            return
        with row_held("s"), transaction.atomic():
            store.append_messages("t", [MESSAGE])
            with pytest.raises(SessionBusy):
                store.append_messages("s", [MESSAGE])
            store.append_messages("t", [MESSAGE])
        assert (store.get_message_count("s"), store.get_message_count("t")) == (0, 2)
        assert_invariants("s")
        assert_invariants("t")


def test_a_deadlock_is_broken_and_leaves_nothing_half_written(store: SessionStore, engine: str):
    """Two transactions of callers take two sessions in opposite order."""
    for name in "ab":
        store.create_session(name, agent_type="agent")
    both_hold_one = threading.Barrier(2)

    def take_both(n: int) -> int:
        first, second = "ab" if n == 0 else "ba"
        with transaction.atomic():
            store.append_messages(first, [{"role": "user", "content": n}])
            if engine == "postgresql":  # SQLite lets only one transaction write at a time
                both_hold_one.wait(30)
            store.append_messages(second, [{"role": "user", "content": n}])
        return n

    winners, losers = split(run_threads(2, take_both), int)

    assert len(losers) == (1 if engine == "postgresql" else 0)
    assert all(isinstance(error, SessionBusy) for error in losers)
    for name in "ab":
        contents = [message["content"] for message in store.get_messages(name).messages]
        assert sorted(contents) == sorted(winners)
        assert_invariants(name)


def test_busy_writers_all_get_their_turn(store: SessionStore):
    """Waiting behind others is no error while it is not too long."""
    store.create_session("s", agent_type="agent")
    with row_held("s"):
        waiting = threading.Barrier(9)

        def append(n: int) -> int:
            waiting.wait(30)
            return store.append_messages("s", [MESSAGE]).message_count

        pool = threading.Thread(target=lambda: outcomes.extend(run_threads(8, append)))
        outcomes: list[int | Exception] = []
        pool.start()
        waiting.wait(30)
    pool.join()
    assert sorted(outcomes, key=str) == list(range(1, 9))


REFUSED: dict[str, Callable[[SessionStore], object]] = {
    "stale": lambda store: store.append_messages("s", [MESSAGE], expected_version=99),
    "unknown": lambda store: store.append_messages("unknown", [MESSAGE]),
    "exists": lambda store: store.create_session("s", agent_type="agent"),
    "exists, with a parent": lambda store: store.create_session(
        "t", agent_type="agent", parent_session_id="s"
    ),
    "unknown parent": lambda store: store.create_session(
        "n", agent_type="agent", parent_session_id="unknown"
    ),
    "exists, cloned": lambda store: store.clone_session("s", "t"),
    "clone of nothing": lambda store: store.clone_session("unknown", "n"),
}


class TestLockTimeoutOfTheCaller:
    """A caller's own `lock_timeout` is left as it was; on SQLite there is none to lose."""

    @pytest.fixture(autouse=True)
    def _only_where_there_is_one(self, engine: str):
        if engine != "postgresql":
            pytest.skip("SQLite has no lock_timeout")

    def test_after_a_write(self, store: SessionStore):
        for name, call in each_call(store):
            with transaction.atomic():
                _execute("SET LOCAL lock_timeout = '4321ms'")
                call()
                assert _lock_timeout() == "4321ms", name
            assert _lock_timeout() == "0", name

    def test_after_a_refusal(self, store: SessionStore):
        prepare(store)
        store.create_session("t", agent_type="agent")
        for name, call in REFUSED.items():
            with transaction.atomic():
                _execute("SET LOCAL lock_timeout = '4321ms'")
                with pytest.raises(HelixSessionsError):
                    call(store)
                assert _lock_timeout() == "4321ms", name

    def test_after_a_claim(self, store: SessionStore):
        for name in ("s", "t"):
            store.create_session(name, agent_type="agent")
            store.admit_input(name, "go")
        with transaction.atomic():
            _execute("SET LOCAL lock_timeout = '4321ms'")
            assert claim_session(store, "s", "worker", 60) is not None
            assert _lock_timeout() == "4321ms"
            assert claim_next(store, "worker", 60) is not None
            assert _lock_timeout() == "4321ms"
        assert _lock_timeout() == "0"
        assert {store.get_occupancy(name).owner for name in ("s", "t")} == {"worker"}

    def test_of_the_connection(self, store: SessionStore):
        _execute("SET lock_timeout = '4321ms'")
        try:
            store.create_session("s", agent_type="agent")
            store.append_messages("s", [MESSAGE])
            store.clone_session("s", "t")
            store.delete_session("s")
            assert _lock_timeout() == "4321ms"
        finally:
            _execute("RESET lock_timeout")


def _execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def _lock_timeout() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        return str(cursor.fetchone()[0])
