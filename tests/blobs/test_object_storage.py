"""Attachments in an object store, over a network that fails at times."""

import random
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.content import blobs
from helix_sessions.exceptions import HelixSessionsError, SessionExists, SessionNotFound
from helix_sessions.models import Blob, BlobRef, Session
from helix_sessions.store import SessionStore
from tests.blobs.object_store import Server, object_server

pytestmark = pytest.mark.django_db(transaction=True)

DATA = bytes(range(256)) * 8
SAID: dict[str, Any] = {"role": "user", "content": {"image": b64encode(DATA).decode()}}


@pytest.fixture
def bucket(settings: Any) -> Iterator[Server]:
    with object_server() as server:
        place = {
            "BACKEND": "tests.blobs.object_store.ObjectStorage",
            "OPTIONS": {"port": server.server_address[1]},
        }
        settings.STORAGES = {**settings.STORAGES, "blobs": place}
        blobs.cache.clear()
        yield server


def test_contents_are_kept_shared_read_and_removed(store: SessionStore, bucket: Server) -> None:
    store.create_session("s", agent_type="a")
    store.append_messages("s", [SAID, {"role": "user", "content": "x"}, SAID])
    store.clone_session("s", "branch")
    assert len(bucket.objects) == 1
    [(stored, _)] = bucket.objects.values()
    assert stored == DATA
    blobs.cache.clear()
    for session_id in ("s", "branch"):
        assert store.get_messages(session_id).messages[0] == SAID
    with store.open_blob(sha256(DATA).hexdigest()) as file:
        assert file.read() == DATA
    store.delete_session("s")
    assert store.cleanup_debris().blobs_removed == 0
    blobs.cache.clear()
    assert store.get_messages("branch").messages[2] == SAID
    store.delete_session("branch")
    assert store.cleanup_debris().blobs_removed == 1
    assert not bucket.objects


def test_a_store_that_fails_loses_and_invents_nothing(store: SessionStore, bucket: Server) -> None:
    store.create_session("s", agent_type="a")
    bucket.failing = True
    with pytest.raises(OSError, match="503"):
        store.append_messages("s", [SAID])
    assert store.get_message_count("s") == Blob.objects.count() == 0
    bucket.failing = False
    store.append_messages("s", [SAID])
    bucket.failing = True
    blobs.cache.clear()
    with pytest.raises((OSError, HelixSessionsError)):
        store.get_messages("s")
    bucket.failing = False
    assert store.get_messages("s").messages == [SAID]


def test_objects_that_dead_writers_left_are_found_by_their_keys(
    store: SessionStore, bucket: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_session("s", agent_type="a")
    store.append_messages("s", [SAID])
    blobs.write(sha256(b"stray").hexdigest(), "abc", b"stray")
    assert len(bucket.objects) == 2
    store.cleanup_debris()
    assert len(bucket.objects) == 2, "a writer may still be about to commit"
    long_ago = timezone.now() - timedelta(days=3)
    for key, (data, _) in bucket.objects.items():
        bucket.objects[key] = data, long_ago
    store.cleanup_debris()
    assert [data for data, _ in bucket.objects.values()] == [DATA]


def test_no_content_that_a_session_has_is_lost_while_writers_and_cleanups_run(
    store: SessionStore, bucket: Server, run_threads: Any
) -> None:
    """Three contents are written, shared, let go of and removed all the time, with no grace at all."""
    contents = [bytes([number]) * 200 for number in range(3)]
    seed = random.randrange(2**32)
    done = threading.Semaphore(0)

    def write(number: int) -> None:
        chance, mine = random.Random(seed + number), SessionStore()
        for turn in range(10):
            key, other = f"{number}-{turn % 2}", f"{number}-{1 - turn % 2}"
            data = chance.choice(contents)
            with suppress(SessionExists, SessionNotFound):
                match chance.randrange(5):
                    case 0:
                        mine.delete_session(key)
                    case 1:
                        mine.clone_session(key, other)
                    case 2:
                        mine.create_session(key, agent_type="a")
                        mine.attach_blob(key, data, media_type="image/png")
                    case _:
                        mine.ensure_session(key, agent_type="a")
                        mine.append_messages(key, [{"role": "user", "content": b64encode(data).decode()}])

    def act(number: int) -> None:
        if number < 3:
            try:
                write(number)
            finally:
                done.release()
            return
        ended = 0
        while ended < 3:
            SessionStore().cleanup_debris()
            ended += done.acquire(blocking=False)

    run_threads(4, act)
    blobs.cache.clear()
    known = {b64encode(data).decode() for data in contents}
    for session_id in Session.objects.values_list("session_id", flat=True):
        assert {message["content"] for message in store.get_messages(session_id).messages} <= known, seed
    store.cleanup_debris()
    had = {str(sha) for sha in BlobRef.objects.values_list("blob_id", flat=True)}
    assert {sha256(data).hexdigest() for data, _ in bucket.objects.values()} == had, seed
    for sha in had:
        assert sha256(store.open_blob(sha).read()).hexdigest() == sha, seed
