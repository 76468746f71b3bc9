"""The dashboard counts, links, and stays cheap."""

import re
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from helix_sessions.admin import dashboard as module
from helix_sessions.admin.dashboard import dashboard
from helix_sessions.admin.paginator import bounded_count
from helix_sessions.messages.usage import usage_of
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from tests.admin.places import APP, make_stuck
from tests.rows import each

pytestmark = pytest.mark.django_db


def make_sessions(store: SessionStore) -> None:
    for number in range(4):
        store.create_session(f"s-{number}", agent_type="support")
        run = store.create_run(f"s-{number}")
        if number < 2:
            usage = {"input_tokens": 100, "output_tokens": 10, "cost": 0.25}
            store.update_run_status(f"s-{number}", run.run_id, "completed", usage=usage)
            store.update_status(f"s-{number}", "completed")
    store.create_session("other", agent_type="invoices")
    make_stuck("s-3")


def test_numbers(store: SessionStore):
    make_sessions(store)
    found = dashboard()
    assert {number.kind: number.value for number in found.statuses if number.value} == {
        "active": 3,
        "completed": 2,
    }
    assert {number.kind: number.value for number in found.conditions if number.value} == {
        "running": 2,
        "stuck": 1,
    }
    assert found.total == 5
    today = found.days[-1]
    assert (today.created, today.ended) == (5, 2)
    first = found.agents[0]
    assert (first.name, first.sessions, first.usage.tokens, first.usage.cost) == ("support", 4, 220, 0.5)


def test_a_total_of_parts_that_were_not_counted_to_the_end_says_so(
    admin_client: Client, store: SessionStore, monkeypatch: pytest.MonkeyPatch
):
    make_sessions(store)
    assert re.search(r">5</a>", admin_client.get(APP).content.decode())
    cache.clear()
    monkeypatch.setattr(module, "COUNTED", 1)
    monkeypatch.setattr(module, "bounded_count", lambda rows: bounded_count(rows, 1))
    found = dashboard()
    assert (found.total, found.is_bounded) == (2, True)  # of two statuses, one each
    assert re.search(r">2\+</a>", admin_client.get(APP).content.decode())


def test_days(store: SessionStore):
    make_sessions(store)
    then = timezone.now() - timedelta(days=3)
    Session.objects.filter(session_id="s-0").update(created_at=then, status_since=then)
    day = dashboard().days[-4]
    assert (day.created, day.ended) == (1, 1)


def test_every_number_leads_to_a_list(admin_client: Client, store: SessionStore):
    make_sessions(store)
    text = admin_client.get(APP).content.decode()
    links = set(re.findall(r'href="(/admin/helix_sessions/session/\?[^"]*)"', text))
    assert len(links) >= 5 + 5 + 14 + 2
    for link in links:
        assert admin_client.get(link.replace("&amp;", "&")).status_code == 200


def test_queries_are_bounded_and_kept(admin_client: Client, store: SessionStore):
    counts = []
    for _ in range(2):
        make_sessions(store)
        cache.clear()
        with CaptureQueriesContext(connection) as queries:
            dashboard()
        counts.append(len(queries))
        assert all("LIMIT" in q["sql"] or "pg_" in q["sql"] for q in queries)
        for key in Session.objects.values_list("session_id", flat=True):
            store.delete_session(key)
    assert counts[0] == counts[1]
    with CaptureQueriesContext(connection) as queries:
        dashboard()
    assert len(queries) == 0


def test_an_empty_database(admin_client: Client):
    assert admin_client.get(APP).status_code == 200


@each(
    ("report", "tokens", "cost"),
    [
        ({"input_tokens": 3, "output_tokens": 4}, 7, 0),
        ({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}, 7, 0),
        ({"total_tokens": 9, "cost_usd": 0.5}, 9, 0.5),
        ({"input_tokens": "many", "cost": None}, 0, 0),
        ({"input_tokens": True, "output_tokens": -1}, 0, 0),
        ({"input_tokens": 10**400}, 0, 0),
        ("nonsense", 0, 0),
        (None, 0, 0),
    ],
)
def test_usage_in_anyones_words(report: object, tokens: int, cost: float):
    usage = usage_of(report)
    assert (usage.tokens, usage.cost) == (tokens, cost)
