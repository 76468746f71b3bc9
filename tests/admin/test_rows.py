"""The rows of the list: why, what was used, how long; sorted, counted, narrowed, saved as views."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from helix_sessions.admin import filters, paginator, saved_views
from helix_sessions.models import SavedView, Session
from helix_sessions.runtime import ChangeModel, SessionRuntime
from helix_sessions.store import SessionStore
from tests.admin.places import LIST, rows_of
from tests.rows import each

pytestmark = pytest.mark.django_db

VIEWS = SavedView._default_manager


def row_of(client: Client, session_id: str, **query: str) -> str:
    """The text of a row."""
    page = client.get(LIST, query).content.decode()
    for row in re.findall(r"<tr>.*?</tr>", page, re.DOTALL):
        if f">{session_id}<" in row:
            return " ".join(re.sub(r"<[^>]*>", " ", row).split())
    raise AssertionError(f"{session_id} is not listed")


def waits_for_a_person(store: SessionStore, key: str, count: int = 1) -> None:
    store.begin_turn(key, message="Pay.", agent_type="refunds", run_id="r")
    calls = [
        {"tool_call_id": f"c{n}", "tool_name": f"pay_{n}", "arguments": {"token": "t"}, "kind": "approval"}
        for n in range(count)
    ]
    store.suspend(key, "client_tool", state=store.load_state(key), run_id="r", pending_calls=calls)


class TestWhy:
    @each(
        ("failure", "said"),
        [
            ({"failure_reason": "budget spent"}, "budget spent"),
            ({"failure_reason": "x", "error": {"code": "timeout", "message": "too slow"}}, "too slow"),
            ({"failure_reason": "x", "error": {"code": "timeout"}}, "timeout"),
            ({"failure_reason": "x", "error": "plain"}, "plain"),
            ({"failure_reason": "x", "error": {"message": None}}, "x"),
            ({"failure_reason": "x", "error": {"message": "<b>bold</b>"}}, "&lt;b&gt;bold&lt;/b&gt;"),
            ({"failure_reason": "x", "error": {"message": "a  \n b" + "c" * 100}}, "a b" + "c" * 76 + "…"),
        ],
    )
    def test_it_failed(self, admin_client: Client, store: SessionStore, failure: Any, said: str):
        store.create_session("s", agent_type="a")
        store.update_status("s", "failed", **failure)
        assert f" {said} " in row_of(admin_client, "s")

    def test_what_it_waits_for(self, admin_client: Client, store: SessionStore):
        waits_for_a_person(store, "one")
        waits_for_a_person(store, "three", 3)
        store.begin_turn("parent", agent_type="editor", run_id="r")
        wait = {"parent_tool_call_id": "c", "sub_session_id": "child", "agent_type": "a"}
        state = store.load_state("parent")
        store.suspend("parent", "awaiting_children", state=state, run_id="r", awaiting_children=[wait])
        store.create_session("stopping", agent_type="a")
        store.set_interrupt_flag("stopping", "enough")
        assert "Approve pay_0 " in row_of(admin_client, "one")
        assert "Approve pay_0 and 2 more" in row_of(admin_client, "three")
        assert "Waits for child" in row_of(admin_client, "parent")
        assert "enough" in row_of(admin_client, "stopping")


def used(store: SessionStore, key: str, **usage: Any) -> None:
    store.create_session(key, agent_type="a")
    run = store.create_run(key)
    store.update_run_status(key, run.run_id, "completed", usage=usage)


def test_tokens_cost_model_and_duration(admin_client: Client, store: SessionStore):
    used(store, "s", input_tokens=12_000, output_tokens=345, cost=0.0123, model="large-2")
    Session.objects.filter(session_id="s").update(created_at=timezone.now() - timedelta(hours=2))
    store.update_status("s", "completed")
    row = row_of(admin_client, "s")
    for part in ("0.0123", "12.3k tokens", "large-2", "lasted 2 h"):
        assert part in row, part
    store.create_session("t", agent_type="a")
    SessionRuntime(store).execute("t", ChangeModel("small"))
    assert "small" in row_of(admin_client, "t")


class TestOrder:
    COLUMNS = {"messages": 4, "cost": 5, "activity": 6, "age": 7}

    def order(self, client: Client, column: str) -> list[str]:
        """By the link of a heading."""
        page = client.get(LIST).content.decode()
        place = self.COLUMNS[column.lstrip("-")]
        assert f"?o={place}" in page, column
        sign = "-" if column.startswith("-") else ""
        return rows_of(client.get(LIST, {"o": f"{sign}{place}"}))

    def three(self, store: SessionStore) -> None:
        now = timezone.now()
        for number, key in enumerate(("a", "b", "c")):
            used(store, key, cost=(5, 50, 0.5)[number])
            store.append_messages(key, [{"role": "user", "content": "x"}] * (number + 1))
            then = now - timedelta(hours=(1, 3, 2)[number])
            Session.objects.filter(session_id=key).update(
                updated_at=then, created_at=now - timedelta(days=number)
            )

    def test_by_last_activity_age_cost_and_messages(self, admin_client: Client, store: SessionStore):
        self.three(store)
        expected = {"cost": "cab", "-cost": "bac", "messages": "abc", "-messages": "cba"}
        expected |= {"activity": "bca", "-activity": "acb", "age": "abc", "-age": "cba"}
        for column, keys in expected.items():
            assert self.order(admin_client, column) == list(keys), column

    def test_of_many_the_newest_are_sorted_and_the_page_says_so(
        self, admin_client: Client, store: SessionStore, monkeypatch: pytest.MonkeyPatch
    ):
        from helix_sessions.admin import SessionAdmin

        self.three(store)
        monkeypatch.setattr(paginator, "COUNTED", 2)
        monkeypatch.setattr(paginator.bounded_count, "__defaults__", (2,))
        monkeypatch.setattr(SessionAdmin, "list_per_page", 1)
        response = admin_client.get(LIST, {"o": "-4"})
        assert rows_of(response) == ["b"]
        assert b"These are what is sorted here." in response.content
        assert rows_of(admin_client.get(LIST, {"o": "-4", "p": "2"})) == ["a"]


class TestFilterLine:
    def counts(self, client: Client, **query: str) -> dict[str, str]:
        page = client.get(LIST, query).content.decode()
        found = re.findall(r'<option value="([^"]+)"[^>]*>[^<(]*\(([^)]*)\)', page)
        return {name: count for name, count in found if count != "0"}

    def some(self, store: SessionStore) -> None:
        for number in range(5):
            store.create_session(f"s-{number}", agent_type="a" if number < 3 else "b")
        store.update_status("s-0", "failed")
        store.update_status("s-3", "failed")
        store.create_run("s-1")

    def test_choices_have_counts(self, admin_client: Client, store: SessionStore):
        self.some(store)
        assert self.counts(admin_client) == {"active": "3", "failed": "2", "running": "1"}

    def test_counts_are_within_the_other_filters(self, admin_client: Client, store: SessionStore):
        self.some(store)
        assert self.counts(admin_client, agent="a") == {"active": "2", "failed": "1", "running": "1"}
        assert self.counts(admin_client, agent="a", status="failed") == {"active": "2", "failed": "1"}
        found = self.counts(admin_client, **{"is": "running"})
        assert found == {"active": "1", "running": "1"}

    def test_counts_that_are_not_whole_say_so(
        self, admin_client: Client, store: SessionStore, monkeypatch: pytest.MonkeyPatch
    ):
        from helix_sessions.admin import facets

        self.some(store)
        monkeypatch.setattr(facets, "COUNTED", 2)
        assert self.counts(admin_client)["active"] == "2+"
        assert self.counts(admin_client, agent="a")["active"].endswith("+")

    def test_counts_are_one_query(self, admin_client: Client, store: SessionStore):
        self.some(store)
        for query in ({}, {"agent": "a", "status": "failed"}):
            admin_client.get(LIST, query)
            with CaptureQueriesContext(connection) as queries:
                admin_client.get(LIST, query)
            assert len([q for q in queries if "count(" in q["sql"].lower()]) <= 2, query

    def test_each_filter_can_be_taken_off(self, admin_client: Client, store: SessionStore):
        self.some(store)
        query = {"agent": "a", "status": "failed", "q": "s-", "created_from": "2020-01-01", "o": "4"}
        response = admin_client.get(LIST, query)
        applied = {str(item.label): item for item in response.context["cl"].applied}
        assert {label: str(item.value) for label, item in applied.items()} == {
            "search": "s-",
            "status": "Failed",
            "agent type": "a",
            "created": "2020-01-01 to …",
        }
        without = applied["status"].without
        assert without == "?agent=a&created_from=2020-01-01&o=4&q=s-"
        assert sorted(rows_of(admin_client.get(LIST + without))) == ["s-0", "s-1", "s-2"]
        assert f'href="{without}"'.replace("&", "&amp;") in response.content.decode()

    def test_what_is_chosen_stays_in_the_form(self, admin_client: Client, store: SessionStore):
        self.some(store)
        page = admin_client.get(
            LIST, {"agent": "a", "status": "failed", "q": "s", "o": "-4"}
        ).content.decode()
        form = page[page.index('id="hx-filters"') :].split("</form>")[0]
        for part in (
            'name="q" value="s"',
            '<option value="failed" selected>',
            'name="agent" value="a"',
            'name="o" value="-4"',
        ):
            assert part in form, part

    def test_any_agent_type_can_be_chosen(
        self, admin_client: Client, store: SessionStore, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(filters, "AGENT_TYPES_SHOWN", 2)
        for name in ("x", "y", "z"):
            store.create_session(name, agent_type=name)
        page = admin_client.get(LIST, {"agent": "z"})
        assert rows_of(page) == ["z"]
        assert '<input type="text" name="agent" value="z" list=' in page.content.decode()
        assert page.content.decode().count('<option value="x"></option>') == 1


class TestViews:
    SAVE = f"{LIST}views/save/"

    def save(self, client: Client, name: str, query: str) -> Any:
        return client.post(self.SAVE, {"name": name, "query": query})

    def test_saved_opened_shared_and_removed(self, admin_client: Client, viewer: Client, store: SessionStore):
        store.create_session("s", agent_type="a")
        store.create_session("t", agent_type="b")
        response = self.save(admin_client, " Of  b ", "agent=b&p=3")
        assert response.url == f"{LIST}?agent=b"
        view = VIEWS.get()
        assert (view.name, view.query) == ("Of b", "agent=b")
        page = admin_client.get(LIST).content.decode()
        assert f'href="?view={view.view_id}">Of b</a>' in page
        for client in (admin_client, viewer):
            opened = client.get(LIST, {"view": view.view_id}, follow=True)
            assert rows_of(opened) == ["t"]
        assert "Of b" not in viewer.get(LIST).content.decode()
        assert viewer.post(f"{LIST}views/{view.view_id}/remove/").status_code == 404
        assert VIEWS.exists()
        admin_client.post(f"{LIST}views/{view.view_id}/remove/")
        assert not VIEWS.exists()
        assert rows_of(admin_client.get(LIST, {"view": view.view_id}, follow=True)) == ["t", "s"]

    def test_the_same_name_again_replaces(self, admin_client: Client, viewer: Client):
        self.save(admin_client, "mine", "agent=a")
        before = VIEWS.get().view_id
        self.save(admin_client, "mine", "agent=b")
        self.save(viewer, "mine", "agent=c")
        assert sorted(VIEWS.values_list("query", flat=True)) == ["agent=b", "agent=c"]
        assert VIEWS.filter(view_id=before, query="agent=b").exists()

    @each(
        ("name", "query"),
        [("", "a=b"), ("x", ""), ("x", "p=2"), ("x", "a=" + "b" * 3_000), ("\x00", "a=b"), (" ", "a=b")],
    )
    def test_refused(self, admin_client: Client, name: str, query: str):
        assert self.save(admin_client, name, query).status_code == 302
        assert not VIEWS.exists()

    def test_only_so_many(self, admin_client: Client, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(saved_views, "MOST", 2)
        for number in range(3):
            self.save(admin_client, str(number), "agent=a")
        assert VIEWS.count() == 2

    def test_need_the_permission_and_go_with_their_operator(self, stranger: Client, viewer: Client):
        assert self.save(stranger, "x", "agent=a").status_code == 403
        assert viewer.get(self.SAVE).status_code == 405
        self.save(viewer, "x", "agent=a")
        view = VIEWS.get()
        assert stranger.post(f"{LIST}views/{view.view_id}/remove/").status_code == 403
        assert stranger.get(LIST, {"view": view.view_id}).status_code == 403
        get_user_model().objects.get(pk=view.owner.pk).delete()
        assert not VIEWS.exists()
