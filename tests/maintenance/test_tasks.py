"""The jobs as background tasks, run by the immediate backend."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from tests.invariants import dump
from tests.maintenance.test_archives import talk
from tests.maintenance.test_retention import old

tasks: Any = pytest.importorskip("helix_sessions.tasks")


def done(task: Any, **arguments: Any) -> Any:
    result = task.enqueue(**arguments)
    assert str(result.status) in ("SUCCESSFUL", "TaskResultStatus.SUCCESSFUL"), result.errors
    return result.return_value


@pytest.mark.django_db(transaction=True)
def test_every_job(store: SessionStore, archive_storage: Path) -> None:
    store.create_session("expired", agent_type="x", expires_at=timezone.now() - timedelta(hours=1))
    old(store, "old")
    talk(store, "long", 10)
    assert done(tasks.cleanup_sessions)["marked"] == 1
    assert done(tasks.cleanup_debris)["stuck"] == []
    assert done(tasks.prune_sessions, older_than_days=30)["sessions"] == 1
    assert done(tasks.prune_audit_trail, older_than_days=30) == {"entries": 0}
    assert done(tasks.archive_long_logs, longer_than=5, keep_events=2)["files"] == 1
    assert done(tasks.examine_sessions, deep=True) == {"errors_left": 0, "findings": []}
    rows = dump()
    written = done(tasks.export_sessions, storage="archives", name="out.jsonl.gz")
    assert (written["sessions"], written["name"]) == (2, "out.jsonl.gz")
    for key in ("expired", "long"):
        store.delete_session(key)
    assert done(tasks.import_sessions, storage="archives", name=written["name"])["sessions"] == 2
    assert {name: len(some) for name, some in dump().items()} == {
        name: len(some) for name, some in rows.items()
    }
    Session.objects.update(user_id="u")
    assert done(tasks.erase_user, user_id="u")["sessions"] == 2
    assert not any(dump().values())
