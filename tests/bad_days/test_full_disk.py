"""PostgreSQL has no room left for its tables: nothing is half written, and with room again it goes on.

The tables are put on a small file system of their own, which only root can make.
"""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, connection

from helix_sessions.exceptions import StoreUnavailable
from helix_sessions.store import SessionStore
from tests.invariants import assert_healthy, assert_invariants
from tests.postgres import _unprivileged_identity

pytestmark = pytest.mark.django_db(transaction=True)

TABLES = ("message", "event", "session", "statesnapshot", "checkpoint")


@pytest.fixture
def small_disk(engine: str, tmp_path: Path) -> Iterator[Path]:
    """All that grows lies on four megabytes."""
    if engine != "postgresql":
        pytest.skip("SQLite: see test_databases.py")
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can make a small file system")
    place = Path("/tmp") / f"helix_sessions_disk_{secrets.token_hex(4)}"
    place.mkdir(mode=0o755)
    try:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place])
        if mounted.returncode:
            pytest.skip("file systems cannot be mounted here")
        with _tables_on(place):
            yield place
    finally:
        subprocess.run(["umount", place])
        place.rmdir()


@contextmanager
def _tables_on(place: Path) -> Iterator[None]:
    identity = _unprivileged_identity()
    shutil.chown(place, identity["user"], identity["group"])
    with connection.cursor() as cursor:
        try:
            cursor.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
        except DatabaseError:
            pytest.skip("the server is not on this machine")
        try:
            _move(cursor, "small")
            yield
        finally:
            _move(cursor, "pg_default")
            cursor.execute("DROP TABLESPACE small")


def _move(cursor: Any, tablespace: str) -> None:
    for table in TABLES:
        cursor.execute(f"VACUUM FULL helix_sessions_{table}")  # rows of other tests take room until then
        cursor.execute(f"ALTER TABLE helix_sessions_{table} SET TABLESPACE {tablespace}")


def test_the_disk_is_full(store: SessionStore, small_disk: Path):
    store.create_session("s", agent_type="agent", custom_state={"steps": 0})
    step = fill(store)

    for _ in range(3):  # it stays so
        with pytest.raises(StoreUnavailable):
            commit(store, step + 1)
    assert step > 5
    assert store.get_message_count("s") == 2 * step  # reading goes on
    assert store.load_state("s").custom_state["steps"] == step
    assert_healthy("s")

    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    result = commit(store, step + 1)
    assert not result.replayed
    assert result.message_count == 2 * step + 2
    assert_invariants("s")


def fill(store: SessionStore) -> int:
    """Commit until there is no room; how many steps there was room for."""
    step = 0
    try:
        while True:
            commit(store, step + 1)
            step += 1
    except StoreUnavailable:
        return step


def commit(store: SessionStore, step: int) -> Any:
    state = store.load_state("s")
    state.custom_state["steps"] = step
    messages = [{"role": role, "content": secrets.token_hex(20_000)} for role in ("user", "assistant")]
    return store.save_state_and_promote_staging("s", state, messages, {"checkpoint_id": f"c{step}"})
