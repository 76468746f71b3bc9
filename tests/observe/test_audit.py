"""Who did what: every change and every refusal through the API, with the change or not at all."""

import logging

import pytest
from django.contrib.admin.models import LogEntry

from helix_sessions.models import AuditEntry
from helix_sessions.store.keyed import audits
from tests.admin.places import action

pytestmark = pytest.mark.django_db

SAID = {"messages": [{"role": "user", "content": "swordfish"}]}
MESSAGES = "/api/sessions/s/messages/"


@pytest.fixture
def trail(settings):
    settings.HELIX_SESSIONS = {**getattr(settings, "HELIX_SESSIONS", {}), "AUDIT_TRAIL": True}


def kept() -> list[tuple[object, ...]]:
    rows = AuditEntry.objects.order_by("at", "entry_id")
    return list(rows.values_list("actor", "session_id", "action", "status", "code"))


@pytest.mark.usefixtures("trail")
class TestTheTrail:
    def test_names_who_did_what(self, api, session, user):
        api.post(MESSAGES, SAID, headers={"X-Request-ID": "req-7"})
        assert kept() == [(str(user.pk), "s", "POST api/sessions/<helix_id:session_id>/messages", 201, None)]
        [entry] = AuditEntry.objects.all()
        assert (entry.request_id, entry.address) == ("req-7", "127.0.0.1")
        assert "swordfish" not in repr(AuditEntry.objects.values())

    def test_a_created_session_is_named(self, api, user):
        created = api.post("/api/sessions/", {"agent_type": "a"}).json()["session_id"]
        assert kept() == [(str(user.pk), created, "POST api/sessions", 201, None)]

    def test_a_refusal_is_kept_too(self, api, client_of, stranger, session, store):
        assert client_of(stranger).post(MESSAGES, SAID).status_code == 404
        api.put("/api/sessions/s/state/", {"custom_state": {}}, headers={"If-Match": '"99"'})
        assert [(row[0] == str(stranger.pk), *row[3:]) for row in kept()] == [
            (True, 404, "session_not_found"),
            (False, 412, "stale_state"),
        ]

    def test_reading_is_not(self, api, session):
        api.get("/api/sessions/s/")
        assert kept() == []

    def test_it_outlives_the_session_and_the_user(self, api, session, user):
        api.delete("/api/sessions/s/")
        key = str(user.pk)
        user.delete()
        assert kept() == [(key, "s", "DELETE api/sessions/<helix_id:session_id>", 204, None)]

    def test_what_cannot_be_told_is_not_done(self, api, session, store, monkeypatch):
        def fail(*args):
            raise RuntimeError("the trail is full")

        monkeypatch.setattr("helix_sessions.store.keyed.audits.keep", fail)
        with pytest.raises(RuntimeError):
            api.post(MESSAGES, SAID)
        assert store.get_message_count("s") == 0

    def test_a_repeated_request_is_kept_each_time(self, api, session, store):
        for _ in range(2):
            api.post(MESSAGES, SAID, headers={"Idempotency-Key": "k"})
        assert store.get_message_count("s") == 1
        assert [row[3] for row in kept()] == [201, 201]

    def test_a_made_up_request_id_does_not_reach_the_log(self, api, session):
        for given in ("x" * 500, "a\u202eb", "\x7f"):
            api.post(MESSAGES, SAID, headers={"X-Request-ID": given})
        assert all(len(entry.request_id or "") <= 128 for entry in AuditEntry.objects.all())


class TestTheLog:
    def test_tells_of_changes_without_content(self, api, session, user, caplog):
        with caplog.at_level(logging.INFO, "helix_sessions.audit"):
            api.post(MESSAGES, SAID)
            api.get(MESSAGES)
        [record] = caplog.records
        assert (record.actor, record.session_id, record.status) == (str(user.pk), "s", 201)
        assert "swordfish" not in repr(vars(record))

    def test_without_the_setting_nothing_is_stored(self, api, session):
        api.post(MESSAGES, SAID)
        assert kept() == []


def test_the_admin_keeps_its_own(client, admin_user, store):
    """Actions of operators are events of the session, and entries of Django's log."""
    store.create_session("s", agent_type="a")
    client.force_login(admin_user)
    client.post(action("interrupt"), {"ids": '["s"]', "reason": "too slow"})
    [event] = store.get_events("s", types=["operator_action"])
    assert event.data["by"]["username"] == admin_user.get_username()
    assert LogEntry.objects.get().object_id == "s"


def test_a_deed_has_no_room_for_content():
    assert set(audits.Deed.__slots__) == {
        *("actor", "session_id", "action", "status", "code", "address", "request_id")
    }
