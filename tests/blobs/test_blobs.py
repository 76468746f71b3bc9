"""Attachments: large base64 is kept once by its digest, and comes back exactly through every call."""

import io
import json
from base64 import b64encode, urlsafe_b64encode
from hashlib import sha256
from typing import Any

import pytest
from django.db.models import TextField
from django.db.models.functions import Cast
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from helix_sessions.content import blobs, documents
from helix_sessions.exceptions import (
    BlobNotFound,
    BlobTooLarge,
    ContentUnreadable,
    HelixSessionsError,
    InvalidInput,
    MediaTypeRefused,
)
from helix_sessions.models import Blob, BlobRef, Message
from helix_sessions.store import SessionStore

pytestmark = pytest.mark.django_db(transaction=True)

DATA = bytes(range(256)) * 8
OTHER = b"other" * 100
TEXT = b64encode(DATA).decode()
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": TEXT}}
SAID: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "look"}, PICTURE]}


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def texts_stored() -> list[str]:
    """The documents of messages as they are in the database."""
    rows = Message.objects.order_by("session_id", "position").annotate(raw=Cast("content", TextField()))
    return list(rows.values_list("raw", flat=True))


def test_large_base64_is_kept_once_and_comes_back_exactly(store: SessionStore, files: Any) -> None:
    store.create_session("s", agent_type="a")
    said: list[dict[str, Any]] = [SAID, {"role": "user", "content": "plain"}, SAID]
    store.append_messages("s", said)
    store.append_messages("s", [{"role": "tool", "tool_call_id": "c", "content": f'{{"png": "{TEXT}"}}'}])

    assert len(files()) == Blob.objects.count() == BlobRef.objects.count() == 1
    assert not any(TEXT[:200] in text for text in texts_stored())
    assert store.get_messages("s").messages[:3] == said
    assert documents.load_all(store.get_message_texts("s").texts)[:3] == said
    assert store.get_context("s").messages[:3] == said
    assert [event.data for event in store.get_events("s", types=["user_message"])] == said
    assert json.loads(store.get_messages("s").messages[3]["content"]) == {"png": TEXT}
    assert [found.content for found in Message.objects.order_by("position")][:3] == said


def test_states_checkpoints_runs_notes_and_inputs_are_covered(store: SessionStore, files: Any) -> None:
    store.create_session("s", agent_type="a", custom_state={"image": TEXT})
    store.save_state_and_promote_staging(
        "s", store.load_state("s"), [SAID], {"checkpoint_id": "c", "metadata": {"image": TEXT}}
    )
    run = store.create_run("s", metadata={"image": TEXT})
    store.update_run_status("s", run.run_id, "completed", output={"image": TEXT})
    store.put_notes("s", {"k": {"image": TEXT}})
    store.merge_custom_state("s", [{"op": "set", "path": ["second"], "value": TEXT}])

    assert len(files()) == 1
    assert store.load_state("s").custom_state == {"image": TEXT, "second": TEXT}
    found = store.get_checkpoint("s", "c")
    assert (found.state.custom_state, found.metadata) == ({"image": TEXT}, {"image": TEXT})
    assert store.get_run("s", run.run_id).output == {"image": TEXT}
    assert store.get_run("s", run.run_id).metadata == {"image": TEXT}
    assert {note.key: note.document for note in store.get_notes("s", keys=["k"])} == {"k": {"image": TEXT}}


_base64 = st.binary(max_size=400).flatmap(
    lambda data: st.sampled_from(
        [
            b64encode(data).decode(),
            b64encode(data).decode().rstrip("="),
            urlsafe_b64encode(data).decode(),
            urlsafe_b64encode(data).decode().rstrip("="),
            f"data:image/png;base64,{b64encode(data).decode()}",
            f'{{"nested": "{b64encode(data).decode()}"}}',
            "A" * len(data),
            f"\\/s{'0' * 12}.{'a' * 64}",
            f"/s{'0' * 12}.{'a' * 64}",
        ]
    )
)
_documents = st.recursive(
    _base64 | st.text(max_size=5) | st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(_base64 | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=8,
)


@hypothesis_settings(max_examples=60, deadline=None)
@given(said=_documents)
def test_any_document_comes_back(said: Any) -> None:
    text = documents.dump({"said": said})
    found = blobs.inline_in(text)
    contents = {each.sha256: each.data for each in found}
    for sha, data in contents.items():
        if not blobs.storage().exists(f"{blobs.FOLDER}/{sha[:2]}/{sha}.{'0' * 12}"):
            blobs.write(sha, "0" * 12, data)
    taken = blobs.taken_out(text, found, lambda sha: "0" * 12)
    assert json.loads(taken)  # still JSON, as PostgreSQL demands
    assert blobs.whole(taken) == text
    assert all(len(data) > 100 for data in contents.values())


def test_what_is_small_or_not_base64_stays_inline(store: SessionStore, files: Any) -> None:
    store.create_session("s", agent_type="a")
    said = [
        {"role": "user", "content": b64encode(b"x" * 100).decode()},
        {"role": "user", "content": "word " * 100},
        {"role": "user", "content": TEXT[:-2] + "!="},
        {"role": "user", "content": "A" * 201 + "B"},  # decodes, but is written otherwise
    ]
    store.append_messages("s", said)
    assert store.get_messages("s").messages == said
    assert len(files()) <= 1  # the last one, where it re-encodes


def test_without_a_storage_nothing_is_taken_out(store: SessionStore, settings: Any) -> None:
    settings.HELIX_SESSIONS = {**settings.HELIX_SESSIONS, "BLOB_STORAGE": ""}
    store.create_session("s", agent_type="a")
    store.append_messages("s", [SAID])
    assert TEXT in texts_stored()[0]
    assert not Blob.objects.exists()
    for call in (lambda: store.put_blob(b"x", media_type="a/b"), lambda: store.open_blob("a" * 64)):
        with pytest.raises(HelixSessionsError, match="BLOB_STORAGE"):
            call()


def test_an_attachment_is_put_and_opened(store: SessionStore, files: Any) -> None:
    made = store.put_blob(DATA, media_type="image/PNG")
    assert (made.sha256, made.size, made.media_type) == (digest(DATA), len(DATA), "image/png")
    assert store.put_blob(DATA, media_type="image/png") == made
    again = store.put_blob(DATA, media_type="image/webp")  # does not tell that another has it
    assert (again.sha256, again.media_type) == (made.sha256, "image/webp")
    assert len(files()) == 1
    with store.open_blob(made.sha256) as file:
        assert file.read() == DATA
    for unknown in (digest(b"?"), "../x", "", None):
        with pytest.raises(BlobNotFound):
            store.open_blob(unknown)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        store.put_blob("text", media_type="text/plain")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        store.put_blob(b"", media_type="nothing")


def test_limits(store: SessionStore, settings: Any) -> None:
    limits = {"BLOB_MAX_BYTES": 10, "BLOB_MEDIA_TYPES": ["image/*", "text/plain"]}
    settings.HELIX_SESSIONS = {**settings.HELIX_SESSIONS, **limits}
    store.put_blob(b"x" * 10, media_type="image/png")
    store.put_blob(b"x", media_type="text/plain")
    with pytest.raises(BlobTooLarge):
        store.put_blob(b"x" * 11, media_type="image/png")
    with pytest.raises(MediaTypeRefused):
        store.put_blob(b"x", media_type="text/html")


def test_an_owners_store_opens_only_its_own(store: SessionStore, django_user_model: Any) -> None:
    ada, bob = (django_user_model.objects.create_user(name) for name in ("ada", "bob"))
    mine, theirs = SessionStore(owned_by=ada), SessionStore(owned_by=bob)
    mine.create_session("s", agent_type="a")
    mine.append_messages("s", [SAID])
    assert mine.open_blob(digest(DATA)).read() == DATA
    assert mine.get_blob("s", digest(DATA)).size == len(DATA)
    with pytest.raises(BlobNotFound):
        theirs.open_blob(digest(DATA))
    with pytest.raises(HelixSessionsError):
        theirs.get_blob("s", digest(DATA))


def test_branches_share_and_the_last_session_takes_it_along(store: SessionStore, files: Any) -> None:
    store.create_session("s", agent_type="a", custom_state={"image": TEXT})
    store.append_messages("s", [SAID])
    store.clone_session("s", "branch")
    store.clone_session("branch", "first", message_count=0)
    store.truncate_messages("s", 0)  # the log still has it
    assert store.cleanup_debris().blobs_removed == 0
    store.delete_session("s")
    assert store.cleanup_debris().blobs_removed == 0
    assert store.get_messages("branch").messages == [SAID]
    store.delete_session("branch")
    assert store.cleanup_debris(dry_run=True).blobs_removed == 0
    assert store.load_state("first").custom_state == {"image": TEXT}
    store.delete_session("first")
    assert store.cleanup_debris(dry_run=True).blobs_removed == 1
    assert store.cleanup_debris().blobs_removed == 1
    assert (files(), Blob.objects.count()) == ([], 0)


def test_the_grace_is_kept(store: SessionStore, settings: Any) -> None:
    store.put_blob(DATA, media_type="image/png")
    settings.HELIX_SESSIONS = {**settings.HELIX_SESSIONS, "BLOB_GRACE": 3600}
    assert store.cleanup_debris().blobs_removed == 0
    settings.HELIX_SESSIONS = {**settings.HELIX_SESSIONS, "BLOB_GRACE": 0}
    assert store.cleanup_debris().blobs_removed == 1


def test_an_export_has_the_content_and_an_import_brings_it_back(store: SessionStore, files: Any) -> None:
    store.create_session("s", agent_type="a", custom_state={"image": TEXT})
    store.append_messages("s", [SAID])
    store.attach_blob("s", OTHER, media_type="text/plain")
    before = store.load_state("s")
    file = io.StringIO()
    store.export_sessions(file)
    store.delete_session("s")
    store.cleanup_debris()
    assert files() == []

    store.import_sessions(io.StringIO(file.getvalue()))
    assert store.get_messages("s").messages == [SAID]
    assert store.load_state("s").custom_state == before.custom_state
    assert store.open_blob(digest(OTHER)).read() == OTHER
    assert store.get_blob("s", digest(OTHER)).media_type == "text/plain"
    assert store.cleanup_debris().blobs_removed == 0
    assert list(store.examine_sessions()) == []


def test_erasing_a_person_removes_what_only_they_had(
    store: SessionStore, files: Any, settings: Any, django_user_model: Any
) -> None:
    settings.HELIX_SESSIONS = {**settings.HELIX_SESSIONS, "BLOB_GRACE": 3600}
    ada = django_user_model.objects.create_user("ada")
    store.create_session("hers", agent_type="a", owner=ada, custom_state={"a": TEXT})
    store.create_session("shared", agent_type="a", custom_state={"a": b64encode(OTHER).decode()})
    store.append_messages("hers", [{"role": "user", "content": b64encode(OTHER).decode()}])
    store.erase_user(owner=ada)
    assert [row.sha256 for row in Blob.objects.all()] == [digest(OTHER)]
    assert len(files()) == 1
    assert store.load_state("shared").custom_state == {"a": b64encode(OTHER).decode()}


def test_files_are_encrypted_and_rotated(
    store: SessionStore, settings: Any, blob_storage: Any, files: Any
) -> None:
    keys = {name: b64encode(name.encode() * 8).decode() for name in ("one1", "two2")}
    plain = settings.HELIX_SESSIONS
    store.create_session("old", agent_type="a", custom_state={"image": b64encode(OTHER).decode()})
    settings.HELIX_SESSIONS = {**plain, "ENCRYPTION": {"keys": keys, "active": "one1"}}
    store.create_session("s", agent_type="a", custom_state={"image": TEXT})
    store.append_messages("s", [SAID])
    store.clone_session("s", "branch")

    def contents() -> list[bytes]:
        return [path.read_bytes() for path in blob_storage.rglob("*") if path.is_file()]

    def check() -> None:
        blobs.cache.clear()
        assert store.load_state("s").custom_state == {"image": TEXT}
        assert store.get_messages("branch").messages == [SAID]
        assert store.load_state("old").custom_state == {"image": b64encode(OTHER).decode()}
        assert len(files()) == Blob.objects.count() == 2

    assert not any(DATA[:64] in content for content in contents())
    check()
    settings.HELIX_SESSIONS = {**plain, "ENCRYPTION": {"keys": keys, "active": "two2"}}
    check()
    assert store.rotate_encryption(dry_run=True).files == 2
    assert store.rotate_encryption().files == 2
    assert all(name.endswith(".two2") for name in files())
    assert not any(DATA[:64] in content or OTHER[:64] in content for content in contents())
    check()
    settings.HELIX_SESSIONS = {**plain, "ENCRYPTION": {"keys": keys, "active": None}}
    store.rotate_encryption()
    check()
    settings.HELIX_SESSIONS = plain
    check()


def test_a_damaged_or_missing_file_is_said(store: SessionStore, blob_storage: Any) -> None:
    store.create_session("s", agent_type="a", custom_state={"image": TEXT})
    [path] = (path for path in blob_storage.rglob("*") if path.is_file())
    blobs.cache.clear()
    path.write_bytes(DATA + b"!")
    with pytest.raises(ContentUnreadable, match="damaged"):
        store.load_state("s")
    path.unlink()
    with pytest.raises(ContentUnreadable, match="missing"):
        store.load_state("s")
    store.append_messages("s", [{"role": "user", "content": "goes on"}])


def test_an_attachment_of_a_session(store: SessionStore) -> None:
    state = store.create_session("s", agent_type="a")
    made = store.attach_blob("s", b"small", media_type="text/plain")
    assert store.attach_blob("s", b"small", media_type="text/plain") == made
    assert store.load_state("s").version == state.version
    assert store.get_blob("s", made.sha256) == made
    [event] = store.get_events("s", types=["blob_attached"])
    assert event.data == {"sha256": made.sha256, "size": 5, "media_type": "text/plain"}
    store.clone_session("s", "branch")
    assert store.get_blob("branch", made.sha256) == made
    with pytest.raises(BlobNotFound):
        store.get_blob("s", digest(b"?"))
