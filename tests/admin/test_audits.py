"""The audit trail in the console: read by those who may, changed by nobody."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from helix_sessions.admin import paginator
from helix_sessions.models import AuditEntry
from helix_sessions.store import SessionStore
from tests.admin.places import AUDIT, page_of
from tests.rows import each

pytestmark = pytest.mark.django_db

HOSTILE = "<script>alert('x')</script>"


def keep(count: int = 1, *, days: float = 0, **fields: Any) -> list[AuditEntry]:
    at = timezone.now() - timedelta(days=days)
    told = {"actor": "7", "session_id": "s", "action": "POST api/sessions", "status": 201, **fields}
    return AuditEntry.objects.bulk_create(
        [AuditEntry(entry_id=uuid4(), at=at, **told) for _ in range(count)], batch_size=500
    )


def sessions_of(response: Any) -> list[str]:
    return [entry.session_id for entry in response.context["cl"].result_list]


@pytest.fixture
def auditor(client_with: Callable[..., Client]) -> Client:
    """Someone who may see the audit trail and nothing more."""
    return client_with("view_auditentry")


def test_tells_who_did_what(admin_client: Client, admin_user: Any, store: SessionStore):
    store.create_session("s", agent_type="a")
    keep(actor=str(admin_user.pk), status=409, code="run_in_progress", address="192.0.2.7", request_id="r-1")
    page = admin_client.get(AUDIT).content.decode()
    for text in (
        admin_user.get_username(),
        "POST api/sessions",
        "409",
        "run_in_progress",
        "192.0.2.7",
        "r-1",
    ):
        assert text in page
    assert f'<a href="{page_of("s")}">s</a>' in page


def test_users_that_are_gone_or_never_were(admin_client: Client):
    keep(actor="99999")
    keep(actor="not a key")
    keep(actor=None, session_id=None)
    assert admin_client.get(AUDIT).status_code == 200


class TestWhoMay:
    def test_whoever_has_the_permission_reads(self, auditor: Client):
        [entry] = keep()
        assert auditor.get(AUDIT).status_code == 200
        page = auditor.get(f"{AUDIT}{entry.pk}/change/")
        assert page.status_code == 200
        assert b"POST api/sessions" in page.content
        assert b'name="_save"' not in page.content

    def test_without_a_link_to_sessions_they_may_not_see(self, auditor: Client):
        keep()
        assert page_of("s") not in auditor.get(AUDIT).content.decode()

    def test_to_see_sessions_is_not_enough(self, viewer: Client, stranger: Client):
        [entry] = keep()
        for client in (viewer, stranger):
            for address in (AUDIT, f"{AUDIT}{entry.pk}/change/", f"{AUDIT}{entry.pk}/history/"):
                assert client.get(address).status_code == 403

    def test_nobody_changes_anything(self, admin_client: Client):
        [entry] = keep()
        row = AuditEntry.objects.values().get()
        sent = {"actor": "8", "action": "delete_selected", "_selected_action": str(entry.pk), "post": "yes"}
        for address in (f"{AUDIT}add/", f"{AUDIT}{entry.pk}/change/", f"{AUDIT}{entry.pk}/delete/"):
            assert admin_client.post(address, sent).status_code == 403
        admin_client.post(AUDIT, sent)
        assert AuditEntry.objects.values().get() == row


class TestFound:
    def test_by_a_whole_session_id_or_user(self, admin_client: Client):
        keep(session_id="case-1")
        keep(session_id="case-12")
        keep(session_id="other", actor="case-1")
        assert sorted(sessions_of(admin_client.get(AUDIT, {"q": " case-1 "}))) == ["case-1", "other"]
        assert sessions_of(admin_client.get(AUDIT, {"q": "case"})) == []

    def test_by_user_request_and_day(self, admin_client: Client):
        keep(session_id="a", actor="1", action="DELETE api/sessions")
        keep(session_id="b", actor="2", days=10)
        assert sessions_of(admin_client.get(AUDIT)) == ["a", "b"]
        assert sessions_of(admin_client.get(AUDIT, {"who": "2"})) == ["b"]
        assert sessions_of(admin_client.get(AUDIT, {"what": "DELETE api/sessions"})) == ["a"]
        week_ago = (timezone.localdate() - timedelta(days=7)).isoformat()
        assert sessions_of(admin_client.get(AUDIT, {"to": week_ago})) == ["b"]
        assert sessions_of(admin_client.get(AUDIT, {"from": week_ago})) == ["a"]
        assert sessions_of(admin_client.get(AUDIT, {"who": "2", "from": week_ago})) == []

    def test_filters_offer_what_there_is(self, admin_client: Client):
        keep(actor="ann", action="PUT api/x")
        page = admin_client.get(AUDIT).content.decode()
        assert "?who=ann" in page
        assert "?what=PUT" in page

    @each("name", ["q", "who", "what", "from", "to", "p"])
    @each("value", ["\x00", "\ud800", "x" * 5000, "%", "'", HOSTILE, "0001-01-01", "9999-12-31"])
    def test_nonsense_in_the_address(self, admin_client: Client, name: str, value: str):
        keep()
        response = admin_client.get(AUDIT, {name: value.encode("utf-8", "surrogatepass")})
        assert response.status_code in (200, 302)
        assert HOSTILE.encode() not in response.content

    @each("key", ["x", "7", "%00", str(uuid4())])
    def test_an_entry_that_is_not(self, admin_client: Client, key: str):
        assert admin_client.get(f"{AUDIT}{key}/change/").status_code == 302


def test_hostile_text_is_text(admin_client: Client):
    names = ("actor", "session_id", "action", "code", "address", "request_id")
    fields: dict[str, Any] = dict.fromkeys(names, HOSTILE)
    get_user_model().objects.create_user(HOSTILE, pk=4711)
    [entry] = keep(**fields)
    keep(actor="4711")
    for address in (AUDIT, f"{AUDIT}{entry.pk}/change/", f"{AUDIT}?q=<script>"):
        assert HOSTILE.encode() not in admin_client.get(address).content


def test_query_count_does_not_depend_on_the_rows(admin_client: Client, admin_user: Any):
    counts = []
    for rows in (5, 1_000):
        for number in range(5):
            keep(rows // 5, actor=str(number), session_id=f"s-{number}")
        admin_client.get(AUDIT)
        with CaptureQueriesContext(connection) as queries:
            assert admin_client.get(AUDIT).status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]
    assert counts[0] <= 9


def test_counts_are_bounded(admin_client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(paginator, "COUNTED", 3)
    monkeypatch.setattr(paginator.bounded_count, "__defaults__", (3,))
    keep(5)
    response = admin_client.get(AUDIT)
    assert response.context["cl"].paginator.count == 3
    assert b"More than 3 entries" in response.content


def test_a_session_leads_to_its_entries(
    admin_client: Client, viewer: Client, store: SessionStore, auditor: Client
):
    store.create_session("a&b #1", agent_type="a")
    keep(session_id="a&b #1")
    keep(session_id="a")
    address = f"{AUDIT}?q=a%26b+%231"
    assert address in admin_client.get(page_of("a&b #1", "log")).content.decode()
    assert sessions_of(admin_client.get(address)) == ["a&b #1"]
    assert AUDIT not in viewer.get(page_of("a&b #1", "log")).content.decode()
