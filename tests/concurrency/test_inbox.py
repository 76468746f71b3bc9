"""Many processes at one inbox: each input is admitted once, promoted once, and driven by one owner."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from helix_sessions.exceptions import Fenced, InputConflict, LeaseHeld
from helix_sessions.store import SessionStore
from helix_sessions.store.inbox import inbox
from tests.invariants import assert_invariants
from tests.parallel import run_threads

pytestmark = pytest.mark.django_db(transaction=True)


def admit_everything(index: int) -> list[str]:
    """Each process admits the same ten inputs, and ten of its own."""
    store = SessionStore()
    receipts = [store.admit_input("s", f"shared {n}", input_id=f"shared-{n}") for n in range(10)]
    receipts += [store.admit_input("s", f"own {n}", input_id=f"own-{index}-{n}") for n in range(10)]
    return [f"{receipt.input_id}@{receipt.admitted_seq}" for receipt in receipts]


def promote_everything(index: int) -> list[str]:
    store = SessionStore()
    promoted: list[str] = []
    while True:
        some = store.promote_inputs("s", "queue")
        if not some and not store.list_inputs("s"):
            return promoted
        promoted += [receipt.input_id for receipt in some]


def claim(index: int) -> str:
    store = SessionStore()
    won = 0
    for n in range(20):
        try:
            store.admit_input(f"s{index}", "hello", input_id=f"contested-{n}")
            won += 1
        except InputConflict:
            pass
    return str(won)


def test_processes_admit_the_same_inputs(store: SessionStore, run_processes) -> None:
    store.create_session("s", agent_type="writer")
    outcomes = run_processes(3, admit_everything)
    assert all(isinstance(outcome, list) for outcome in outcomes), outcomes
    receipts = store.list_inputs("s")
    assert len(receipts) == 40
    known = {f"{receipt.input_id}@{receipt.admitted_seq}" for receipt in receipts}
    assert {name for outcome in outcomes for name in outcome} == known
    assert_invariants("s")


def test_an_id_is_claimed_by_one_session(store: SessionStore, run_processes) -> None:
    for index in range(3):
        store.create_session(f"s{index}", agent_type="writer")
    outcomes = run_processes(3, claim)
    assert sum(map(int, outcomes)) == 20, outcomes
    assert sum(len(store.list_inputs(f"s{index}")) for index in range(3)) == 20


def test_processes_promote_each_input_once_and_in_order(store: SessionStore, run_processes) -> None:
    store.create_session("s", agent_type="writer")
    for n in range(30):
        store.admit_input("s", "hello", input_id=f"i{n:02}", delivery="queue")
    outcomes = run_processes(3, promote_everything)
    assert sorted(name for outcome in outcomes for name in outcome) == [f"i{n:02}" for n in range(30)]
    assert [message["id"] for message in store.get_messages("s").messages] == [f"i{n:02}" for n in range(30)]
    assert_invariants("s")


def test_an_input_that_is_delivered_otherwise_meanwhile_is_promoted_as_that(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for steers gets none that somebody has put into the queue by then, and the other way."""
    store.create_session("s", agent_type="writer")
    for name, delivery in (("q1", "queue"), ("q2", "queue"), ("s1", "steer"), ("s2", "steer")):
        store.admit_input("s", name, input_id=name, delivery=delivery)
    others: dict[str, Callable[[], Any]] = {
        "q1": lambda: store.set_delivery("s", "q1", "steer"),
        "s1": lambda: store.set_delivery("s", "s1", "queue"),
        "s2": lambda: store.cancel_input("s", "s2"),
    }
    promote = inbox._promote

    def promote_after_others(store: SessionStore, key: str, input_id: str, *arguments: Any) -> Any:
        """Between the look at the inbox and the transaction of each input another caller acts."""
        if input_id in others:
            run_threads(1, lambda _: others[input_id]())
        return promote(store, key, input_id, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(inbox, "_promote", promote_after_others)
        assert [receipt.input_id for receipt in store.promote_inputs("s", "queue")] == ["q2"]
    assert [(receipt.input_id, receipt.delivery) for receipt in store.list_inputs("s")] == [
        ("q1", "steer"),
        ("s1", "queue"),
    ]
    assert [receipt.input_id for receipt in store.promote_inputs("s", "queue")] == ["s1", "q1"]
    assert_invariants("s")


def test_one_owner_wins_the_lease(store: SessionStore) -> None:
    store.create_session("s", agent_type="writer")
    outcomes = run_threads(8, lambda index: SessionStore().acquire_lease("s", f"owner-{index}", 30))
    leases = [outcome for outcome in outcomes if not isinstance(outcome, Exception)]
    assert [lease.fence for lease in leases] == [1]
    assert all(isinstance(outcome, LeaseHeld) for outcome in outcomes if outcome not in leases)


def test_owners_that_lose_their_lease_write_nothing_after_the_next(store: SessionStore) -> None:
    """Leases that are over at once: owners push each other out all the time, and write all the time."""
    store.create_session("s", agent_type="writer")
    together = threading.Barrier(4, timeout=60)

    def drive(index: int) -> None:
        mine = SessionStore()
        for turn in range(15):
            together.wait()
            lease = mine.acquire_lease("s", f"owner-{index}", 0)
            fenced = mine.fenced(lease)
            for _ in range(4):
                try:
                    fenced.append_messages("s", [{"role": "user", "fence": lease.fence, "content": turn}])
                except Fenced:
                    break

    assert run_threads(4, drive) == [None] * 4
    fences = [message["fence"] for message in store.get_messages("s").messages]
    assert fences == sorted(fences)
    assert len(set(fences)) > 4
    assert_invariants("s")
