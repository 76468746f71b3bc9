"""Spend limits in the admin."""

import pytest
from django.contrib.auth.models import Permission

from helix_sessions import models

pytestmark = pytest.mark.django_db

LIST = "/admin/helix_sessions/spendlimit/"


@pytest.fixture
def operator(client, django_user_model):
    user = django_user_model.objects.create_user("op", is_staff=True)
    names = ("view_spendlimit", "change_spendlimit")
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    client.force_login(user)
    return client


def spend(store, session_id, usd, **fields):
    store.create_session(session_id, agent_type="writer", **fields)
    run = store.create_run(session_id).run_id
    store.update_run_status(session_id, run, "completed", usage={"cost": usd, "input_tokens": 1200})


def test_a_limit_is_set_changed_and_deleted(operator, store, django_user_model):
    ada = django_user_model.objects.create_user("ada")
    form = {"scope": "owner", "key": str(ada.pk), "window": "month", "usd": "20", "warn_at": "0.8"}
    made = operator.post(f"{LIST}add/", {**form, "enabled": "on"})
    assert made.status_code == 302, made.content.decode()
    [limit] = store.list_spend_limits()
    assert (limit.scope, limit.key, limit.window, limit.usd, limit.tokens, limit.warn_at, limit.enabled) == (
        *("owner", str(ada.pk), "month", 20.0, None, 0.8, True),
    )
    page = operator.get(f"{LIST}{limit.limit_id}/change/").content.decode()
    assert "$0.00" in page
    changed = operator.post(f"{LIST}{limit.limit_id}/change/", {"scope": "all", "usd": "30", "tokens": "5"})
    assert changed.status_code == 302, changed.content.decode()
    [again] = store.list_spend_limits()
    assert (again.limit_id, again.scope, again.usd, again.tokens, again.enabled) == (
        *(limit.limit_id, "owner", 30.0, 5, False),
    )
    assert operator.post(f"{LIST}{limit.limit_id}/delete/", {"post": "yes"}).status_code == 302
    assert store.list_spend_limits() == []


def test_what_is_used_left_and_who_is_close(operator, store, django_user_model):
    ada, bob = (django_user_model.objects.create_user(name) for name in ("ada", "bob"))
    for user, usd in ((ada, 9), (bob, 1), (None, 2)):
        spend(store, f"s{usd}", usd, owner=user)
    for user in (ada, bob):
        store.set_spend_limit(scope="owner", key=str(user.pk), window="month", usd=10)
    store.set_spend_limit(scope="all", window="total", usd=12, tokens=10_000)
    store.set_spend_limit(scope="agent_type", key="<script>", window="day", usd=1)
    models.SpendLimit.objects.create(scope="owner", key="gone", window="day", usd=1)
    page = operator.get(LIST).content.decode()
    for text in (
        "owner ada",
        "$9.00",
        "$1.00",
        "90% · close",
        "100% · reached",
        "3,600 tokens",
        "owner gone",
    ):
        assert text in page, text
    assert "<script>1" not in page
    assert "agent type &lt;script&gt;" in page
    close = operator.get(LIST, {"standing": "close"}).content.decode()
    assert "owner ada" in close
    assert "owner bob" not in close
    reached = operator.get(LIST, {"standing": "reached"}).content.decode()
    assert "100% · reached" in reached
    assert "owner ada" not in reached


def test_what_is_no_limit_is_said(operator, store):
    good = {"scope": "all", "window": "day", "usd": "1"}
    for bad in (
        {"usd": "-1"},
        {"usd": ""},
        {"key": "x"},
        {"scope": "owner"},
        {"warn_at": "80"},
        {"window": "week"},
    ):
        page = operator.post(f"{LIST}add/", {**good, **bad})
        assert page.status_code == 200, bad
        assert "errorlist" in page.content.decode(), bad
    assert store.list_spend_limits() == []


def test_who_may_only_look_changes_nothing(client, django_user_model, store):
    user = django_user_model.objects.create_user("clerk", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_spendlimit"))
    client.force_login(user)
    limit = store.set_spend_limit(scope="all", window="day", usd=1)
    assert client.get(LIST).status_code == 200
    assert client.post(f"{LIST}add/", {"scope": "all", "window": "day", "usd": 2}).status_code == 403
    assert client.post(f"{LIST}{limit.limit_id}/change/", {"usd": 2}).status_code == 403
    assert client.post(f"{LIST}{limit.limit_id}/delete/", {"post": "yes"}).status_code == 403
    assert store.list_spend_limits() == [limit]
