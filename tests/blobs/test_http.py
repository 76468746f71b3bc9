"""Attachments over HTTP: of one's own sessions, within limits, served so that no browser runs them."""

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core import signing
from django.test import Client

from helix_sessions.store import SessionStore

pytestmark = pytest.mark.django_db(transaction=True)

DATA = b"<script>alert(1)</script>" * 10


@pytest.fixture
def ada() -> Any:
    return get_user_model().objects.create_user("ada")


@pytest.fixture
def client(ada: Any) -> Client:
    client = Client()
    client.force_login(ada)
    return client


def post(client: Client, body: bytes = DATA, kind: str = "image/png", session_id: str = "s") -> Any:
    return client.post(f"/api/sessions/{session_id}/blobs/", data=body, content_type=kind)


def test_a_participant_attaches_and_downloads(store: SessionStore, client: Client, ada: Any) -> None:
    store.create_session("s", agent_type="a", owner=ada)
    made = post(client, kind="image/png; x=y")
    assert made.status_code == 201, made.content
    blob = made.json()
    assert (blob["size"], blob["media_type"]) == (len(DATA), "image/png")
    assert post(client).json() == blob

    answer = client.get(f"/api/sessions/s/blobs/{blob['sha256']}/").json()
    assert set(answer) == {"url", "expires_at"}
    served = Client().get(answer["url"])
    assert b"".join(served.streaming_content) == DATA  # type: ignore[attr-defined]
    assert served["X-Content-Type-Options"] == "nosniff"
    assert served["Content-Type"] == "image/png"
    assert served["Content-Disposition"].startswith("attachment")
    assert "sandbox" in served["Content-Security-Policy"]


def test_limits_are_said(store: SessionStore, client: Client, ada: Any, settings: Any) -> None:
    store.create_session("s", agent_type="a", owner=ada)
    limits = {"BLOB_MAX_BYTES": 100, "BLOB_MEDIA_TYPES": ["image/*"], "API_MAX_BODY_BYTES": 50}
    settings.HELIX_SESSIONS = {**settings.HELIX_SESSIONS, **limits}
    assert post(client, b"x" * 100).status_code == 201
    assert post(client, b"x" * 101).status_code == 413
    assert post(client, b"x", "text/html").status_code == 415
    settings.HELIX_SESSIONS = {**settings.HELIX_SESSIONS, "BLOB_STORAGE": ""}
    assert post(client, b"x").status_code == 501


def test_what_a_session_has_not_is_unknown(store: SessionStore, client: Client, ada: Any) -> None:
    bob = get_user_model().objects.create_user("bob")
    store.create_session("s", agent_type="a", owner=ada)
    store.create_session("theirs", agent_type="a", owner=bob)
    foreign = store.attach_blob("theirs", DATA, media_type="image/png")
    assert post(client, session_id="theirs").status_code == 404
    for session_id in ("s", "theirs", "nothing"):
        for sha in (foreign.sha256, "x"):
            found = client.get(f"/api/sessions/{session_id}/blobs/{sha}/")
            assert found.status_code == 404, (session_id, sha)


def test_an_address_ends(store: SessionStore, client: Client, ada: Any) -> None:
    store.create_session("s", agent_type="a", owner=ada)
    sha = post(client).json()["sha256"]
    url = client.get(f"/api/sessions/s/blobs/{sha}/").json()["url"]
    ticket = url.rstrip("/").rpartition("/")[2]
    forged = signing.dumps(["s", sha], salt="another")
    for wrong in (ticket[:-1], forged, "x"):
        assert Client().get(f"/api/blobs/{wrong}/").status_code == 404
    store.delete_session("s")
    assert Client().get(url).status_code == 404
