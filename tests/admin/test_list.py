"""The session list: found by index, cheap at any size, never a document."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from helix_sessions.admin import paginator
from helix_sessions.models import Session
from helix_sessions.models.fields import DocumentField
from helix_sessions.models.session_querysets import next_prefix
from helix_sessions.store import SessionStore
from tests.admin.places import LIST, make_stuck, rows_of
from tests.rows import each

pytestmark = pytest.mark.django_db


def make(store: SessionStore, count: int, prefix: str = "s", **fields: object) -> None:
    for number in range(count):
        store.create_session(f"{prefix}-{number:04}", agent_type="a", **fields)  # type: ignore[arg-type]


def copy(store: SessionStore, first: int, end: int) -> None:
    """Many rows quickly, out of one."""
    if not store.session_exists("original"):
        store.create_session("original", agent_type="a", user_id="u")
    row = Session.objects.get(session_id="original")
    copies = []
    for number in range(first, end):
        row.session_id = f"copy-{number:05}"
        copies.append(Session(**{f.attname: getattr(row, f.attname) for f in Session._meta.concrete_fields}))
    Session.objects.bulk_create(copies, batch_size=500)


def test_query_count_does_not_depend_on_the_rows(admin_client: Client, store: SessionStore):
    counts = []
    for first, end in ((1, 10), (10, 1_000)):
        copy(store, first, end)
        admin_client.get(LIST)
        with CaptureQueriesContext(connection) as queries:
            assert admin_client.get(LIST).status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]
    assert counts[0] <= 8


def test_reads_documents_only_as_far_as_a_row_shows_them(admin_client: Client, store: SessionStore):
    long = "x" * 50_000
    store.create_session("s", agent_type="a", metadata={"k": long})
    store.update_status("s", "failed", failure_reason="broken", error={"message": long})
    with CaptureQueriesContext(connection) as queries:
        page = admin_client.get(LIST).content.decode()
    assert f"{'x' * 79}…" in page
    assert "x" * 80 not in page
    documents = {f.column for f in Session._meta.concrete_fields if isinstance(f, DocumentField)} - {"usage"}
    read = [query["sql"] for query in queries if 'FROM "helix_sessions_session"' in query["sql"]]
    assert read
    for sql in read:
        selected = sql.split(" FROM ")[0]
        whole = [name for name in documents if f'"{name}"::text,' in selected or f'"{name}",' in selected]
        assert not whole, sql


@each(
    ("term", "found"),
    [
        ("case-1", ["case-1", "case-12"]),
        ("case-12", ["case-12"]),
        ("ann", ["case-2"]),
        ("invoices", ["invoices-7", "case-3"]),
        ("ase-1", ["case-1", "case-12"]),
        ("ASE-12", ["case-12"]),
        ("_ase", []),
        ("case-%", []),
        ("nobody", []),
        ("  case-12 ", ["case-12"]),
        ("x" * 300, []),
    ],
)
def test_search(admin_client: Client, store: SessionStore, term: str, found: list[str]):
    store.create_session("case-1", agent_type="support")
    store.create_session("case-12", agent_type="support")
    store.create_session("case-2", agent_type="support", user_id="ann")
    store.create_session("case-3", agent_type="invoices")
    store.create_session("invoices-7", agent_type="support")
    response = admin_client.get(LIST, {"q": term})
    assert sorted(rows_of(response)) == sorted(found)


def test_search_within_a_filter(admin_client: Client, store: SessionStore):
    make(store, 3)
    store.update_status("s-0001", "failed")
    assert rows_of(admin_client.get(LIST, {"q": "s-", "status": "failed"})) == ["s-0001"]


@each("prefix", ["a", "z\U0010ffff", "\U0010ffff", "a\ud7ff", "é"])
def test_next_prefix_is_the_least_text_above(prefix: str):
    above = next_prefix(prefix)
    if above is None:
        assert set(prefix) == {"\U0010ffff"}
    else:
        assert prefix < prefix + "\U0010ffff" * 5 < above


def test_conditions(admin_client: Client, store: SessionStore):
    make(store, 6)
    store.create_run("s-0001")
    store.create_run("s-0002")
    make_stuck("s-0002")
    store.set_interrupt_flag("s-0003")
    store.set_expiry("s-0004", timezone.now() - timedelta(hours=1))
    state = store.load_state("s-0005")
    from dataclasses import replace

    store.save_state("s-0005", replace(state, pending_client_tool_calls={"c": {"tool_name": "ask"}}))

    def shown(condition: str) -> list[str]:
        return sorted(rows_of(admin_client.get(LIST, {"is": condition})))

    assert shown("stuck") == ["s-0002"]
    assert shown("running") == ["s-0001", "s-0002"]
    assert shown("stopping") == ["s-0003"]
    assert shown("expired") == ["s-0004"]
    assert shown("waiting") == ["s-0005"]
    assert len(shown("nonsense")) == 6


def test_stuck_after_as_many_minutes_as_the_setting_says(
    admin_client: Client, store: SessionStore, settings: object
):
    make(store, 1)
    store.create_run("s-0000")
    make_stuck("s-0000", minutes=20)
    assert rows_of(admin_client.get(LIST, {"is": "stuck"})) == ["s-0000"]
    settings.HELIX_SESSIONS = {"STUCK_MINUTES": 30}  # type: ignore[attr-defined]
    assert rows_of(admin_client.get(LIST, {"is": "stuck"})) == []


def test_status_agent_and_days(admin_client: Client, store: SessionStore):
    make(store, 2)
    store.create_session("other", agent_type="b")
    store.update_status("other", "failed")
    Session.objects.filter(session_id="s-0001").update(created_at=timezone.now() - timedelta(days=10))
    assert rows_of(admin_client.get(LIST, {"status": "failed"})) == ["other"]
    assert rows_of(admin_client.get(LIST, {"agent": "b"})) == ["other"]
    week_ago = (timezone.localdate() - timedelta(days=7)).isoformat()
    assert rows_of(admin_client.get(LIST, {"created_to": week_ago})) == ["s-0001"]
    assert "s-0001" not in rows_of(admin_client.get(LIST, {"created_from": week_ago}))
    assert (
        len(rows_of(admin_client.get(LIST, {"created_from": "not a day", "created_to": "2026-13-45"}))) == 3
    )


@each("name", ["q", "agent", "status", "is", "created_from", "created_to", "p"])
@each("value", ["\x00", "\ud800", "x" * 5000, "%", "'", "0001-01-01", "9999-12-31"])
def test_nonsense_in_the_address(admin_client: Client, name: str, value: str):
    response = admin_client.get(LIST, {name: value.encode("utf-8", "surrogatepass")})
    assert response.status_code in (200, 302)


def test_agent_types_are_found_without_reading_every_session(store: SessionStore):
    for name in ("b", "a", "c", "a"):
        store.create_session(None, agent_type=name)
    assert Session.objects.agent_types(2) == ["a", "b"]
    assert Session.objects.agent_types(9) == ["a", "b", "c"]


def test_counts_are_bounded(admin_client: Client, store: SessionStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(paginator, "COUNTED", 3)
    monkeypatch.setattr(paginator.bounded_count, "__defaults__", (3,))
    make(store, 5)
    response = admin_client.get(LIST)
    assert response.context["cl"].paginator.count == 3
    assert b"More than 3 sessions" in response.content


def test_a_large_table_is_estimated(store: SessionStore, engine: str, monkeypatch: pytest.MonkeyPatch):
    if engine != "postgresql":
        assert paginator.estimated_rows(Session.objects.all()) is None
        return
    monkeypatch.setattr(paginator, "COUNTED", 3)
    copy(store, 0, 200)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE helix_sessions_session")
    pages = paginator.BoundedPaginator(Session.objects.newest_first(), 2)
    assert pages.estimate == 201
    assert pages.count == 3
    filtered = paginator.BoundedPaginator(Session.objects.active().newest_first(), 2)
    assert filtered.estimate is None


def test_status_is_told_in_words_colour_and_icon(admin_client: Client, store: SessionStore):
    make(store, 1)
    page = admin_client.get(LIST).content.decode()
    assert 'class="hx-chip hx-is-active"' in page
    assert 'href="#hx-dot"' in page
    assert "<span>Active</span>" in page
