"""What one call reads was true at one moment, whatever is written meanwhile."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from helix_sessions.exceptions import CheckpointNotFound, SessionNotFound
from helix_sessions.store import SessionStore
from tests.concurrency.outcomes import split
from tests.invariants import assert_invariants
from tests.parallel import run_threads

pytestmark = pytest.mark.django_db(transaction=True)

LARGE = "x" * 20_000
"""Makes the custom state large enough to be kept as a chain of writes."""


def while_others_write(readers: int, write: Callable[[], None], read: Callable[[], None]) -> None:
    """`write()` once in one thread; `read()` in others until it is done."""
    done = threading.Event()

    def work(n: int) -> int:
        if n == 0:
            try:
                write()
            finally:
                done.set()
            return 1
        times = 0
        while not done.is_set() or not times:
            read()
            times += 1
        return times

    times, errors = split(run_threads(readers + 1, work), int)
    assert not errors
    assert sum(times) > readers


@pytest.mark.parametrize("large", [False, True])
def test_state_and_version_belong_together(store: SessionStore, large: bool):
    """The counter in the document, the step count and the version rise together; so are they read."""
    custom = {"blob": LARGE if large else "", "count": 1}
    state = store.create_session("s", agent_type="agent", custom_state=custom)

    def write() -> None:
        now = state
        for _ in range(40):
            count = now.version + 1
            now = replace(now, step_count=count, custom_state={**now.custom_state, "count": count})
            now = store.save_state("s", now, expected_version=now.version)

    def read() -> None:
        seen = store.load_state("s")
        assert seen.custom_state["count"] == seen.version
        if seen.version > 1:
            assert seen.step_count == seen.version
            checkpoint = store.get_checkpoint("s", seen.checkpoint_id or "")
            assert checkpoint.state == seen
        latest = store.get_latest_checkpoint("s")
        if latest is not None:
            assert latest.state.custom_state["count"] == latest.state.version == latest.step_count

    while_others_write(2, write, read)
    assert store.load_state("s").version == 41
    assert_invariants("s")


def test_a_page_and_its_total_belong_together(store: SessionStore):
    store.create_session("s", agent_type="agent")

    def write() -> None:
        for number in range(30):
            store.append_messages("s", [{"role": "user", "content": i} for i in range(number % 5 + 1)])
            if number % 3 == 0:
                store.truncate_messages("s", number)

    def read() -> None:
        page = store.get_messages("s")
        assert len(page.messages) == page.total
        assert not page.has_more
        newest = store.get_messages("s", limit=3, newest_first=True)
        assert len(newest.messages) == min(3, newest.total)
        assert newest.has_more == (newest.total > 3)

    while_others_write(3, write, read)
    assert_invariants("s")


def test_events_are_read_without_gaps(store: SessionStore):
    """A reader that asks for what is after its last event misses none and sees none twice."""
    store.create_session("s", agent_type="agent")
    seen: list[int] = []

    def write() -> None:
        for number in range(60):
            store.emit_event("s", "llm_requested", {"n": number})
            if number % 5 == 0:
                store.append_messages("s", [{"role": "user", "content": number}] * 3)

    def read() -> None:
        for event in store.get_events("s", len(seen) + 1):
            assert event.data is not None
            seen.append(event.seq)

    while_others_write(1, write, read)
    read()
    assert seen == list(range(1, store.load_state("s").head_seq + 1))


def test_listing_sees_whole_sessions(store: SessionStore):
    """Version, step count and message count of a line are of one moment."""
    state = store.create_session("s", agent_type="agent")

    def write() -> None:
        now = state
        for _ in range(40):
            now = replace(now, step_count=now.version)
            store.save_state_and_promote_staging("s", now, [{"role": "user", "content": 1}])
            now = store.load_state("s")

    def read() -> None:
        [line] = store.list_sessions().items
        assert line.version - 1 == line.step_count == line.message_count

    while_others_write(2, write, read)


@pytest.mark.parametrize("large", [False, True])
def test_a_branch_is_a_moment_of_its_source(store: SessionStore, large: bool):
    """Clones made while others append: state, step count and messages agree, and are a prefix."""
    custom = {"blob": LARGE if large else "", "count": 0}
    state = store.create_session("s", agent_type="agent", custom_state=custom)
    branches: list[str] = []

    def write() -> None:
        now = state
        for number in range(1, 31):
            now = replace(now, step_count=number, custom_state={**now.custom_state, "count": number})
            store.save_state_and_promote_staging(
                "s", now, [{"role": "user", "content": number}, {"role": "assistant", "content": number}]
            )

    def read() -> None:
        name = f"branch {threading.get_ident()} {len(branches)}"
        source = store.load_state("s")
        at = source.checkpoint_id if len(branches) % 2 else None
        branch = store.clone_session("s", name, checkpoint_id=at)
        assert branch.custom_state["count"] == branch.step_count
        assert (
            branch.step_count >= source.step_count if at is None else branch.step_count == source.step_count
        )
        expected = [n for number in range(1, branch.step_count + 1) for n in (number, number)]
        assert [message["content"] for message in store.get_messages(name).messages] == expected
        branches.append(name)

    while_others_write(2, write, read)
    assert store.load_state("s").version == 31
    for name in ["s", *branches[::5]]:
        assert_invariants(name)


def test_readers_of_a_session_that_is_deleted_are_told_so(store: SessionStore):
    """A reader meets the session whole, or not at all."""
    rounds = 15

    def write() -> None:
        for number in range(rounds):
            state = store.create_session("s", agent_type="agent", custom_state={"blob": LARGE, "n": number})
            for step in range(3):
                state = replace(state, custom_state={**state.custom_state, "step": step})
                state = store.save_state("s", state)
            store.create_checkpoint("s", {"checkpoint_id": "c"})
            store.append_messages("s", [{"role": "user", "content": number}])
            store.delete_session("s")

    reads: list[Callable[[], object]] = [
        lambda: store.load_state("s"),
        lambda: store.get_checkpoint("s", "c"),
        lambda: store.get_latest_checkpoint("s"),
        lambda: store.list_checkpoints("s"),
        lambda: store.get_events("s"),
        lambda: store.get_messages("s"),
        lambda: store.get_current_run("s"),
        lambda: store.list_runs("s"),
        lambda: store.get_staged_changes("s"),
        lambda: store.get_sub_session_refs("s"),
        lambda: store.check_interrupt_flag("s"),
        lambda: store.session_exists("s"),
    ]

    def read() -> None:
        for call in reads:
            with suppress(SessionNotFound, CheckpointNotFound):
                call()

    while_others_write(2, write, read)
