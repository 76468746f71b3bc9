"""During a deployment processes of two releases share one schema, and a deployment may be taken back."""

from copy import deepcopy
from traceback import format_exc
from typing import Any

import pytest
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from helix_sessions.store import SessionStore

pytestmark = pytest.mark.django_db(transaction=True)

RELEASED = ("helix_sessions", "0016_write_marks_and_lease_tokens")
"""The schema of the release before."""


def old_models(using: Any = connection) -> Any:
    """The models of the release before, as its code has them."""
    return MigrationExecutor(using).loader.project_state(RELEASED).apps


def test_what_the_release_before_reads_and_writes_is_there() -> None:
    """No column of its tables is gone, and none that is new must be given."""
    with connection.cursor() as cursor:
        for model in old_models().get_app_config("helix_sessions").get_models():
            table = model._meta.db_table
            columns = {one.name: one for one in connection.introspection.get_table_description(cursor, table)}
            known = {field.column for field in model._meta.concrete_fields if field.column}
            assert known <= set(columns), f"{table} has lost {known - set(columns)}"
            for name in set(columns) - known:
                given = columns[name].null_ok or columns[name].default is not None
                assert given, f"{table}.{name} must be given, and the release before does not know it"


def test_both_releases_write_one_session() -> None:
    sessions = old_models().get_model("helix_sessions", "Session").objects
    now = timezone.now()
    times = dict.fromkeys(("created_at", "updated_at", "status_since"), now)
    sessions.create(session_id="s", root_session_id="s", agent_type="writer", stream_id="s", **times)
    store = SessionStore()
    store.append_messages("s", [{"role": "user", "content": "from the new one"}])
    assert sessions.get(pk="s").message_count == 1
    sessions.filter(pk="s").update(step_count=4)
    assert store.load_state("s").step_count == 4


def test_a_deployment_is_taken_back_and_made_again(second: str, run_processes: Any) -> None:
    assert run_processes(1, there_and_back, second) == [""]


def there_and_back(index: int, name: str) -> str:
    """Migrate a database with sessions back to the release before and forth; what went wrong."""
    connections.settings["second"] = {**deepcopy(connections.settings["default"]), "NAME": name}
    try:
        _migrate(None)
        store = SessionStore("second")
        store.create_session("s", agent_type="writer", custom_state={"b": 1, "a": [2]})
        store.append_messages("s", [{"role": "user", "content": "hello"}])
        store.admit_input("s", "and again", input_id="i")
        messages, events = store.get_messages("s"), store.get_events("s")
        _migrate(RELEASED)
        old = old_models(connections["second"]).get_model("helix_sessions", "Session")
        assert old.objects.using("second").get(pk="s").message_count == 1
        _migrate(None)
        assert (store.get_messages("s"), store.get_events("s")) == (messages, events)
        assert [session.session_id for session in store.list_runnable()] == ["s"]
        assert list(store.examine_sessions()) == []
    except Exception:
        return format_exc()
    finally:
        connections["second"].close()
    return ""


def _migrate(target: tuple[str, str] | None) -> None:
    executor = MigrationExecutor(connections["second"])
    executor.migrate(executor.loader.graph.leaf_nodes() if target is None else [target])
