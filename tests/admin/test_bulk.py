"""Actions on all sessions of a filter: in batches, with progress, a report and a stop."""

import re
import threading
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.db import connections
from django.test import Client
from django.utils import timezone

from helix_sessions.admin import bulk, bulk_views, operations
from helix_sessions.admin.actions import ACTIONS
from helix_sessions.admin.companions import BulkRunner
from helix_sessions.models import BulkAction, Session
from helix_sessions.store import SessionStore
from helix_sessions.store.maintenance import bulk_actions
from tests.admin.places import LIST

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "BATCH", 3)
    monkeypatch.setattr(bulk_views, "AT_ONCE_SECONDS", 60.0)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests leave all of it to others."""
    monkeypatch.setattr(bulk_views, "AT_ONCE_SECONDS", -1.0)


def make_failed(store: SessionStore, count: int, agent_type: str = "support") -> None:
    for number in range(count):
        key = f"{agent_type}-{number:02}"
        store.create_session(key, agent_type=agent_type)
        store.compare_and_set_status(key, ["active"], "failed", error={"message": f"No port {number}"})


def ask(name: str, query: str, **more: str) -> str:
    extra = "".join(f"&{key}={quote(value)}" for key, value in more.items())
    return f"{LIST}action/{name}/?filter={quote(query, '')}{extra}"


def post(client: Client, name: str, query: str, **answers: str) -> Any:
    return client.post(f"{LIST}action/{name}/", {"filter": query, "reason": "because", **answers})


def retried() -> int:
    return Session.objects.filter(runnable_at__isnull=False).count()


def test_the_page_says_how_many_and_changes_nothing(store: SessionStore, admin_client: Client):
    make_failed(store, 5)
    make_failed(store, 2, "invoices")
    page = admin_client.get(ask("retry", "status=failed&agent=support&p=3"))
    assert page.context["count"] == 5
    assert "The last turns of 5 sessions will be tried again." in page.content.decode()
    focused = [
        name for name, field in page.context["form"].fields.items() if "autofocus" in field.widget.attrs
    ]
    assert focused == ["reason"]  # an operator types at once
    assert not BulkAction.objects.exists()
    assert retried() == 0


def test_the_page_says_how_many_of_the_first_would_be_left(store: SessionStore, admin_client: Client):
    make_failed(store, 2)
    store.create_session("fine", agent_type="support")
    page = admin_client.get(ask("retry", "agent=support")).content.decode()
    assert "Of the 3 shown below, 1 would be left as it is." in page
    form = admin_client.get(ask("approve_calls", "agent=support", tool="pay")).context["form"]
    assert "autofocus" not in form.fields["tool"].widget.attrs  # it is filled in


def test_thousands_can_be_read(admin_client: Client):
    assert ACTIONS["retry"].promised(1510) == "The last turns of 1,510 sessions will be tried again."
    assert ACTIONS["retry"].promised(1) == "The last turn of 1 session will be tried again."


def test_the_buttons_go_when_it_has_ended(store: SessionStore, admin_client: Client, later: None):
    make_failed(store, 2)
    post(admin_client, "retry", "status=failed")
    [row] = BulkAction.objects.all()
    place = f"{LIST}bulk/{row.bulk_id}/"
    page = admin_client.get(place).content.decode()
    assert page.count("data-until-ended") == 3  # Live; go on and stop; the help for them
    assert "data-ended" not in admin_client.get(f"{place}panel/").content.decode()
    bulk.advance(row.bulk_id)
    assert "data-ended" in admin_client.get(f"{place}panel/").content.decode()  # now.js takes them away
    assert "data-until-ended" not in admin_client.get(place).content.decode()


def test_a_small_one_is_done_with_the_request(store: SessionStore, admin_client: Client):
    make_failed(store, 7)
    make_failed(store, 2, "invoices")
    store.create_session("fine", agent_type="support")
    response = post(admin_client, "retry", "status=failed&agent=support")
    [row] = BulkAction.objects.all()
    assert response["Location"] == f"{LIST}bulk/{row.bulk_id}/"
    assert (row.state, row.done, row.failed, row.expected) == ("done", 7, 0, 7)
    assert retried() == 7
    assert LogEntry.objects.count() == 7
    assert store.get_events("support-00", types=["operator_action"])[0].data["reason"] == "because"
    page = admin_client.get(response["Location"]).content.decode()
    assert "Done" in page


def test_what_cannot_be_done_is_listed_and_stops_nothing(store: SessionStore, admin_client: Client):
    make_failed(store, 3)
    store.create_session("support-01-active", agent_type="support")
    post(admin_client, "retry", "agent=support")
    [row] = BulkAction.objects.all()
    assert (row.state, row.done, row.failed) == ("done", 3, 1)
    assert [key for key, _why in row.failures] == ["support-01-active"]
    page = admin_client.get(f"{LIST}bulk/{row.bulk_id}/").content.decode()
    assert "It has neither failed nor been stopped." in page


@pytest.mark.usefixtures("later")
def test_a_worker_goes_on_with_it(store: SessionStore, admin_client: Client):
    make_failed(store, 7)
    post(admin_client, "retry", "status=failed")
    assert retried() == 0
    runner = BulkRunner(None)
    assert runner.step(to_the_end=False) == 1
    [row] = BulkAction.objects.all()
    assert (row.state, row.done) == ("done", 7)
    assert runner.step(to_the_end=False) == 0


@pytest.mark.usefixtures("later")
def test_it_goes_on_where_another_died(store: SessionStore, admin_client: Client):
    make_failed(store, 7)
    post(admin_client, "retry", "status=failed")
    now = timezone.now()
    dead = bulk_actions.claim(store.using, now)
    assert dead is not None
    assert bulk.advance() is None  # somebody is at work on it
    bulk_actions.move_on(store.using, dead, cursor="support-03", done=4, failures=[])
    BulkAction.objects.update(claimed_until=now - bulk_actions.CLAIM)
    assert bulk.advance() is not None
    assert retried() == 3
    assert not bulk_actions.move_on(store.using, dead, cursor="support-00", done=1, failures=[])
    [row] = BulkAction.objects.all()
    assert (row.state, row.done) == ("done", 7)


@pytest.mark.usefixtures("later")
def test_it_can_be_stopped(store: SessionStore, admin_client: Client):
    make_failed(store, 7)
    post(admin_client, "retry", "status=failed")
    [row] = BulkAction.objects.all()
    admin_client.post(f"{LIST}bulk/{row.bulk_id}/stop/")
    row.refresh_from_db()
    assert row.state == "stopped"
    assert bulk.advance() is None
    assert retried() == 0


@pytest.mark.usefixtures("later")
def test_a_stop_ends_it_after_the_batch_under_way(
    store: SessionStore, admin_client: Client, monkeypatch: pytest.MonkeyPatch
):
    make_failed(store, 7)
    post(admin_client, "retry", "status=failed")
    [row] = BulkAction.objects.all()
    whole = operations.carry_out

    def stopped_meanwhile(*args: Any) -> Any:
        admin_client.post(f"{LIST}bulk/{row.bulk_id}/stop/")
        return whole(*args)

    monkeypatch.setattr(bulk, "carry_out", stopped_meanwhile)
    bulk.advance()
    row.refresh_from_db()
    assert (row.state, row.done) == ("stopped", 3)


@pytest.mark.usefixtures("later")
def test_sessions_that_come_later_are_not_among_them(store: SessionStore, admin_client: Client):
    make_failed(store, 2)
    post(admin_client, "retry", "status=failed")
    make_failed(store, 2, "zebra")
    bulk.advance()
    assert BulkAction.objects.get().done == 2


@pytest.mark.usefixtures("later")
def test_a_user_who_may_not_any_more(store: SessionStore, client_with: Any):
    make_failed(store, 2)
    client = client_with("view_session", "retry_session")
    post(client, "retry", "status=failed")
    get_user_model().objects.get().user_permissions.clear()
    bulk.advance()
    assert (BulkAction.objects.get().state, retried()) == ("failed", 0)


def test_who_may(store: SessionStore, viewer: Client, client_with: Any):
    make_failed(store, 2)
    assert viewer.get(ask("retry", "status=failed")).status_code == 403
    assert post(viewer, "retry", "status=failed").status_code == 403
    client = client_with("view_session", "retry_session")
    post(client, "retry", "status=failed")
    [row] = BulkAction.objects.all()
    for name in ("advance", "stop"):
        assert viewer.post(f"{LIST}bulk/{row.bulk_id}/{name}/").status_code == 403, name
        assert client.get(f"{LIST}bulk/{row.bulk_id}/{name}/").status_code == 405, name
    for place in ("bulk/", f"bulk/{row.bulk_id}/", f"bulk/{row.bulk_id}/panel/"):
        assert viewer.get(f"{LIST}{place}").status_code == 200, place
    assert viewer.get(f"{LIST}bulk/absent/").status_code == 404


def test_what_is_asked_wrongly_does_nothing(store: SessionStore, admin_client: Client):
    make_failed(store, 2)
    assert post(admin_client, "retry", "status=failed", reason=" ").status_code == 422
    assert admin_client.get(ask("branch", "status=failed")).status_code == 404
    assert admin_client.get(ask("export", "status=failed")).status_code == 404
    for unknown in ("nonsense=1", "owner__password=x", "created_at=x"):
        assert admin_client.get(ask("retry", unknown)).status_code == 404, unknown
        assert post(admin_client, "retry", unknown).status_code == 404, unknown
    assert not BulkAction.objects.exists()


def test_more_than_a_page_can_take_becomes_a_bulk_action(
    store: SessionStore, admin_client: Client, monkeypatch: pytest.MonkeyPatch
):
    from helix_sessions.admin import action_views

    monkeypatch.setattr(action_views, "MOST_AT_ONCE", 2)
    make_failed(store, 3)
    chosen = {"action": "retry", "_selected_action": ["support-00"], "select_across": "1"}
    response = admin_client.post(f"{LIST}?status=failed", chosen)
    assert response["Location"] == f"{LIST}action/retry/?filter=status%3Dfailed"


@pytest.mark.slow
@pytest.mark.usefixtures("later")
def test_all_2002_of_a_filter(store: SessionStore, admin_client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bulk, "BATCH", 20)
    make_failed(store, 1)
    row = Session.objects.get()
    values = {field.attname: getattr(row, field.attname) for field in Session._meta.concrete_fields}
    more = (Session(**{**values, "session_id": f"more-{number:04}"}) for number in range(2001))
    Session.objects.bulk_create(more, batch_size=500)
    store.create_session("fine", agent_type="support")
    listed = f"{LIST}?status=failed"
    assert "Select all 2002 sessions" in admin_client.get(listed).content.decode()
    chosen = {"action": "retry", "_selected_action": ["more-0000"], "select_across": "1"}
    asks = admin_client.get(admin_client.post(listed, chosen)["Location"])
    assert (asks.context["count"], asks.context["query"]) == (2002, "status=failed")
    began = post(admin_client, "retry", asks.context["query"])
    assert "of 2,002" in " ".join(
        re.sub("<[^>]*>", " ", admin_client.get(began.url).content.decode()).split()
    )
    BulkRunner(None, poll=1).step(to_the_end=True)
    [action] = BulkAction.objects.all()
    assert (action.state, action.done, action.failed, action.expected) == ("done", 2002, 0, 2002)
    assert retried() == LogEntry.objects.count() == 2002


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("later")
def test_two_workers_share_nothing_of_one(store: SessionStore, admin_client: Client):
    make_failed(store, 9)
    post(admin_client, "retry", "status=failed")

    def work() -> None:
        try:
            bulk.advance()
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [row] = BulkAction.objects.all()
    assert (row.state, row.done, row.failed) == ("done", 9, 0)
    assert LogEntry.objects.count() == 9
