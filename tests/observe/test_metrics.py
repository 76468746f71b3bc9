"""Metrics: counted from the database and in the process, closed to strangers, without content."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from helix_sessions.runtime import UNAVAILABLE, CompactionPolicy
from tests.contract.sources import Said

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


def test_what_contexts_cost(client, admin_user, store, session):
    client.force_login(admin_user)

    def figures():
        found = samples(client.get("/metrics").content.decode())
        return {name: value for name, value in found.items() if name[0].startswith("helix_sessions_context_")}

    before = figures()
    day, place = Said("metered-day", "swordfish"), Said("metered-place", "here")
    store.reconcile_context(session, [day, place])
    day.value, place.value = "monday", UNAVAILABLE
    outcome = store.reconcile_context(session, [day, place])
    grown = store.reconcile_context(session, [day, place])
    day.value = "tuesday"
    store.reconcile_context(session, [day, place])
    store.append_messages(session, [{"role": "user", "content": "hello"}])
    store.compact(session, lambda request: "summary", CompactionPolicy(None, keep_recent=0))
    place.value = "here"
    last = store.reconcile_context(session, [day, place])
    after = figures()

    def rise(*name):
        return after[name] - before.get(name, 0)

    prefix = "helix_sessions_context"
    assert rise(f"{prefix}_observation_seconds_count", "metered-day") == 5
    assert rise(f"{prefix}_unavailable_total", "metered-place") == 3
    assert rise(f"{prefix}_unavailable_total", "metered-day") == 0
    assert rise(f"{prefix}_baseline_characters_count") == rise(f"{prefix}_update_characters_count") == 2
    assert rise(f"{prefix}_growth_characters_count") == 1
    assert rise(f"{prefix}_growth_characters_sum") > outcome.update_characters > 0
    assert not any("swordfish" in part for name in after for part in name)

    assert set(outcome.observed) == {"metered-day", "metered-place"}
    assert outcome.unavailable == ["metered-place"]
    assert grown.kind == "unchanged"
    assert grown.update_characters == outcome.update_characters
    assert (last.kind, last.update_characters, last.unavailable) == ("replaced", 0, [])
