"""The migration that gives input ids to owners."""

from copy import deepcopy
from traceback import format_exc
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connections
from django.db.migrations.executor import MigrationExecutor

from helix_sessions.exceptions import InputConflict
from helix_sessions.store import SessionStore

pytestmark = pytest.mark.django_db(transaction=True)

BEFORE = ("helix_sessions", "0021_webhooks")


def test_claims_and_receipts_are_kept_both_ways(second: str, run_processes: Any) -> None:
    assert run_processes(1, there_and_back, second) == [""]


def there_and_back(index: int, name: str) -> str:
    """Migrate a database with inputs back and forth; what went wrong."""
    connections.settings["second"] = {**deepcopy(connections.settings["default"]), "NAME": name}
    try:
        _migrate(None)
        store = SessionStore("second")
        users = [get_user_model().objects.db_manager("second").create_user(f"u{n}") for n in range(2)]
        for key, owner in (("a", users[0]), ("b", users[1]), ("c", None)):
            store.create_session(key, agent_type="writer", owner=owner)
        receipts = {key: store.admit_input(key, "hello", input_id=f"of {key}") for key in "abc"}
        _migrate(BEFORE)
        with connections["second"].cursor() as cursor:
            cursor.execute("SELECT input_id, session_id FROM helix_sessions_inputclaim ORDER BY input_id")
            assert cursor.fetchall() == [(f"of {key}", key) for key in "abc"]
        _migrate(None)
        for key, receipt in receipts.items():
            assert store.admit_input(key, "hello", input_id=f"of {key}") == receipt, key
        store.create_session("a too", agent_type="writer", owner=users[0])
        with pytest.raises(InputConflict):
            store.admit_input("a too", "hello", input_id="of a")
        store.admit_input("a too", "hello", input_id="of b")
    except Exception:
        return format_exc()
    finally:
        connections["second"].close()
    return ""


def _migrate(target: tuple[str, str] | None) -> None:
    executor = MigrationExecutor(connections["second"])
    executor.migrate(executor.loader.graph.leaf_nodes() if target is None else [target])
