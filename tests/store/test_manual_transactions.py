"""A caller that manages its transactions by hand, with Django's autocommit switched off or past Django."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from tests.contract.calls import KEEPING, MESSAGE_EVENT, RAISING
from tests.store.statements import MESSAGE, assert_gapless

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def by_hand(store: SessionStore) -> Any:
    """Autocommit off, while the connection has a row that it wrote last."""
    store.create_session("s", agent_type="agent")
    store.append_messages("s", [MESSAGE])
    transaction.set_autocommit(False)
    yield
    transaction.rollback()
    transaction.set_autocommit(True)


def test_what_is_committed_is_there(store: SessionStore, by_hand: None):
    store.append_messages("s", [MESSAGE])
    store.append_messages("s", [MESSAGE])
    transaction.commit()
    transaction.rollback()
    assert store.get_message_count("s") == 3
    assert_gapless(store)


def test_what_is_rolled_back_is_not(store: SessionStore, by_hand: None):
    for again in range(2):
        store.append_messages("s", [MESSAGE])
        store.append_messages("s", [MESSAGE])
        transaction.rollback()
        assert store.get_message_count("s") == 1, again
        transaction.rollback()
    transaction.set_autocommit(True)
    store.append_messages("s", [MESSAGE])
    store.append_messages("s", [MESSAGE])
    assert store.get_message_count("s") == 3
    assert_gapless(store)


def test_every_call_joins_it(store: SessionStore, by_hand: None):
    for number, call in enumerate([*RAISING, MESSAGE_EVENT, *KEEPING]):
        key = f"{number} {call}"
        store.create_session(key, agent_type="agent")
        call.arrange(store, key)
        transaction.commit()
        before = Session.objects.get(session_id=key).version
        transaction.rollback()
        call.act(store, key)
        assert connection.get_autocommit() is False, key
        transaction.rollback()
        assert Session.objects.get(session_id=key).version == before, key
        transaction.rollback()


def test_what_follows_a_commit_waits_for_it(
    store: SessionStore, by_hand: None, settings: Any, monkeypatch: pytest.MonkeyPatch
):
    woken: list[str] = []
    monkeypatch.setattr("helix_sessions.runtime.scheduling.wake_session", lambda key, **_: woken.append(key))
    store.admit_input("s", "lost")
    transaction.rollback()
    store.admit_input("s", "kept")
    assert woken == []
    transaction.commit()
    transaction.set_autocommit(True)
    assert woken == ["s"]
    assert [receipt.prompt for receipt in store.list_inputs("s")] == ["kept"]


def begin(act: Callable[[], Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        try:
            act()
        finally:
            cursor.execute("ROLLBACK")


def test_a_transaction_that_django_does_not_know_is_refused(store: SessionStore):
    """It cannot be joined, and nothing is written outside of it either."""
    store.create_session("s", agent_type="agent")
    store.append_messages("s", [MESSAGE])
    for call in (
        lambda: store.append_messages("s", [MESSAGE]),
        lambda: store.admit_input("s", "hello"),
        lambda: store.patch_metadata("s", {"a": 1}),
        lambda: store.create_session("t", agent_type="agent"),
    ):
        with pytest.raises(HelixSessionsError, match="atomic"):
            begin(call)
    assert store.get_message_count("s") == 1
    store.append_messages("s", [MESSAGE])
    assert not store.session_exists("t")
    assert_gapless(store)
