"""Nothing that a request says makes the server call somebody."""

import socket

import pytest

pytestmark = pytest.mark.django_db

URL = "http://evil.example/x"


def test_nothing_connects_to_an_address_from_a_request(api, session, monkeypatch, engine):
    reached = []

    def refuse(*args, **kwargs):
        reached.append(args)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    bodies = [
        ("post", "/api/sessions/", {"agent_type": URL, "workspace_ref": {"provider_id": URL, "url": URL}}),
        (
            "post",
            "/api/sessions/s/messages/",
            {"messages": [{"role": "user", "content": [{"image_url": URL}]}]},
        ),
        ("post", "/api/sessions/s/events/", {"type": "note", "data": {"$ref": URL, "callback": URL}}),
        ("patch", "/api/sessions/s/metadata/", {"webhook": URL}),
        ("put", "/api/sessions/s/state/", {"custom_state": {"url": URL}, "location": {"url": URL}}),
        (
            "post",
            "/api/sessions/s/sub-sessions/",
            {"refs": [{"sub_session_id": URL, "agent_type": URL, "location": "remote"}]},
        ),
    ]
    for method, path, body in bodies:
        assert getattr(api, method)(path, body).status_code < 300, path
    api.delete("/api/sessions/s/")
    assert reached == []
