"""A filled database is migrated to the newest schema while processes of the release before write to it."""

from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from helix_sessions.store import SessionStore
from tests.models.test_rolling_deploys import RELEASED, old_models
from tests.parallel import Worker, run_processes

pytestmark = pytest.mark.django_db(transaction=True)

SESSIONS, MESSAGES, WRITERS = 300, 20, 2


def test_writers_of_the_release_before_go_on(second: str, tmp_path: Path) -> None:
    assert run_processes(1, fill, second) == ["filled"]
    stop = tmp_path / "stop"
    writers = [Worker(write_as_before, f"s{number}", second, stop) for number in range(WRITERS)]
    try:
        for writer in writers:
            writer.wait_until_ready()
            writer.go()
        assert run_processes(1, upgrade, second) == ["upgraded"]
        stop.touch()
        written = [writer.result() for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
    assert all(isinstance(count, int) and count > 0 for count in written), written
    assert run_processes(1, complaints, second, written) == [""]


def know(name: str) -> None:
    connections.settings["second"] = {**deepcopy(connections.settings["default"]), "NAME": name}


def fill(index: int, name: str) -> str:
    """A database of the release before, with sessions."""
    know(name)
    executor = MigrationExecutor(connections["second"])
    executor.migrate([RELEASED])
    models = _Old()
    now = timezone.now()
    times = dict.fromkeys(("created_at", "updated_at", "status_since"), now)
    keys = [f"s{number}" for number in range(SESSIONS)]
    size = {"head_seq": MESSAGES + 1, "message_count": MESSAGES}
    models.sessions.bulk_create(
        [models.Session(session_id=key, agent_type="w", version=1, **size, **times) for key in keys]
    )
    models.events.bulk_create([models.event(key, 1, now) for key in keys])
    for position in range(MESSAGES):
        models.events.bulk_create([models.event(key, position + 2, now, position) for key in keys])
        models.messages.bulk_create([models.message(key, position) for key in keys])
    return "filled"


class _Old:
    """The tables as the release before knows them."""

    def __init__(self) -> None:
        apps = old_models(connections["second"])
        self.Session, self.Event, self.Message = (
            apps.get_model("helix_sessions", name) for name in ("Session", "Event", "Message")
        )
        self.sessions, self.events, self.messages = (
            model.objects.using("second") for model in (self.Session, self.Event, self.Message)
        )

    def event(self, key: str, seq: int, now: Any, position: int | None = None) -> Any:
        kind = "session_started" if position is None else "user_message"
        data: Any = {} if position is None else None
        return self.Event(
            session_id=key, seq=seq, type=kind, data=data, message_position=position, created_at=now
        )

    def message(self, key: str, position: int) -> Any:
        content = {"role": "user", "content": f"message {position}"}
        return self.Message(session_id=key, position=position, seq=position + 2, role="user", content=content)


def write_as_before(key: str, name: str, stop: Path) -> int:
    """Append messages as the release before does, until the file appears; returns how many. A write that is
    refused because it waited for too long is tried again; nothing else may fail."""
    know(name)
    models, done = _Old(), list[int]()
    while not stop.exists():
        with suppress(OperationalError), transaction.atomic(using="second"):
            row = models.sessions.select_for_update().get(pk=key)
            now = timezone.now()
            models.event(key, row.head_seq + 1, now, row.message_count).save(
                using="second", force_insert=True
            )
            models.message(key, row.message_count).save(using="second", force_insert=True)
            models.sessions.filter(pk=key).update(
                head_seq=row.head_seq + 1,
                message_count=row.message_count + 1,
                version=row.version + 1,
                updated_at=now,
            )
            transaction.on_commit(lambda: done.append(1), using="second")
    return len(done)


def upgrade(index: int, name: str) -> str:
    """Migrate, and repeat while a lock is not to be had."""
    know(name)
    deadline = monotonic() + 90
    while True:
        executor = MigrationExecutor(connections["second"])
        try:
            executor.migrate(executor.loader.graph.leaf_nodes())
        except OperationalError:
            if monotonic() > deadline:
                raise
            continue
        return "upgraded"


def complaints(index: int, name: str, written: list[int]) -> str:
    """What is wrong after the upgrade."""
    know(name)
    store = SessionStore("second")
    wrong = []
    for number, count in enumerate(written):
        key = f"s{number}"
        said = [message["content"] for message in store.get_messages(key).messages]
        if said != [f"message {position}" for position in range(MESSAGES + count)]:
            wrong.append(f"{key}: {len(said)} messages, {MESSAGES + count} were written")
        store.append_messages(key, [{"role": "user", "content": "new"}])
    wrong += [f"{index} is missing or not whole" for index in sorted(_declared() - _whole_indexes())]
    return "; ".join(wrong)


def _declared() -> set[str]:
    from helix_sessions.models import Event, Run, Session

    return {index.name for model in (Event, Run, Session) for index in model._meta.indexes}


def _whole_indexes() -> set[str]:
    is_postgres = connection.vendor == "postgresql"
    whole = (
        "SELECT c.relname FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid WHERE i.indisvalid"
        if is_postgres
        else "SELECT name FROM sqlite_master WHERE type = 'index'"
    )
    with connections["second"].cursor() as cursor:
        cursor.execute(whole)
        return {name for (name,) in cursor.fetchall()}
