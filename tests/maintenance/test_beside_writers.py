"""Maintenance beside writers on the same sessions: nothing is lost or doubled, and nothing is ever wrong."""

import io
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connections

from helix_sessions.exceptions import SessionNotFound, StaleState
from helix_sessions.models import ArchivedRange
from helix_sessions.store import SessionStore
from helix_sessions.types import CompactionPolicy, EventRecord, RetentionPolicy
from tests.invariants import assert_healthy, assert_no_orphans

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

SESSIONS = ("s0", "s1")
REWOUND = "rewound"
"""What is said here is taken back again and again."""
KEYS = {
    "a": "dGVzdHMgb25seTogdGhpcnR5LXR3byBieXRlcyEhISE=",
    "b": "YW5vdGhlciBrZXkgb2YgdGhpcnR5LXR3byBieXRlcyE=",
}


@pytest.fixture
def with_key(settings: Any, tmp_path: Path) -> Callable[[str | None], None]:
    """Seal with this key from now on, or not at all."""
    location = {"location": str(tmp_path)}
    storage = {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": location}
    settings.STORAGES = {**settings.STORAGES, "archive": storage}

    def chosen(key: str | None) -> None:
        ring = {"keys": KEYS, "active": key}
        settings.HELIX_SESSIONS = {"ARCHIVE_STORAGE": "archive", "LOCK_TIMEOUT": 60, "ENCRYPTION": ring}

    chosen(None)
    return chosen


class Writers:
    """Two threads that commit so many steps each, and remember what was acknowledged."""

    def __init__(self, store: SessionStore, steps: int) -> None:
        self._store = store
        self._steps = steps
        self._numbers = count()
        self.committed: dict[str, list[int]] = {key: [] for key in SESSIONS}
        self.emitted: dict[str, dict[str, EventRecord]] = {key: {} for key in SESSIONS}

    def work(self) -> None:
        for number in (next(self._numbers) for _ in range(self._steps)):
            key = SESSIONS[number % len(SESSIONS)]
            name = f"k{number}"
            self.emitted[key][name] = self._store.emit_event(key, "noted", number, idempotency_key=name)
            self._commit(key, number)

    def _commit(self, key: str, number: int) -> None:
        """A step with a message, its own write and that of a tool, on the state as it is."""
        step = f"step {number}"
        writes = [{"op": "append", "path": ["staged"], "values": [number]}]
        self._store.stage_changes(key, step, "call", writes)
        while True:
            state = self._store.load_state(key)
            custom = {**state.custom_state, "saved": [*state.custom_state["saved"], number]}
            try:
                self._store.save_state_and_promote_staging(
                    key,
                    replace(state, custom_state=custom),
                    [{"role": "user", "content": number}, {"role": "assistant", "content": "x" * 300}],
                    {"checkpoint_id": step, "step_id": step},
                    expected_version=state.version,
                )
            except StaleState:
                continue
            self.committed[key].append(number)
            return

    def check(self) -> None:
        """Everything acknowledged is there once, whoever asks again."""
        for key in SESSIONS:
            numbers = sorted(self.committed[key])
            custom = self._store.load_state(key).custom_state
            said = [message["content"] for message in self._store.get_messages(key).messages]
            assert sorted(custom["saved"]) == sorted(custom["staged"]) == numbers, key
            assert sorted(content for content in said if isinstance(content, int)) == numbers, key
            for name, event in self.emitted[key].items():
                assert self._store.emit_event(key, "noted", idempotency_key=name) == event, (key, name)


class Jobs:
    """What runs beside them, each again and again until they have ended."""

    def __init__(self, store: SessionStore, with_key: Callable[[str | None], None], owner: Any) -> None:
        self._store = store
        self._with_key = with_key
        self._owner = owner
        self._names = count()
        self._turns = {
            name: cycle(SESSIONS) for name in ("archive", "compact", "branch", "transfer", "rewind")
        }
        self._ring = cycle(["a", "b", None])

    def rotate(self) -> None:
        self._with_key(next(self._ring))
        assert self._store.rotate_encryption(page_size=7).errors == 0

    def archive(self) -> None:
        self._store.archive_events(next(self._turns["archive"]), keep=3)

    def compact(self) -> None:
        policy = CompactionPolicy(context_window=1_000, buffer=0, keep_recent=50)
        self._store.compact(next(self._turns["compact"]), lambda _: "summary", policy)

    def branch(self) -> None:
        name = f"branch {next(self._names)}"
        self._store.clone_session(next(self._turns["branch"]), name)
        self._store.update_status(name, "completed")

    def say(self) -> None:
        self._store.append_messages(REWOUND, [{"role": "user", "content": "more"}])

    def rewind(self) -> None:
        self._store.rewind(REWOUND)

    def prune(self) -> None:
        assert self._store.prune_sessions(RetentionPolicy(terminal_for=timedelta(0))).errors == 0

    def create_and_erase(self) -> None:
        name = f"person {next(self._names)}"
        self._store.create_session(name, agent_type="a", owner=self._owner)
        self._store.create_session(f"{name} child", agent_type="a", parent_session_id=name)
        assert self._store.erase_user(owner=self._owner).errors == 0

    def transfer(self) -> None:
        file = io.StringIO()
        key = next(self._turns["transfer"])
        self._store.export_sessions(file, session_ids=[key])
        file.seek(0)
        self._store.import_sessions(file, on_collision="renew")

    def examine(self) -> None:
        found = self._store.examine_sessions(deep=True)
        errors = [finding for finding in found if finding.severity == "error"]
        assert not errors, errors

    def read(self) -> None:
        for key in SESSIONS:
            numbers = [event.seq for event in self._store.get_events(key)]
            first = numbers[0] if numbers else 0
            assert numbers == list(range(first, first + len(numbers))), f"a gap: {numbers}"
            page = self._store.get_messages(key)
            assert len(page.messages) == page.total, f"{len(page.messages)} of {page.total} messages"

    def all(self) -> list[Callable[[], None]]:
        return [
            *(self.rotate, self.archive, self.compact, self.branch, self.say, self.rewind, self.prune),
            *(self.create_and_erase, self.transfer, self.examine, self.read),
        ]


@pytest.mark.parametrize("steps", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_all_at_once(
    store: SessionStore, with_key: Callable[[str | None], None], steps: int, tmp_path: Path
) -> None:
    owner = get_user_model()._default_manager.create_user("alice")
    for key in (*SESSIONS, REWOUND):
        store.create_session(key, agent_type="a", custom_state={"saved": [], "staged": []})
        store.create_checkpoint(key)
    writers = Writers(store, steps)
    times, failures = _run([writers.work] * 2, Jobs(store, with_key, owner).all())

    assert not failures
    assert min(times.values()) >= 1, times
    writers.check()
    assert store.rotate_encryption().errors == 0
    writers.check()
    assert_healthy(*(line.session_id for line in store.list_sessions(limit=1_000).items))
    assert_no_orphans()
    noted = set(ArchivedRange.objects.values_list("name", flat=True))
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.gz")} == noted


def _run(
    writers: list[Callable[[], None]], jobs: list[Callable[[], None]]
) -> tuple[Counter[str], list[BaseException]]:
    """Let writers work, and jobs beside them until they end; how often each did, and what went wrong."""
    over, failures, times = threading.Event(), list[BaseException](), Counter[str]()

    def once(call: Callable[[], None]) -> None:
        try:
            call()
        except SessionNotFound:
            pass  # another job was quicker
        except BaseException as error:
            failures.append(error)
            over.set()
        times[call.__name__] += 1

    def again(call: Callable[[], None]) -> None:
        try:
            once(call)
            while not over.is_set():
                once(call)
                time.sleep(0.01)
        finally:
            connections.close_all()

    def work(call: Callable[[], None]) -> None:
        try:
            once(call)
        finally:
            connections.close_all()

    working = [threading.Thread(target=work, args=[call]) for call in writers]
    beside = [threading.Thread(target=again, args=[call]) for call in jobs]
    for thread in (*working, *beside):
        thread.start()
    for thread in working:
        thread.join()
    over.set()
    for thread in beside:
        thread.join()
    return times, failures
