"""A row that the connection wrote last is not read again, and a change by anybody else is never missed."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from tests.parallel import run_threads

pytestmark = pytest.mark.django_db(transaction=True)

MESSAGE = {"role": "user", "content": "hello"}


@pytest.fixture(autouse=True)
def written_last(store: SessionStore) -> None:
    store.create_session("s", agent_type="agent")
    store.append_messages("s", [MESSAGE])


def sent_by(call: Callable[[], Any]) -> list[str]:
    """The statements of a call; Django's log of queries would change the way it takes."""
    statements: list[str] = []

    def note(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        statements.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(note):
        call()
    return statements


def reads_the_row(store: SessionStore) -> bool:
    sent = sent_by(lambda: store.append_messages("s", [MESSAGE]))
    return any(sql.startswith("SELECT") and '"helix_sessions_session"' in sql for sql in sent)


def test_it_is_not_read_again(store: SessionStore):
    assert not reads_the_row(store)


def test_a_write_of_another_connection_is_noticed(store: SessionStore):
    run_threads(1, lambda _: store.set_interrupt_flag("s", "stop"))
    assert reads_the_row(store)
    assert store.check_interrupt_flag("s") is not None
    assert store.get_message_count("s") == 2


def test_a_write_of_this_connection_past_the_store_is_noticed(store: SessionStore):
    Session.objects.filter(session_id="s").update(step_count=41)
    assert store.increment_step_count("s") == 42


def test_two_connections_in_turn_lose_nothing(store: SessionStore):
    for _ in range(10):
        store.append_messages("s", [MESSAGE])
        run_threads(1, lambda _: store.append_messages("s", [MESSAGE]))
    assert store.get_message_count("s") == 21
    head = store.load_state("s").head_seq
    assert [event.seq for event in store.get_events("s", limit=100)] == list(range(1, head + 1))


def test_after_a_caller_rolled_back_it_is_read_again(store: SessionStore):
    with transaction.atomic():
        store.append_messages("s", [MESSAGE])
        transaction.set_rollback(True)
    store.append_messages("s", [MESSAGE])
    assert store.get_message_count("s") == 2


def test_all_rows_of_one_write_are_known_by_one_mark(store: SessionStore):
    store.create_session("child", agent_type="agent", parent_session_id="s")
    sent = sent_by(lambda: store.settle_child("child", "completed"))
    assert sum("data_version" in sql for sql in sent) == (connection.vendor == "sqlite")
    assert not reads_the_row(store)
    assert not reads_the_row(store)
