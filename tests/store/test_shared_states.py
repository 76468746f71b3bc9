"""What several sessions share is written with one of theirs, in one transaction and one order of locks."""

from typing import Any

import pytest

from helix_sessions.exceptions import SessionNotFound
from helix_sessions.store import SessionStore
from helix_sessions.store.state.shared_states import share
from tests.contract.calls import USER
from tests.invariants import dump

pytestmark = pytest.mark.django_db(transaction=True)


def test_all_of_it_or_nothing(store: SessionStore) -> None:
    for key in ("a", "a/b", "s"):
        store.create_session(key, agent_type="x")
    shared = {"a": {"n": 1}, "a/b": {"n": 2, "m": 3}}

    assert share(store, lambda: store.append_messages("s", [USER]), shared).message_count == 1
    assert store.load_state("a").custom_state == {"n": 1}
    assert store.load_state("a/b").custom_state == {"n": 2, "m": 3}

    before = dump()
    with pytest.raises(SessionNotFound):
        share(store, lambda: store.append_messages("s", [USER]), {**shared, "A": {"n": 1}})
    assert dump() == before
    with pytest.raises(SessionNotFound):
        share(store, lambda: store.append_messages("unknown", [USER]), shared)
    assert dump() == before


def test_callers_that_share_never_wait_in_a_circle(store: SessionStore, run_threads: Any) -> None:
    keys = ["a", "a/b", "a/c"]
    for key in (*keys, "s0", "s1", "s2"):
        store.create_session(key, agent_type="x")

    def work(index: int) -> None:
        for number in range(20):
            order = keys[index:] + keys[:index] if number % 2 else keys[::-1]
            share(
                store,
                lambda: store.append_messages(f"s{index}", [USER]),
                {key: {f"n{index}": number} for key in order},
            )

    assert run_threads(3, work) == [None] * 3
    assert store.load_state("a").custom_state == {f"n{index}": 19 for index in range(3)}
    assert all(store.get_message_count(f"s{index}") == 20 for index in range(3))
