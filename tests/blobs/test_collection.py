"""Whatever is done in any order: what a session has can be read, and the cleanup removes all the rest."""

from base64 import b64encode
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helix_sessions.content import blobs
from helix_sessions.exceptions import SessionExists, SessionNotFound
from helix_sessions.models import Blob, BlobRef, Session
from helix_sessions.store import SessionStore
from helix_sessions.store.keyed.blobs import remove_strays
from tests.lengths import at_length

pytestmark = pytest.mark.django_db(transaction=True)

CONTENTS = [bytes([number]) * 200 for number in range(3)]
TEXTS = [b64encode(content).decode() for content in CONTENTS]

session = st.sampled_from("abc")
content = st.integers(0, len(CONTENTS) - 1)
calls = st.one_of(
    st.tuples(st.just("create"), session, content),
    st.tuples(st.just("say"), session, content),
    st.tuples(st.just("note"), session, content),
    st.tuples(st.just("attach"), session, content),
    st.tuples(st.just("put"), session, content),
    st.tuples(st.just("fail"), session, content),
    st.tuples(st.just("branch"), session, session),
    st.tuples(st.just("delete"), session, st.none()),
    st.tuples(st.just("erase"), session, st.none()),
    st.tuples(st.just("clean"), session, st.none()),
)


def call(store: SessionStore, what: str, key: str, which: Any) -> None:
    """One call of a script; which session is not there, or is there already, is no matter."""
    with suppress(SessionNotFound, SessionExists):
        match what:
            case "create":
                state = {"image": TEXTS[which]}
                store.create_session(key, agent_type="a", user_id=key, custom_state=state)
            case "say":
                store.append_messages(key, [{"role": "user", "content": TEXTS[which]}])
            case "note":
                store.put_notes(key, {"note": {"image": TEXTS[which]}})
            case "attach":
                store.attach_blob(key, CONTENTS[which], media_type="image/png")
            case "put":
                store.put_blob(CONTENTS[which], media_type="image/png")
            case "fail":
                with suppress(ZeroDivisionError), transaction.atomic():
                    call(store, "say", key, which)
                    raise ZeroDivisionError
            case "branch":
                store.clone_session(key, which)
            case "delete":
                store.delete_session(key)
            case "erase":
                store.erase_user(user_id=key)
            case "clean":
                store.cleanup_debris()


def read_everything(store: SessionStore) -> None:
    """Each content that a session names is in the storage."""
    blobs.cache.clear()
    for key in Session.objects.values_list("session_id", flat=True):
        assert store.load_state(key).custom_state["image"] in TEXTS
        assert all(said["content"] in TEXTS for said in store.get_messages(key).messages)
        assert all(note.document["image"] in TEXTS for note in store.get_notes(key))
    for sha in BlobRef.objects.values_list("blob_id", flat=True):
        assert store.open_blob(sha).read() in CONTENTS


@settings(
    max_examples=at_length(15), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(script=st.lists(calls, min_size=5, max_size=25))
def test_any_order_of_calls(script: list[tuple[str, str, Any]], files: Any) -> None:
    store = SessionStore()
    for key in "abc":
        store.delete_session(key)
    store.cleanup_debris()
    for what, key, which in script:
        call(store, what, key, which)
        read_everything(store)
    had = set(BlobRef.objects.values_list("blob_id", flat=True))
    store.cleanup_debris()
    assert set(Blob.objects.values_list("sha256", flat=True)) == had
    remove_strays(store.using, timezone.now() + timedelta(days=2))  # files of what was not committed
    assert {name.partition(".")[0] for name in files()} == had
    read_everything(store)
