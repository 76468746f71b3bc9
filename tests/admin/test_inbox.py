"""The inbox and the owner in the console."""

from typing import Any

import pytest

from helix_sessions.store import SessionStore
from tests.admin.places import page_of

pytestmark = pytest.mark.django_db


def test_inputs_and_who_drives(admin_client: Any, store: SessionStore) -> None:
    store.create_session("s", agent_type="support")
    assert "The inbox is empty." in admin_client.get(page_of("s", "inbox")).content.decode()
    store.admit_input("s", "<script>alert(1)</script>", input_id="first")
    store.promote_inputs("s", "steer")
    store.admit_input("s", {"content": "hi", "password": "hunter2"}, input_id="second", delivery="queue")
    store.admit_input("s", "never mind", input_id="third")
    store.cancel_input("s", "third")
    store.acquire_lease("s", "worker-7", 60)
    page = admin_client.get(page_of("s", "inbox")).content.decode()
    for text in ("first", "second", "third", "Promoted", "Pending", "Cancelled", "worker-7", "queue"):
        assert text in page
    assert "<script>alert" not in page
    assert "hunter2" not in page


def test_a_lease_that_ran_out(admin_client: Any, store: SessionStore) -> None:
    store.create_session("s", agent_type="support")
    store.acquire_lease("s", "worker-7", 0)
    assert "ran out" in admin_client.get(page_of("s", "inbox")).content.decode()
