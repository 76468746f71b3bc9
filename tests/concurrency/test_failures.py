"""A failure before or after any statement of a write leaves nothing of it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from helix_sessions.store import SessionStore
from helix_sessions.store.engine.dialect import dialect_of
from tests.concurrency.calls import CALLS, each_call, prepare
from tests.concurrency.flushes import begin, flushed
from tests.invariants import assert_invariants, dump

pytestmark = pytest.mark.django_db(transaction=True)


class Injected(OperationalError):
    """Something broke that has nothing to do with us."""


class FailAt:
    """An execute wrapper that raises instead of executing the `number`-th statement."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.statements: list[str] = []

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        self.statements.append(sql)
        if len(self.statements) == self.number:
            raise Injected(sql)
        return execute(sql, params, many, context)


def fail_everywhere(call: Callable[[], Any], flush_way: str) -> int:
    """Let the call fail at every statement, comparing all tables; then let it through.

    Returns at how many points it failed.
    """
    before = dump()
    dialect_of(connection)  # asks the database once, and takes no answer for none
    number = 1
    while True:
        injector = FailAt(number)
        begin(flush_way)
        try:
            with connection.execute_wrapper(injector):
                call()
        except Injected:
            assert dump() == before, f"something was left after {injector.statements[-1]}"
            number += 1
        else:
            assert len(injector.statements) == number - 1
            assert dump() != before
            return number - 1


class TestEveryPoint:
    def test_of_every_call(self, store: SessionStore, flush_way: str):
        for name, call in each_call(store):
            assert fail_everywhere(call, flush_way) >= 1, name
            if store.session_exists("s"):
                assert_invariants("s")

    def test_of_a_call_without_anything_staged(self, store: SessionStore, flush_way: str):
        """These may be decided on a row that is remembered."""
        names = [
            "save_state_and_promote_staging",
            "append_messages",
            "append_messages, many",
            "update_status",
            "compare_and_set_status",
            "increment_step_count",
            "emit_event",
            "emit_event, message",
        ]
        for large in (False, True):
            for name, call in each_call(store, *names, large=large):
                store.discard_staging("s")
                assert fail_everywhere(call, flush_way) >= 1, name
                assert_invariants("s")

    def test_of_a_call_with_a_large_state(self, store: SessionStore, flush_way: str):
        names = ["save_state_and_promote_staging", "save_state", "merge_custom_state", "promote_staging"]
        for name, call in each_call(store, *names, large=True):
            assert fail_everywhere(call, flush_way) >= 1, name
            assert_invariants("s")

    def test_of_the_commit_itself(self, store: SessionStore, monkeypatch: pytest.MonkeyPatch):
        def fail() -> None:
            raise Injected("COMMIT")

        for name, call in each_call(store, *CALLS):  # others may be one statement, which is its own commit
            begin("under the lock")
            before = dump()
            with monkeypatch.context() as patch, flushed("under the lock"):
                patch.setattr(connection, "commit", fail)
                with pytest.raises(Injected):
                    call()
            assert dump() == before, name
            call()
            assert dump() != before, name

    def test_of_a_creation(self, store: SessionStore, flush_way: str):
        def create() -> None:
            store.create_session("s", agent_type="agent", custom_state={"a": 1})

        least = 1 if dialect_of(connection).creates_in_one_statement else 2
        assert fail_everywhere(create, flush_way) >= least
        assert_invariants("s")

    def test_in_a_transaction_of_the_caller(self, store: SessionStore, flush_way: str):
        """The caller catches the failure and goes on: its own work stays, ours is gone."""
        prepare(store)
        number = 0
        failed = True
        while failed:
            number += 1
            with transaction.atomic():
                store.increment_step_count("child")
                between = dump()
                try:
                    with connection.execute_wrapper(FailAt(number)):
                        CALLS["save_state_and_promote_staging"](store)
                except Injected:
                    assert dump() == between
                else:
                    failed = False
        assert number > 4
        assert store.load_state("child").step_count == number
        assert_invariants("s")
        assert_invariants("child")
