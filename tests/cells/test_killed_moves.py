"""A mover is killed: no session is lost, and none is live in both databases."""

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from helix_sessions.exceptions import SessionBusy, SessionMoved
from helix_sessions.memory import MemoryStore
from helix_sessions.models import MovedSession, Session
from helix_sessions.store import SessionStore
from helix_sessions.store.maintenance import moves, owner_rows, tree_copies
from tests.cells.conftest import Cells, in_cells, join_cells, know_second
from tests.parallel import Worker, run_processes

pytestmark = pytest.mark.django_db(transaction=True)

BOUNDARIES = (
    *((moves, name) for name in ("_begin", "_copy", "_close", "_open", "_hide", "_finish")),
    *((tree_copies, name) for name in ("copy_tree", "remove_source", "_note_arrival", "_copy_rules")),
    *((owner_rows, name) for name in ("take_memories", "take_rows", "copy_rows", "take_schedules")),
    *((owner_rows, name) for name in ("carry_spending", "forget_spending", "enable_schedules")),
)


class Killed(BaseException):
    """The process ends here."""


def fill(cells: Cells) -> dict[str, int]:
    """Sessions, each with so many messages."""
    for number in range(3):
        cells.here.create_session(f"s{number}", agent_type="writer", owner=cells.owner)
    cells.here.create_session("child", agent_type="writer", owner=cells.owner, parent_session_id="s0")
    MemoryStore("default").put(("owner", str(cells.owner.pk), "likes"), "tea", {"text": "tea"})
    cells.here.create_schedule("daily", cron="0 8 * * *", agent_type="w", prompt="go", owner=cells.owner)
    sizes = {"s0": 3, "s1": 1, "s2": 0, "child": 2}
    for key, size in sizes.items():
        say(cells.here, key, size)
    return sizes


def say(store: SessionStore, session_id: str, times: int = 1) -> None:
    for _ in range(times):
        store.append_messages(session_id, [{"role": "user", "content": "hello"}])


def live_in(cells: Cells, session_id: str) -> list[str]:
    return [store.using for store in (cells.here, cells.there) if store.session_exists(session_id)]


@in_cells
def test_a_move_that_is_cut_at_some_boundaries_goes_on(cells: Cells) -> None:
    _cut_at(BOUNDARIES[::3], cells)


@pytest.mark.slow
@in_cells
def test_a_move_that_is_cut_at_any_boundary_goes_on(cells: Cells) -> None:
    _cut_at(BOUNDARIES, cells)


def _cut_at(boundaries: Sequence[tuple[Any, str]], cells: Cells) -> None:
    """Each function of the move is cut before and after its work, the first and a later time."""
    sizes = fill(cells)
    here, there = cells.here, cells.there
    for module, name in boundaries:
        for is_after, turn in ((False, 1), (True, 1), (True, 2)):
            _cut(here, cells.owner, there.using, module, name, is_after, turn)
            where = f"{module.__name__}.{name}, after: {is_after}, turn {turn}"
            for key in sizes:
                assert len(live_in(cells, key)) <= 1, where
            here.move_owner(cells.owner, there.using)
            _check_arrival(cells, here, there, sizes, where)
            here, there = there, here
            say(here, "s1")
            sizes["s1"] += 1


def _check_arrival(
    cells: Cells, here: SessionStore, there: SessionStore, sizes: dict[str, int], where: str
) -> None:
    for key, size in sizes.items():
        assert live_in(cells, key) == [there.using], (where, key)
        assert there.get_message_count(key) == size, (where, key)
    assert not Session.with_tombstones.using(here.using).exists(), where
    assert not MovedSession.objects.using(there.using).exists(), where
    memory = MemoryStore(there.using).get(("owner", str(cells.owner.pk), "likes"), "tea")
    assert memory is not None, where
    assert [row.enabled for row in there.list_schedules().items] == [True], where
    assert here.list_schedules().items == [], where
    assert there.examine_sessions() == [], where


def _cut(store: SessionStore, owner: Any, to: str, module: Any, name: str, is_after: bool, turn: int) -> None:
    original, calls = getattr(module, name), iter(range(1, 1000))

    def cut(*args: Any, **kwargs: Any) -> Any:
        if next(calls) != turn:
            return original(*args, **kwargs)
        if is_after:
            original(*args, **kwargs)
        raise Killed

    with patch.object(module, name, cut), suppress(Killed):
        store.move_owner(owner, to)


def test_killed_movers_beside_writers_lose_nothing(other_cell: str, tmp_path: Path) -> None:
    """Writers follow the sessions; movers are killed at random moments until one comes to its end."""
    (prepared,) = run_processes(1, prepare, other_cell)
    assert isinstance(prepared, tuple), prepared
    owner, before = prepared
    stop = tmp_path / "stop"
    writers = [Worker(write, key, other_cell, stop) for key in before]
    try:
        for writer in writers:
            writer.wait_until_ready()
            writer.go()
        kills = _move_until_done(owner, other_cell)
        stop.touch()
        written = dict(zip(before, (writer.result() for writer in writers), strict=True))
    finally:
        for writer in writers:
            writer.kill()
    assert all(isinstance(count, int) for count in written.values()), written
    assert run_processes(1, complaints, other_cell, before, written) == [""], kills


def prepare(index: int, name: str) -> tuple[Any, dict[str, int]]:
    cells = join_cells(name)
    return cells.owner.pk, fill(cells)


def write(key: str, name: str, stop: Path) -> int:
    """Write to a session until the file appears, wherever the session is; returns how often."""
    know_second(name)
    alias, written = "default", 0
    while not stop.exists():
        try:
            message = {"role": "user", "content": str(written)}
            SessionStore(alias).append_messages(key, [message])
            written += 1
            time.sleep(0.005)  # so that the movers have processors, too
        except SessionMoved as moved:
            alias = moved.cell
        except SessionBusy:
            continue
    return written


def _move_until_done(owner: Any, name: str) -> int:
    """Start movers and kill them, each later than the one before; returns how many were killed."""
    random = Random(26)
    for number in range(30):
        mover: Worker[str] = Worker(move, owner, name)
        try:
            mover.wait_until_ready()
            mover.go()
            mover.process.join((0.5 + random.random()) * 0.05 * 1.7**number)
            if mover.process.exitcode is None and not mover._pipe.poll(0):
                continue
            assert mover.result() == "done"
            return number
        finally:
            mover.kill()
    raise AssertionError("no mover came to its end")


def move(owner: Any, name: str) -> str:
    """Move in this process."""
    know_second(name)
    SessionStore("default").move_owner(owner, "second")
    return "done"


def complaints(index: int, name: str, before: dict[str, int], written: dict[str, int]) -> str:
    """What is wrong after the move."""
    know_second(name)
    here, there = SessionStore("default"), SessionStore("second")
    wrong = [f"{finding}" for store in (here, there) for finding in store.examine_sessions()]
    for key, count in written.items():
        said = [message["content"] for message in there.get_messages(key).messages]
        if said[before[key] :] != [str(number) for number in range(count)]:
            wrong.append(f"{key}: {len(said)} messages, {before[key] + count} were written")
        if here.session_exists(key):
            wrong.append(f"{key} is live in both")
    return "; ".join(wrong)
