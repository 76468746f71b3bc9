"""A pooler that loses its server may answer a statement twice, which the driver calls an internal error."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import InternalError, OperationalError, connection

from helix_sessions.exceptions import StoreUnavailable
from helix_sessions.store import SessionStore
from helix_sessions.store.engine.dialect import table_by_table
from tests.store.statements import MESSAGE, needs_memory

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _on_postgresql(engine: str) -> None:
    if engine != "postgresql":
        pytest.skip("about PostgreSQL")


def answered_twice(beginning: str) -> Any:
    """Statements that begin so are answered twice."""

    def garble(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if sql.startswith(beginning):
            raise InternalError(*GARBLED.args) from GARBLED
        return execute(sql, *rest)

    return connection.execute_wrapper(garble)


GARBLED = psycopg.InternalError("received 2 results from command 'BEGIN'")


def test_inside_a_transaction_nothing_was_written(store: SessionStore) -> None:
    store.create_session("s", agent_type="agent")
    with table_by_table(), answered_twice("SELECT"), pytest.raises(StoreUnavailable):
        store.append_messages("s", [MESSAGE])
    assert store.get_message_count("s") == 0
    store.append_messages("s", [MESSAGE])


@pytest.mark.one_machine("a write is several statements there")
def test_of_a_write_in_one_statement_the_outcome_is_unknown(store: SessionStore) -> None:
    needs_memory()
    store.create_session("s", agent_type="agent")
    store.append_messages("s", [MESSAGE])
    with answered_twice("WITH"), pytest.raises(OperationalError):
        store.append_messages("s", [MESSAGE])
    store.append_messages("s", [MESSAGE])
    assert store.get_message_count("s") == 2
