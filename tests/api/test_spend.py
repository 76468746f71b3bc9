"""Spending over HTTP: users see their own, operators see all and keep the limits."""

import pytest

from tests.api.test_problems import is_problem

pytestmark = pytest.mark.django_db

URL = "/api/spend/"


@pytest.fixture
def operator(django_user_model, client_of, grant):
    return client_of(grant(django_user_model.objects.create_user("op"), "change_spendlimit"))


def test_a_limit_is_set_listed_and_deleted(operator, store):
    body = {"scope": "agent_type", "key": "writer", "window": "day", "usd": 1.5, "warn_at": 0.5}
    made = operator.post(URL, body)
    assert made.status_code == 201, made.content
    limit = made.json()
    assert {**limit, "limit_id": ""} == {**body, "limit_id": "", "tokens": None, "enabled": True}
    again = operator.post(URL, {**body, "usd": None, "tokens": 7, "enabled": False}).json()
    assert (again["limit_id"], again["usd"], again["tokens"]) == (limit["limit_id"], None, 7)
    assert operator.get(f"{URL}limits/").json() == {"items": [again], "next_cursor": None}
    path = f"{URL}limits/{limit['limit_id']}/"
    assert operator.delete(path).status_code == 204
    is_problem(operator.delete(path), 404, "not_found")
    assert store.list_spend_limits() == []


def test_bad_values(operator, store):
    good = {"scope": "all", "window": "day", "usd": 1}
    bad = [
        {},
        {"scope": "all", "window": "day"},
        {**good, "scope": "team"},
        {**good, "window": "week"},
        {**good, "key": "x"},
        {**good, "scope": "owner"},
        {**good, "scope": "owner", "key": "nobody"},
        {**good, "usd": -1},
        {**good, "usd": "1"},
        {**good, "tokens": 1.5},
        {**good, "warn_at": 80},
        {**good, "enabled": 1},
        {**good, "more": 1},
    ]
    for body in bad:
        answer = operator.post(URL, body)
        assert answer.status_code == 400, (body, answer.content)
    assert store.list_spend_limits() == []


def test_who_sees_what(api, operator, store, user, stranger, client_of, grant):
    """A participant sees how their own limits stand: not those of others, of agent types, or of all."""
    for scope, key in (("owner", user), ("owner", stranger), ("agent_type", "writer"), ("all", None)):
        store.set_spend_limit(scope=scope, key=key, window="day", usd=2)
    store.create_session("mine", agent_type="writer", owner=user)
    run = store.create_run("mine").run_id
    store.update_run_status("mine", run, "completed", usage={"cost": 0.5, "input_tokens": 10})
    page = api.get(URL).json()
    [own] = page["items"]
    assert page["next_cursor"] is None
    assert {**own, "resets_at": None} == {
        **{"scope": "owner", "key": str(user.pk), "window": "day", "used_usd": 0.5, "used_tokens": 10},
        **{"limit_usd": 2.0, "limit_tokens": None, "resets_at": None},
    }
    assert api.get(f"{URL}?owner={user.pk}").json()["items"] == [own]
    for path in (f"{URL}?owner={stranger.pk}", f"{URL}?agent_type=writer", f"{URL}limits/"):
        is_problem(api.get(path), 403, "permission_denied")
    driver = client_of(grant(user, "drive_session"))
    assert driver.get(URL).json()["items"] == [own]
    is_problem(driver.post(URL, {"scope": "all", "window": "day", "usd": 9}), 403, "permission_denied")
    is_problem(api.delete(f"{URL}limits/x/"), 403, "permission_denied")
    assert len(operator.get(URL).json()["items"]) == 4
    assert operator.get(f"{URL}?owner={user.pk}").json()["items"] == [own]
    assert [each["key"] for each in operator.get(f"{URL}?agent_type=writer").json()["items"]] == ["writer"]
    viewer = client_of(grant(stranger, "view_spendlimit"))
    assert len(viewer.get(URL).json()["items"]) == 4
    is_problem(viewer.get(f"{URL}limits/"), 403, "permission_denied")
