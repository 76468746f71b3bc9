"""A transaction that took longer than the server allows: a clear error, and nothing of it is written."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from helix_sessions.exceptions import StoreUnavailable
from helix_sessions.store import SessionStore
from tests.bad_days.test_databases import READS, WRITES, option
from tests.concurrency.calls import prepare
from tests.invariants import assert_invariants
from tests.parallel import run_threads

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("name", ["idle_in_transaction_session_timeout", "transaction_timeout"])
def test_a_transaction_of_the_caller_that_the_server_ended(store: SessionStore, engine: str, name: str):
    if engine != "postgresql" or not _has_setting(name):
        pytest.skip("The server has no such timeout.")
    prepare(store)
    for call in (WRITES["increment_step_count"], READS["load_state"]):
        with option(options=f"-c {name}=50"), pytest.raises(StoreUnavailable):
            _in_one_transaction(store, call)
        assert store.load_state("s").step_count == 0
    assert store.increment_step_count("s") == 1
    assert_invariants("s")


@transaction.atomic
def _in_one_transaction(store: SessionStore, call: Callable[[SessionStore], Any]) -> None:
    store.increment_step_count("s")
    _wait_until_gone(int(connection.connection.info.backend_pid))
    call(store)


def _has_setting(name: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_settings WHERE name = %s", [name])
        return cursor.fetchone() is not None


def _wait_until_gone(backend: int) -> None:
    def look() -> None:
        deadline = time.monotonic() + 30
        with connection.cursor() as cursor:
            while cursor.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [backend]).fetchone():
                assert time.monotonic() < deadline
                time.sleep(0.01)

    [outcome] = run_threads(1, lambda _: look())
    assert outcome is None
