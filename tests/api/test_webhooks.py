"""Webhooks over HTTP."""

import json

import pytest

from tests.api.test_problems import is_problem

pytestmark = pytest.mark.django_db

URL = "https://hooks.example.com/agents"


@pytest.fixture
def operator(user, client_of, grant):
    return client_of(grant(user, "change_webhook"))


def test_a_webhook_is_made_listed_changed_and_deleted(operator):
    made = operator.post("/api/webhooks/", {"url": URL, "events": ["run.finished"]})
    assert made.status_code == 201
    webhook = made.json()
    assert webhook.pop("secret").startswith("whsec_")
    assert set(webhook) == {"webhook_id", "url", "events", "enabled", "created_at"}
    assert operator.get("/api/webhooks/").json() == {"items": [webhook], "next_cursor": None}
    path = f"/api/webhooks/{webhook['webhook_id']}/"
    assert operator.get(path).json() == webhook
    changed = operator.patch(path, {"events": [], "enabled": False})
    assert changed.json() == {**webhook, "events": [], "enabled": False}
    assert operator.delete(path).status_code == 204
    for answer in (operator.get(path), operator.patch(path, {}), operator.delete(path)):
        is_problem(answer, 404, "webhook_not_found")
    is_problem(operator.get(f"{path}deliveries/"), 404, "webhook_not_found")


def test_a_given_secret_is_returned_once(operator):
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    made = operator.post("/api/webhooks/", {"url": URL, "secret": secret}).json()
    assert made["secret"] == secret
    path = f"/api/webhooks/{made['webhook_id']}/"
    for answer in (
        operator.get("/api/webhooks/"),
        operator.get(path),
        operator.patch(path, {"enabled": True}),
    ):
        assert "whsec_" not in answer.content.decode()
        assert "secret" not in answer.content.decode()


def test_what_is_no_webhook_is_refused(operator):
    for body in (
        *({}, {"url": "http://hooks.example.com/"}, {"url": "ftp://hooks.example.com/"}, {"url": 1}),
        *({"url": f"https://{host}/"} for host in ("127.0.0.1", "localhost", "a.localhost", "[::1]")),
        *({"url": f"https://{host}/"} for host in ("169.254.169.254", "[fd00::1]", "[::ffff:10.0.0.1]")),
        *({"url": f"https://{host}/"} for host in ("2130706433", "0x7f.1", "127.1", "0", "LOCALHOST.")),
        {"url": "https://user:pass@hooks.example.com/"},
        {"url": f"https://hooks.example.com/{'x' * 2000}"},
        {"url": URL, "events": ["run.started"]},
        {"url": URL, "events": "run.finished"},
        {"url": URL, "secret": "hunter2"},
        {"url": URL, "secret": "whsec_dG9vIHNob3J0"},
        {"url": URL, "enabled": "perhaps"},
        {"url": URL, "owner": 1},
    ):
        is_problem(operator.post("/api/webhooks/", body), 400, "invalid_input")
    assert operator.get("/api/webhooks/").json()["items"] == []


def test_deliveries_are_paged_and_replayed(operator, store):
    path = f"/api/webhooks/{operator.post('/api/webhooks/', {'url': URL}).json()['webhook_id']}/deliveries/"
    store.create_session("s", agent_type="test")
    for number in range(3):
        store.create_run("s", run_id=f"r{number}")
        store.update_run_status("s", f"r{number}", "completed")
    page = operator.get(f"{path}?limit=2").json()
    rest = operator.get(f"{path}?limit=2&cursor={page['next_cursor']}").json()
    found = [*page["items"], *rest["items"]]
    assert [json.loads(item["body"])["data"]["run_id"] for item in found] == ["r2", "r1", "r0"]
    assert rest["next_cursor"] is None
    assert len(operator.get(f"{path}?state=waiting").json()["items"]) == 3
    assert operator.get(f"{path}?state=failed").json()["items"] == []
    is_problem(operator.get(f"{path}?state=lost"), 400, "invalid_input")
    is_problem(operator.get(f"{path}?cursor=x"), 400, "invalid_cursor")
    replayed = operator.post(f"{path}{found[0]['message_id']}/replay/")
    assert replayed.status_code == 200
    assert replayed.json()["state"] == "waiting"
    is_problem(operator.post(f"{path}999999/replay/"), 404, "webhook_not_found")
    other = operator.post("/api/webhooks/", {"url": URL}).json()["webhook_id"]
    foreign = f"/api/webhooks/{other}/deliveries/{found[0]['message_id']}/replay/"
    is_problem(operator.post(foreign), 404, "webhook_not_found")
