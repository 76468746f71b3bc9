"""The cleanup removes what no session has, and never what one has, while writers run."""

import random
import threading
from base64 import b64encode
from contextlib import suppress
from hashlib import sha256
from typing import Any

import pytest

from helix_sessions.content import blobs
from helix_sessions.exceptions import SessionBusy, SessionExists, SessionNotFound, StoreUnavailable
from helix_sessions.models import Blob, BlobRef, Session
from helix_sessions.store import SessionStore

pytestmark = pytest.mark.django_db(transaction=True)

CONTENTS = [bytes([number]) * 200 for number in range(3)]
BUSY = (SessionBusy, StoreUnavailable)


def test_writers_branches_deletions_and_cleanups_at_once(store: SessionStore, run_threads: Any) -> None:
    """With no grace at all: each content is written, let go, removed and written again all the time."""
    writing = threading.Semaphore(0)
    seeds = [random.randrange(2**32) for _ in range(4)]

    def write(number: int) -> None:
        try:
            write_some(number)
        finally:
            writing.release()

    def write_some(number: int) -> None:
        chance, mine = random.Random(seeds[number]), SessionStore()
        for turn in range(12):
            key = f"{number}-{turn % 2}"
            content = b64encode(chance.choice(CONTENTS)).decode()
            with suppress(*BUSY):
                match chance.randrange(4):
                    case 0:
                        mine.delete_session(key)
                    case 1:
                        with suppress(SessionNotFound, SessionExists):
                            mine.clone_session(key, f"{number}-{1 - turn % 2}")
                    case _:
                        with suppress(SessionExists):
                            mine.create_session(key, agent_type="a", custom_state={"image": content})
                        with suppress(SessionNotFound):
                            mine.append_messages(key, [{"role": "user", "content": content}])
                            assert mine.get_messages(key).messages[-1]["content"] == content

    def clean(_: int) -> None:
        mine, done = SessionStore(), 0
        while done < 3:
            with suppress(*BUSY):
                mine.cleanup_debris()
            done += writing.acquire(blocking=False)

    run_threads(4, lambda number: clean(number) if number == 3 else write(number))

    blobs.cache.clear()
    for session_id in Session.objects.values_list("session_id", flat=True):
        store.load_state(session_id)
        for message in store.get_messages(session_id).messages:
            assert message["content"] in {b64encode(content).decode() for content in CONTENTS}, seeds
    had = set(BlobRef.objects.values_list("blob_id", flat=True))
    store.cleanup_debris()
    assert set(Blob.objects.values_list("sha256", flat=True)) == had, seeds
    for sha in had:
        assert sha256(store.open_blob(sha).read()).hexdigest() == sha, seeds


def test_a_write_that_is_rolled_back_leaves_nothing_that_is_read(store: SessionStore, files: Any) -> None:
    from django.db import transaction

    store.create_session("s", agent_type="a")
    content = b64encode(CONTENTS[1]).decode()
    with suppress(ZeroDivisionError), transaction.atomic():
        store.append_messages("s", [{"role": "user", "content": content}])
        raise ZeroDivisionError
    assert not Blob.objects.exists()
    store.append_messages("s", [{"role": "user", "content": content}])
    assert store.get_messages("s").messages == [{"role": "user", "content": content}]
    assert store.cleanup_debris().blobs_removed == 0
