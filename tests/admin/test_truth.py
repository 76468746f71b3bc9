"""What the console says is so: conditions, numbers, forms that show what is set, ways back."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from helix_sessions.admin import presentation
from helix_sessions.admin.pages import sentences
from helix_sessions.models import Session, SubSessionRef
from helix_sessions.runtime import Budget, ChangeBudget, ChangeModel, SessionRuntime
from helix_sessions.store import SessionStore
from tests.admin.places import ACTIONS, LIST, action, make_busy_session, make_stuck, page_of, rows_of
from tests.rows import each

pytestmark = pytest.mark.django_db


def act(client: Client, name: str, *ids: str, **answers: str) -> Any:
    return client.post(action(name), {"ids": json.dumps(ids), "reason": "because", **answers})


def asks(store: SessionStore, session_id: str) -> None:
    """A session that waits for a person."""
    store.begin_turn(session_id, message="Pay.", agent_type="refunds", run_id="r")
    call = {"tool_call_id": "c", "tool_name": "pay_back", "arguments": {}, "kind": "approval"}
    state = store.load_state(session_id)
    store.suspend(session_id, "client_tool", state=state, run_id="r", pending_calls=[call])


class TestConditions:
    @each("name", ["export", "interrupt", "set_expiry", "change_model"])
    def test_what_an_operator_does_is_no_sign_of_the_agent(
        self, admin_client: Client, store: SessionStore, name: str
    ):
        make_busy_session(store)
        make_stuck("busy")
        act(admin_client, name, "busy", change="day", model="large")
        assert rows_of(admin_client.get(LIST, {"is": "stuck"})) == ["busy"]
        assert "has given no sign for" in admin_client.get(page_of("busy")).content.decode()

    def test_a_session_that_has_ended_is_in_no_condition(self, admin_client: Client, store: SessionStore):
        make_busy_session(store, "ran")
        make_stuck("ran")
        store.set_interrupt_flag("ran")
        store.set_expiry("ran", timezone.now() - timedelta(hours=1))
        asks(store, "asked")
        for key in ("ran", "asked"):
            store.update_status(key, "failed", failure_reason="broken")
        for condition in ("stuck", "waiting", "running", "stopping", "expired"):
            assert rows_of(admin_client.get(LIST, {"is": condition})) == [], condition
        for key in ("ran", "asked"):
            found = Session.objects.get(session_id=key)
            assert list(presentation.condition_chips(found, timezone.now())) == []
            tones = {remark.tone for remark in presentation.remarks(found)}
            assert tones <= {"failed"}, (key, tones)


class TestDeletes:
    def test_say_how_many_sub_sessions_go_however_many_and_deep(
        self, admin_client: Client, store: SessionStore
    ):
        store.create_session("wide", agent_type="a")
        row = Session.objects.get(session_id="wide")
        values = {f.attname: getattr(row, f.attname) for f in Session._meta.concrete_fields}
        children = [
            Session(**{**values, "session_id": f"child-{n:03}", "parent_session_id": "wide"})
            for n in range(620)
        ]
        parent = "child-000"
        for depth in range(30):
            key = f"deep-{depth:02}"
            children.append(Session(**{**values, "session_id": key, "parent_session_id": parent}))
            parent = key
        Session.objects.bulk_create(children)
        store.add_sub_session_refs(
            "wide",
            [
                {"sub_session_id": "elsewhere", "agent_type": "a", "location": "remote"},
                {"sub_session_id": "not-yet", "agent_type": "a"},
            ],
        )
        assert SubSessionRef.objects.filter(session_id="wide").count() == 2
        page = admin_client.get(action("delete", "wide", "child-000")).content.decode()
        assert "649 sub-sessions go with it" in page
        report = admin_client.get(act(admin_client, "delete", "wide", "child-000").url).content.decode()
        assert "2 sessions were deleted. 649 sub-sessions went with" in report
        assert not Session.objects.exists()


class TestForms:
    LIMITS = Budget(max_steps=7, max_cost=0.5, deadline=datetime(2031, 2, 3, 4, 5, tzinfo=UTC))

    def given(self, store: SessionStore, *ids: str) -> None:
        for key in ids:
            store.create_session(key, agent_type="a")
            SessionRuntime(store).execute(key, ChangeBudget(self.LIMITS))
            SessionRuntime(store).execute(key, ChangeModel("large"))

    def budget(self, store: SessionStore, key: str) -> Budget | None:
        return SessionRuntime(store).get_session(key).state.budget

    def inputs(self, client: Client, name: str, *ids: str) -> dict[str, str]:
        """What a browser would send of the form as it is."""
        page = client.get(action(name, *ids)).content.decode()
        fields = re.findall(r"<input type=\"(?!checkbox)[^>]*>", page)
        pairs = [(re.search(r'name="([^"]*)"', f), re.search(r'value="([^"]*)"', f)) for f in fields]
        return {n[1]: v[1].replace("&quot;", '"') if v else "" for n, v in pairs if n}

    def test_show_what_is_set(self, admin_client: Client, store: SessionStore):
        self.given(store, "s")
        found = self.inputs(admin_client, "change_budget", "s")
        assert (found["max_steps"], found["max_cost"], found["max_tokens"]) == ("7", "0.5", "")
        assert found["deadline"] == "2031-02-03T04:05"
        assert self.inputs(admin_client, "change_model", "s")["model"] == "large"

    def test_of_several_sessions_show_what_they_have_in_common(
        self, admin_client: Client, store: SessionStore
    ):
        self.given(store, "s", "t")
        SessionRuntime(store).execute("t", ChangeBudget(Budget(max_steps=9, max_cost=0.5)))
        SessionRuntime(store).execute("t", ChangeModel("small"))
        found = self.inputs(admin_client, "change_budget", "s", "t")
        assert (found["max_steps"], found["max_cost"]) == ("", "0.5")
        assert self.inputs(admin_client, "change_model", "s", "t")["model"] == ""

    def test_an_untouched_form_changes_nothing(self, admin_client: Client, store: SessionStore):
        self.given(store, "s")
        for name in ("change_budget", "change_model"):
            for data in ({}, self.inputs(admin_client, name, "s")):
                sent = {**data, "reason": "because", "ids": '["s"]'}
                response = admin_client.post(action(name), sent)
                assert response.status_code == 422, name
        assert self.budget(store, "s") == self.LIMITS
        assert SessionRuntime(store).get_session("s").state.model == "large"

    def test_only_what_was_changed_changes(self, admin_client: Client, store: SessionStore):
        self.given(store, "s", "t")
        SessionRuntime(store).execute("t", ChangeBudget(Budget(max_steps=9)))
        sent = self.inputs(admin_client, "change_budget", "s", "t")
        sent |= {"reason": "because", "max_tokens": "100"}
        assert admin_client.post(action("change_budget"), sent).status_code == 302
        assert self.budget(store, "t") == Budget(max_steps=9, max_tokens=100)
        changed = self.budget(store, "s")
        assert changed is not None
        assert (changed.max_steps, changed.max_tokens) == (7, 100)
        sent = self.inputs(admin_client, "change_budget", "s") | {"reason": "because", "max_steps": ""}
        admin_client.post(action("change_budget"), sent)
        changed = self.budget(store, "s")
        assert changed is not None
        assert (changed.max_steps, changed.max_cost) == (None, 0.5)

    def test_limits_and_models_are_removed_when_asked_to(self, admin_client: Client, store: SessionStore):
        self.given(store, "s")
        assert act(admin_client, "change_budget", "s", unlimited="on").status_code == 302
        assert act(admin_client, "change_model", "s", default="on").status_code == 302
        assert self.budget(store, "s") is None
        assert SessionRuntime(store).get_session("s").state.model is None

    def test_the_first_thing_to_fill_in_has_the_focus(self, admin_client: Client, store: SessionStore):
        make_busy_session(store)
        for name in ACTIONS:
            page = admin_client.get(action(name, "busy")).content.decode()
            assert page.count(" autofocus") == 1, name


class TestWaysBack:
    QUERY = "agent=a&amp;status=active"

    def chosen(self, client: Client, store: SessionStore) -> str:
        for key in ("s", "t"):
            store.create_session(key, agent_type="a")
        chosen = {"action": "interrupt", "_selected_action": ["s"]}
        return str(client.post(f"{LIST}?agent=a&status=active", chosen).content.decode())

    def test_filters_are_kept_by_cancel(self, admin_client: Client, store: SessionStore):
        assert f'href="{LIST}?{self.QUERY}">Cancel' in self.chosen(admin_client, store)

    def test_filters_are_kept_by_the_action(self, admin_client: Client, store: SessionStore):
        page = self.chosen(admin_client, store)
        found = re.search(r'name="list" value="([^"]*)"', page)
        assert found is not None
        listed = found[1].replace("&amp;", "&")
        response = act(admin_client, "interrupt", "s", list=listed)
        assert response.url == f"{LIST}?agent=a&status=active"
        response = act(admin_client, "interrupt", "s", "gone", list=listed)
        assert f'href="{LIST}?{self.QUERY}"' in response.content.decode()

    def test_and_by_a_form_that_was_wrong(self, admin_client: Client, store: SessionStore):
        self.chosen(admin_client, store)
        response = act(admin_client, "interrupt", "s", list="agent=a&status=active", reason="")
        assert f'href="{LIST}?{self.QUERY}">Cancel' in response.content.decode()

    @each("value", ["//evil.example", "\x00", "&" * 9_000, "a=%zz", "javascript:alert(1)"])
    def test_lead_nowhere_else(self, admin_client: Client, store: SessionStore, value: str):
        store.create_session("s", agent_type="a")
        response = act(admin_client, "interrupt", "s", list=value)
        assert response.url.startswith(LIST)


@each(
    ("kind", "data", "sentence"),
    [
        ("model_call_failed", {}, "Model error"),
        ("model_call_failed", {"error": {"code": "timeout"}}, "Model error: timeout"),
        ("model_call_failed", {"error": {"code": "x", "message": "slow"}}, "Model error: slow"),
        ("model_call_failed", {"error": {"message": " "}, "retry_at": "z"}, "Model error · retried"),
        ("llm_error", {"error": {"message": "down"}}, "Model error: down"),
        ("llm_error", {"message": "down"}, "Model error: down"),
        ("llm_error", {}, "Model error"),
        ("tool_error", {}, "Tool failed"),
        ("tool_error", {"error": {"type": "ValueError"}}, "Tool failed: ValueError"),
        ("error", {"error": None}, "Error"),
    ],
)
def test_errors_are_told_or_not_announced(kind: str, data: Any, sentence: str):
    assert sentences.sentence(kind, data) == sentence


def test_badges_count_what_their_pages_list(admin_client: Client, store: SessionStore):
    make_busy_session(store)
    store.create_session("grandchild", agent_type="a", parent_session_id="busy-child")
    asks(store, "asked")
    wait = {"parent_tool_call_id": "w", "sub_session_id": "busy-child", "agent_type": "helper"}
    store.begin_turn("editor", agent_type="editor", run_id="r")
    state = store.load_state("editor")
    store.suspend("editor", "awaiting_children", state=state, run_id="r", awaiting_children=[wait])

    def badges(key: str) -> dict[str, int | None]:
        return {name: count for name, _, count in admin_client.get(page_of(key)).context["tabs"]}

    def page(key: str, name: str) -> Any:
        return admin_client.get(page_of(key, name)).context

    for key in ("busy", "asked", "editor"):
        found = badges(key)
        assert found["timeline"] == Session.objects.get(session_id=key).head_seq
        assert found["runs"] == len(page(key, "runs")["runs"]), key
        assert found["tree"] == page(key, "tree")["tree"].count, key
        assert found["staging"] == len(page(key, "staging")["staged"]), key
        shown = page(key, "calls")
        waiting = [call for call in shown["pending"] if call.submitted_at is None]
        assert found["calls"] == len(waiting) + len(shown["awaited"]), key
        pending = [item for item in page(key, "inbox")["inputs"] if item.state == "Pending"]
        assert found["inbox"] == len(pending), key


def test_a_button_that_needs_javascript_is_not_there_without_it():
    from pathlib import Path

    import helix_sessions

    css = (Path(helix_sessions.__file__).parent / "static/helix_sessions/console.css").read_text()
    assert re.search(r"\.hx \[hidden\][^{]*\{[^}]*display: none !important", css)
