"""Live and ready."""

import pytest
from django.db import connection, connections

from helix_sessions import health


def test_live_asks_nothing(client):
    answer = client.get("/health/live")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert "no-cache" in answer["Cache-Control"]


@pytest.mark.django_db
def test_ready(client):
    answer = client.get("/health/ready")
    assert answer.status_code == 200
    assert answer.json()["checks"] == {"database": "ok", "migrations": "ok", "encryption": "ok"}


@pytest.mark.django_db
def test_a_database_that_does_not_answer(client, monkeypatch):
    def gone(*args, **kwargs):
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(connections["default"], "cursor", gone)
    answer = client.get("/health/ready")
    assert answer.status_code == 503
    assert answer.json()["checks"]["database"] == "failing"
    assert "hunter2" not in answer.content.decode()


@pytest.mark.django_db
def test_tables_of_another_version(client, monkeypatch):
    health._migrated.clear()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'helix_sessions'")
    assert client.get("/health/ready").json()["checks"]["migrations"] == "failing"
    health._migrated.clear()


@pytest.mark.django_db
def test_keys_that_are_none(client, settings):
    settings.HELIX_SESSIONS = {"ENCRYPTION": {"keys": {"a": "short"}, "active": "a"}}
    answer = client.get("/health/ready")
    assert (answer.status_code, answer.json()["checks"]["encryption"]) == (503, "failing")


@pytest.mark.django_db
def test_only_reading(client):
    assert client.post("/health/ready").status_code == 405
