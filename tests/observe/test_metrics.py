"""Metrics: counted from the database and in the process, closed to strangers, without content."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.django_db


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_the_sessions_do(client, admin_user, store, session):
    store.create_session("t", agent_type="swordfish")
    store.create_run("t")
    store.update_status(session, "failed")
    store.set_interrupt_flag("t", "stop")
    client.force_login(admin_user)
    found = samples(client.get("/metrics").content.decode())
    assert found["helix_sessions_sessions", "failed"] == 1
    assert found["helix_sessions_sessions", "active"] == 1
    assert found["helix_sessions_running",] == found["helix_sessions_interrupts_requested",] == 1
    assert not any("swordfish" in part for name in found for part in name)


def test_what_this_process_served(client, admin_user, api, session):
    api.get("/api/sessions/s/")
    api.get("/api/sessions/unknown/")
    client.force_login(admin_user)
    found = samples(client.get("/metrics").content.decode())
    route = "api/sessions/<helix_id:session_id>"
    assert found["helix_sessions_api_requests_total", "GET", route, "200"] >= 1
    assert found["helix_sessions_api_requests_total", "GET", route, "404"] >= 1
    assert found["helix_sessions_api_request_seconds_count", "GET", route] >= 2
    assert not any("unknown" in part for name in found for part in name)


def test_is_closed(client, stranger, settings):
    assert client.get("/metrics").status_code == 403
    client.force_login(stranger)
    assert client.get("/metrics").status_code == 403


def test_a_scraper_has_a_token(client, settings):
    settings.HELIX_SESSIONS = {"METRICS_TOKEN": "s3cret"}
    assert client.get("/metrics", headers={"Authorization": "Bearer s3cret"}).status_code == 200
    for wrong in ("Bearer s3cre", "Bearer ", "s3cret", "Bearer \xe9"):
        assert client.get("/metrics", headers={"Authorization": wrong}).status_code == 403
    settings.HELIX_SESSIONS = {}
    assert client.get("/metrics", headers={"Authorization": "Bearer "}).status_code == 403
