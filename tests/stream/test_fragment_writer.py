"""The thread that stores fragments: each once, whatever a write comes to, and none once its message ended."""

import os
import select
import threading
from collections.abc import Callable, Iterator

import pytest
from django.db import IntegrityError, OperationalError

from helix_sessions.stream import fragment_writer
from helix_sessions.stream.fragment_writer import FragmentWriter, PendingBatch, writer_of
from tests.parallel import wait_until


class Queue:
    """The fragments of one message."""

    def __init__(self, session_id: str, *texts: str) -> None:
        self.waiting = [
            PendingBatch(session_id, "r", "r:1", "m", n, 1, [text]) for n, text in enumerate(texts)
        ]

    def take(self) -> list[PendingBatch]:
        taken, self.waiting = self.waiting, []
        return taken

    def give_back(self, batches: list[PendingBatch]) -> None:
        self.waiting[:0] = batches


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(fragment_writer, "_writers", {})
    for name in ("INTERVAL", "_AFTER_FAILURE", "_IDLE"):
        monkeypatch.setattr(fragment_writer, name, 0.01)
    yield
    name = "helix_sessions-fragments-default"
    wait_until(lambda: name not in [thread.name for thread in threading.enumerate()])


def writer_with(write: Callable[[list[PendingBatch]], None]) -> FragmentWriter:
    return FragmentWriter("default", lambda _, batches: write(batches))


def test_what_could_not_be_written_is_written_later_and_in_order():
    stored: list[str] = []
    failures = iter([OperationalError("gone"), RuntimeError("what"), None])

    def write(batches: list[PendingBatch]) -> None:
        error = next(failures, None)
        if error is not None:
            queue.waiting.append(PendingBatch("s", "r", "r:1", "m", 9, 1, [str(error)]))
            raise error
        stored.extend(text for batch in batches for text in batch.texts)

    queue = Queue("s", "a", "b")
    writer_with(write).enqueue(queue)
    wait_until(lambda: stored == ["a", "b", "gone", "what"])


def test_a_session_that_was_deleted_costs_the_others_nothing():
    stored: list[str] = []

    def write(batches: list[PendingBatch]) -> None:
        if any(batch.session_id == "deleted" for batch in batches):
            raise IntegrityError
        stored.extend(batch.session_id for batch in batches)

    writer = writer_with(write)
    with writer._changed:  # so that one write has all of them
        for session_id in ("one", "deleted", "two"):
            writer.enqueue(Queue(session_id, "text"))
    wait_until(lambda: sorted(stored) == ["one", "two"])


def test_who_discards_waits_for_a_write_under_way():
    entered, go = threading.Event(), threading.Event()
    stored: list[str] = []

    def write(batches: list[PendingBatch]) -> None:
        entered.set()
        assert go.wait(20)
        stored.append("written")

    writer, queue = writer_with(write), Queue("s", "text")
    writer.enqueue(queue)
    assert entered.wait(20)

    def discard() -> None:
        writer.discard(queue)
        stored.append("discarded")

    discarding = threading.Thread(target=discard)
    discarding.start()
    discarding.join(0.1)
    go.set()
    discarding.join(20)
    assert stored == ["written", "discarded"]


def test_a_forked_process_writes_by_itself():
    reader, writer = os.pipe()
    parent = writer_of("default", lambda _, batches: None)
    parent.enqueue(Queue("s", "of the parent"))
    child = os.fork()
    if child == 0:
        writer_of("default", lambda _, batches: os.write(writer, b"!") and None).enqueue(Queue("s", "text"))
        wait_until(lambda: fragment_writer._writers["default"]._thread is None)
        os._exit(0)
    os.close(writer)
    assert select.select([reader], [], [], 20)[0]
    assert os.read(reader, 1) == b"!"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(reader)
