"""Headers and cursors that somebody made up."""

import base64
import json

import pytest
from django.test import Client

from tests.rows import each

pytestmark = pytest.mark.django_db

LISTINGS = {
    "sessions": "/api/sessions/",
    "messages": "/api/sessions/s/messages/",
    "events": "/api/sessions/s/events/",
    "runs": "/api/sessions/s/runs/",
    "checkpoints": "/api/sessions/s/checkpoints/",
    "staging": "/api/sessions/s/staging/",
    "sub-sessions": "/api/sessions/s/sub-sessions/",
}


def cursor(*values: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


FORGED = [
    "",
    "x",
    "%00",
    "=" * 50,
    "A" * 10_000,
    cursor(),
    cursor("sessions"),
    cursor("sessions", None, None),
    cursor("sessions", "2000-01-01T00:00:00", "s"),
    cursor("sessions", "9999-99-99T00:00:00+00:00", "s"),
    cursor("sessions", "0001-01-01T00:00:00+23:59", "s"),
    cursor("messages", "oldest", -1),
    cursor("messages", "oldest", 2**64),
    cursor("messages", "newest", True),
    cursor("messages", "'; DROP TABLE helix_sessions_session; --", 0),
    cursor("events", "1"),
    cursor("events", 10**400),
    cursor("runs", 1.5),
    cursor("checkpoints", {"$gt": 0}),
    cursor("staging", [1]),
    cursor("sub-sessions", "\x00"),
    base64.urlsafe_b64encode(b"[" * 5_000).decode(),
    base64.urlsafe_b64encode(b"\xff\xfe").decode(),
]


@each("listing", LISTINGS)
@each("forged", FORGED, ids=range(len(FORGED)))
def test_a_forged_cursor(listing, forged, api, session):
    answer = api.get(LISTINGS[listing], {"cursor": forged})
    assert answer.status_code in (200, 400)
    if answer.status_code == 400:
        assert answer.json()["code"] in ("invalid_cursor", "invalid_input")
    else:  # a place that could be one: still nothing but this user's session
        shown = answer.json()
        assert all(item.get("session_id", "s") == "s" for item in shown.get("items", []))


HEADERS = [
    {"If-Match": value}
    for value in (
        "",
        "*",
        "1",
        '"',
        '"1',
        'W/"1"',
        '"-1"',
        '"999999999999999999999"',
        '"1", "2"',
        "x" * 9_000,
    )
]
HEADERS += [{"If-None-Match": value} for value in ("*", '"1"', 'W/"1"', "\t", '"' * 99)]
HEADERS += [
    {"Idempotency-Key": value} for value in ("", "\t", "x" * 256, "ü", "\x7f", "a\u202eb", "' OR 1=1 --")
]
HEADERS += [
    {"X-HTTP-Method-Override": "DELETE"},
    {"X-Forwarded-User": "ada"},
    {"Remote-User": "ada"},
    {"X-Original-URL": "/admin/"},
    {"X-Forwarded-Host": "evil.example"},
    {"Accept": "text/html"},
    {"Accept": "application/json;q=nan"},
    {"Accept-Encoding": "identity;q=0"},
    {"Accept-Language": "x" * 5_000},
    {"Content-Encoding": "gzip"},
    {"Range": "bytes=0-1"},
    {"Last-Event-ID": "-1"},
    {"Prefer": "wait=999999"},
]


@each("headers", HEADERS, ids=str)
def test_headers(headers, api, session, store):
    for method, path, body in (
        ("get", "/api/sessions/s/", None),
        ("get", "/api/sessions/s/messages/", None),
        ("post", "/api/sessions/s/messages/", {"messages": [{"role": "user", "content": "x"}]}),
        ("patch", "/api/sessions/s/metadata/", {"a": 1}),
    ):
        answer = getattr(api, method)(path, body, headers=headers)
        assert answer.status_code < 500, (method, path)
        assert "evil.example" not in answer.content.decode()
        assert "evil.example" not in str(answer.headers)
    assert store.session_exists(session)


@each(
    "authorization",
    [
        "Bearer",
        "Bearer ",
        "Bearer  a b",
        "bearer \xff",
        "Basic YWRhOng=",
        "Token x",
        "Bearer " + "x" * 9_000,
        "Bearer \x00",
    ],
    ids=repr,
)
def test_authorization(authorization, session):
    answer = Client().get("/api/sessions/s/", headers={"Authorization": authorization})
    assert answer.status_code in (401, 400)


def test_a_login_by_cookie_needs_the_csrf_token(user, session):
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    answer = client.post("/api/sessions/s/messages/", {"messages": []}, content_type="application/json")
    assert answer.status_code == 403


@each("origin", ["https://evil.example", "null"])
def test_no_other_site_is_invited(origin, api, session):
    answer = api.get("/api/sessions/s/", headers={"Origin": origin})
    assert "Access-Control-Allow-Origin" not in answer
    preflight = api.options(
        "/api/sessions/s/", headers={"Origin": origin, "Access-Control-Request-Method": "POST"}
    )
    assert "Access-Control-Allow-Origin" not in preflight
