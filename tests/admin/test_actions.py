"""Actions: who may, what they promise, what they do, what they leave behind."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.test import Client
from django.utils import timezone

from helix_sessions.admin import action_views, actions
from helix_sessions.models import Session
from helix_sessions.runtime import Budget, SessionRuntime
from helix_sessions.store import SessionStore
from tests.admin.places import ACTIONS, CALL_ACTIONS, LIST, action, make_busy_session, page_of
from tests.contract.suspended import approval, suspend, suspended
from tests.rows import each

pytestmark = pytest.mark.django_db

EXTRA: dict[str, dict[str, str]] = {
    "set_expiry": {"change": "day"},
    "branch": {"new_id": "the-branch"},
    "fork": {"new_id": "the-fork"},
    "change_model": {"model": "large"},
    "change_model_and_retry": {"model": "large"},
    "replay": {"new_id": "the-replay"},
    "approve_calls": {"tool": "pay"},
    "deny_calls": {"tool": "pay"},
    "change_budget": {"max_steps": "3", "max_cost": "0.5"},
}


def act(client: Client, name: str, *ids: str, **answers: str) -> Any:
    data = {"ids": json.dumps(ids), "reason": "because", **EXTRA.get(name, {}), **answers}
    return client.post(action(name), data)


def prepare(store: SessionStore, name: str) -> None:
    """Bring the session into a state that the action is for."""
    if name in ("reactivate", "resume", "retry", "change_model_and_retry"):
        store.update_status("busy", "paused")
    if name in ("rewind", "approve_calls", "deny_calls"):
        run = store.get_current_run("busy")
        assert run is not None
        store.update_run_status("busy", run.run_id, "completed")
    if name in ("approve_calls", "deny_calls"):
        Session.objects.filter(session_id="busy").update(lease_owner=None, lease_expires_at=None)
        store.begin_turn("busy", message="hello", run_id="asks")
        suspend(store, "busy", replace(approval("a"), tool_name="pay"))


@pytest.fixture(autouse=True)
def _busy(store: SessionStore, settings: Any) -> None:
    settings.HELIX_SESSIONS = {
        "SUMMARIZER": "project.summaries.brief",
        "COMPACTION": {"context_window": None, "keep_recent": 0},
    }
    make_busy_session(store)


def everything(store: SessionStore) -> Any:
    states = {key: store.load_state(key) for key in Session.objects.values_list("session_id", flat=True)}
    return states, store.get_staged_changes("busy")


every_action = each("name", ACTIONS)


class TestWhoMay:
    @every_action
    def test_viewer_changes_nothing_by_url(self, viewer: Client, store: SessionStore, name: str):
        before = everything(store)
        assert viewer.get(action(name, "busy")).status_code == 403
        assert act(viewer, name, "busy").status_code == 403
        listed = {"action": name, "_selected_action": ["busy"], "reason": "because", "ids": '["busy"]'}
        viewer.post(LIST, listed)
        assert everything(store) == before
        assert not LogEntry.objects.exists()

    @every_action
    def test_viewer_has_no_button(self, viewer: Client, name: str):
        assert action(name) not in viewer.get(page_of("busy")).content.decode()
        assert f'value="{name}"' not in viewer.get(LIST).content.decode()

    @every_action
    def test_another_permission_is_not_enough(self, client_with: Any, store: SessionStore, name: str):
        others = set(ACTIONS.values()) - {ACTIONS[name]}
        client = client_with("view_session", *others)
        before = everything(store)
        assert act(client, name, "busy").status_code == 403
        assert everything(store) == before

    @every_action
    def test_its_permission_without_seeing_is_not_enough(
        self, client_with: Any, store: SessionStore, name: str
    ):
        before = everything(store)
        assert act(client_with(ACTIONS[name]), name, "busy").status_code == 403
        assert everything(store) == before

    @every_action
    def test_its_own_permission_is_enough(self, client_with: Any, store: SessionStore, name: str):
        prepare(store, name)
        client = client_with("view_session", ACTIONS[name])
        assert action(name) in client.get(page_of("busy")).content.decode()
        assert act(client, name, "busy").status_code in (200, 302)
        assert LogEntry.objects.count() == 1

    @every_action
    def test_nobody(self, client: Client, store: SessionStore, name: str):
        before = everything(store)
        assert act(client, name, "busy").status_code == 302
        assert everything(store) == before

    @every_action
    def test_get_changes_nothing(self, admin_client: Client, store: SessionStore, name: str):
        before = everything(store)
        assert admin_client.get(action(name, "busy")).status_code == 200
        query = {"ids": '["busy"]', "reason": "because", **EXTRA.get(name, {})}
        admin_client.get(action(name), query)
        assert everything(store) == before

    @every_action
    def test_without_a_reason_nothing_happens(self, admin_client: Client, store: SessionStore, name: str):
        before = everything(store)
        response = act(admin_client, name, "busy", reason=" ")
        assert response.status_code == 422
        assert everything(store) == before

    @every_action
    def test_choosing_it_in_the_list_only_asks(self, admin_client: Client, store: SessionStore, name: str):
        before = everything(store)
        response = admin_client.post(LIST, {"action": name, "_selected_action": ["busy", "busy-child"]})
        if name in ("branch", "compact", "fork", "replay", "rewind"):
            assert response.status_code == 302
        else:
            assert response.status_code == 200
            assert 'name="reason"' in response.content.decode()
        assert everything(store) == before

    @every_action
    def test_it_is_logged_twice(self, admin_client: Client, store: SessionStore, name: str):
        prepare(store, name)
        act(admin_client, name, "busy")
        entry = LogEntry.objects.get()
        assert entry.object_id == "busy"
        assert "because" in entry.change_message
        if name != "delete":
            [event] = store.get_events("busy", types=["operator_action"])
            assert event.data["action"] == name
            assert event.data["reason"] == "because"
            assert event.data["by"]["username"] == "admin"
            assert set(event.data["by"]) == {"id", "username"}


def test_every_action_has_a_permission_of_its_own():
    known = {**ACTIONS, **CALL_ACTIONS}
    assert {name: each.permission for name, each in actions.ACTIONS.items()} == known
    assert len(set(known.values())) == len(known)
    ours = Permission.objects.filter(content_type__app_label="helix_sessions")
    assert ours.filter(codename__in=known.values()).count() == len(known)


class TestWhatTheyDo:
    def test_interrupt(self, admin_client: Client, store: SessionStore):
        act(admin_client, "interrupt", "busy")
        request = store.check_interrupt_flag("busy")
        assert request
        assert request.reason == "because"

    def test_interrupt_of_one_that_waits(self, admin_client: Client, store: SessionStore):
        """Nobody would see the request."""
        store.create_session("asks", agent_type="test")
        suspended(store, "asks", approval("call-1"))
        act(admin_client, "interrupt", "asks")
        state = store.load_state("asks")
        assert (state.status, state.interrupt_context) == ("interrupted", {"reason": "because"})
        assert store.peek_interrupt_flag("asks") is None
        assert store.submit_tool_result("asks", "call-1", approved=True).outcome == "already_completed"

    @each("status", ["paused", "interrupted"])
    def test_reactivate(self, admin_client: Client, store: SessionStore, status: str):
        store.update_status("busy", status)
        act(admin_client, "reactivate", "busy")
        assert store.load_state("busy").status == "active"

    def test_run_resume_and_retry(self, admin_client: Client, store: SessionStore):
        for name, status, after in (
            ("run", "completed", "completed"),
            ("resume", "interrupted", "active"),
            ("retry", "failed", "failed"),
        ):
            store.update_status("busy", status)
            store.cancel_input("busy", "busy-input") if store.list_inputs("busy") else None
            Session.objects.filter(session_id="busy").update(attempts=4, retry_attempt=2)
            act(admin_client, name, "busy")
            assert [row.session_id for row in store.list_runnable()] == ["busy"], name
            assert store.load_state("busy").status == after, name
            left = Session.objects.get(session_id="busy")
            assert (left.attempts, left.retry_attempt) == ((4, 2) if name == "run" else (0, 0)), name
            assert "Ready to run" in admin_client.get(page_of("busy")).content.decode()
            store.update_run_status("busy", store.begin_turn("busy").run.run_id, "completed")

    def test_only_for_whom_they_are(self, admin_client: Client, store: SessionStore):
        page = admin_client.get(page_of("busy")).content.decode()
        assert (action("run") in page, action("resume") in page, action("retry") in page) == (
            *(True, False, False),
        )

    def test_what_an_operator_sees_of_trouble(self, admin_client: Client, store: SessionStore):
        error = {"code": "crash_loop", "message": "It crashed 5 times.", "type": None}
        store.update_status("busy", "paused", error=error)
        Session.objects.filter(session_id="busy").update(attempts=5)
        page = admin_client.get(page_of("busy")).content.decode()
        for words in ("crash_loop · It crashed 5 times.", "Taken up 5 times"):
            assert words in page, words
        store.update_status("busy", "failed", error=error)
        cause = Session.objects.get(session_id="busy").error_fingerprint
        assert f"?cause={cause}" in admin_client.get(page_of("busy")).content.decode()

    def test_expire_is_what_the_cleanup_would_do(self, admin_client: Client, store: SessionStore):
        act(admin_client, "expire", "busy")
        state = store.load_state("busy")
        assert (state.status, state.failure_reason) == ("failed", "session_expired")
        assert store.expired_session_cleanup(rest=0).marked == 0
        [event] = store.get_events("busy", types=["operator_action"])
        assert event.data["changes"]["status"] == {"from": "active", "to": "failed"}

    def test_old_and_new_are_said(self, admin_client: Client, store: SessionStore):
        response = admin_client.get(act(admin_client, "set_expiry", "busy")["Location"])
        assert "Expires: none → 20" in response.content.decode()
        assert "Expires: none → 20" in LogEntry.objects.get().change_message
        act(admin_client, "change_model", "busy", model="small")
        act(admin_client, "change_model", "busy", model="large")
        event = store.get_events("busy", types=["operator_action"])[-1]
        assert event.data["changes"]["model"] == {"from": "small", "to": "large"}

    def test_rewind(self, admin_client: Client, store: SessionStore):
        prepare(store, "rewind")
        store.append_messages("busy", [{"role": "user", "content": "too late"}])
        act(admin_client, "rewind", "busy", checkpoint_id="first", run="on")
        state = store.load_state("busy")
        assert (state.custom_state, state.checkpoint_id) == ({"place": "depot"}, "first")
        assert state.message_count == 3
        assert Session.objects.get(session_id="busy").runnable_at is not None

    def test_rewind_to_a_checkpoint_that_is_not_there(self, admin_client: Client, store: SessionStore):
        prepare(store, "rewind")
        before = store.load_state("busy")
        response = act(admin_client, "rewind", "busy", checkpoint_id="absent")
        assert "absent" in response.content.decode()
        assert store.load_state("busy") == before

    def test_change_model_and_retry(self, admin_client: Client, store: SessionStore):
        store.update_status("busy", "failed", failure_reason="overloaded")
        act(admin_client, "change_model_and_retry", "busy")
        row = Session.objects.get(session_id="busy")
        assert row.runnable_at is not None
        loaded = SessionRuntime(store).get_session("busy")
        assert loaded.state.model == "large"

    def test_replay_with_another_model_and_prompt(self, admin_client: Client, store: SessionStore):
        before = store.load_state("busy")
        response = act(admin_client, "replay", "busy", model="large", system_prompt="Be brief.")
        assert response["Location"].endswith("/the-replay/change/")
        branch = SessionRuntime(store).get_session("the-replay")
        assert (branch.state.model, branch.state.system_prompt) == ("large", "Be brief.")
        messages = store.get_messages("the-replay").messages
        assert [message["role"] for message in messages] == ["user"]
        assert Session.objects.get(session_id="the-replay").runnable_at is not None
        after = store.load_state("busy")
        assert (after.message_count, after.status) == (before.message_count, before.status)

    def test_all_waiting_calls_of_a_tool(self, admin_client: Client, store: SessionStore):
        prepare(store, "approve_calls")
        response = act(admin_client, "approve_calls", "busy", tool="other")
        assert "No call of other" in response.content.decode()
        act(admin_client, "approve_calls", "busy")
        [answer] = store.get_events("busy", types=["tool_result_submitted"])
        assert (answer.data["answer"], answer.data["by"]["kind"]) == ("approved", "operator")

    @each(("change", "span"), [("hour", timedelta(hours=1)), ("month", timedelta(days=30))])
    def test_extend(self, admin_client: Client, store: SessionStore, change: str, span: timedelta):
        present = timezone.now() + timedelta(days=2)
        store.set_expiry("busy", present)
        act(admin_client, "set_expiry", "busy", change=change)
        assert store.load_state("busy").expires_at == present + span

    def test_extend_what_has_expired(self, admin_client: Client, store: SessionStore):
        store.set_expiry("busy", timezone.now() - timedelta(days=2))
        act(admin_client, "set_expiry", "busy", change="hour")
        expires_at = store.load_state("busy").expires_at
        assert expires_at
        assert timedelta(minutes=59) < expires_at - timezone.now() <= timedelta(hours=1)

    def test_set_and_remove_the_expiry(self, admin_client: Client, store: SessionStore):
        act(admin_client, "set_expiry", "busy", change="at", expires_at="2031-02-03T04:05")
        expires_at = store.load_state("busy").expires_at
        assert expires_at
        assert expires_at.isoformat() == "2031-02-03T04:05:00+00:00"
        act(admin_client, "set_expiry", "busy", change="never")
        assert store.load_state("busy").expires_at is None
        assert act(admin_client, "set_expiry", "busy", change="at").status_code == 422

    def test_fail_ends_the_run_too(self, admin_client: Client, store: SessionStore):
        act(admin_client, "fail", "busy")
        state = store.load_state("busy")
        assert (state.status, state.failure_reason) == ("failed", "because")
        assert store.get_current_run("busy") is None
        assert store.list_runs("busy").items[0].status == "failed"

    def test_branch_from_a_checkpoint(self, admin_client: Client, store: SessionStore):
        response = act(admin_client, "branch", "busy", checkpoint_id="first")
        assert response["Location"] == page_of("the-branch")
        state = store.load_state("the-branch")
        assert (state.forked_from, state.custom_state) == (("busy", "first"), {"place": "depot"})

    def test_branch_under_a_used_id_or_from_nowhere(self, admin_client: Client, store: SessionStore):
        for answers in ({"new_id": "busy-child"}, {"checkpoint_id": "nonsense"}):
            response = act(admin_client, "branch", "busy", **answers)
            assert len(response.context["outcome"].failures) == 1
        assert store.get_events("busy", types=["operator_action"]) == []

    def test_suspend(self, admin_client: Client, store: SessionStore):
        act(admin_client, "suspend", "busy")
        assert store.load_state("busy").status == "paused"
        response = act(admin_client, "suspend", "busy")
        assert len(response.context["outcome"].failures) == 1

    def test_fork(self, admin_client: Client, store: SessionStore):
        response = act(admin_client, "fork", "busy")
        assert response["Location"] == page_of("the-fork")
        state = store.load_state("the-fork")
        assert (state.parent_session_id, state.message_count, state.version) == (
            "busy",
            store.load_state("busy").message_count,
            1,
        )
        assert len(act(admin_client, "fork", "busy").context["outcome"].failures) == 1

    def test_model_and_budget(self, admin_client: Client):
        act(admin_client, "change_model", "busy")
        act(admin_client, "change_budget", "busy", deadline="2031-02-03T04:05")
        state = SessionRuntime().get_session("busy").state
        deadline = datetime(2031, 2, 3, 4, 5, tzinfo=UTC)
        assert state.model == "large"
        assert state.budget == Budget(max_steps=3, max_cost=0.5, deadline=deadline)
        act(admin_client, "change_model", "busy", model="", default="on")
        act(admin_client, "change_budget", "busy", max_steps="", max_cost="", unlimited="on")
        state = SessionRuntime().get_session("busy").state
        assert (state.model, state.budget) == (None, None)
        assert act(admin_client, "change_budget", "busy", max_steps="-1").status_code == 422

    def test_clear(self, admin_client: Client, store: SessionStore):
        act(admin_client, "clear", "busy")
        assert store.get_message_count("busy") == 0
        assert store.get_events("busy", types=["user_message"])[0].data["content"] == "Where is my parcel?"
        assert len(act(admin_client, "clear", "busy").context["outcome"].failures) == 1

    def test_discard_staging(self, admin_client: Client, store: SessionStore):
        act(admin_client, "discard_staging", "busy")
        assert store.get_staged_changes("busy") == []

    def test_export(self, admin_client: Client, store: SessionStore):
        response = act(admin_client, "export", "busy")
        assert "attachment" in response["Content-Disposition"]
        lines = b"".join(response.streaming_content).decode().splitlines()
        assert len(lines) > 10
        assert all(json.loads(line) for line in lines)
        assert any("Where is my parcel?" in line for line in lines)

    def test_delete_takes_the_tree(self, admin_client: Client, store: SessionStore):
        page = admin_client.get(action("delete", "busy")).content.decode()
        assert "1 sub-session goes with it" in page
        response = admin_client.post(action("delete"), {"ids": '["busy"]', "reason": "because"}, follow=True)
        assert not Session.objects.exists()
        assert "1 session was deleted. 1 sub-session went with it." in response.content.decode()


class TestCounts:
    def test_exact_counts_and_failures_listed(self, admin_client: Client, store: SessionStore):
        for number in range(5):
            store.create_session(f"s-{number}", agent_type="a")
        store.update_status("s-1", "completed")
        page = admin_client.post(LIST, {"action": "fail", "_selected_action": [f"s-{n}" for n in range(5)]})
        assert "4 sessions will be failed." in page.content.decode()
        assert "1 session will be left as it is" in page.content.decode()
        response = act(admin_client, "fail", *(f"s-{n}" for n in range(5)), "gone")
        assert "4 sessions were failed." in response.content.decode()
        outcome = response.context["outcome"]
        assert outcome.done == ["s-0", "s-2", "s-3", "s-4"]
        assert [key for key, _why in outcome.failures] == ["s-1", "gone"]
        assert store.load_state("s-1").status == "completed"
        assert LogEntry.objects.count() == 4

    def test_a_refusal_leaves_no_trace(self, admin_client: Client, store: SessionStore):
        before = everything(store)
        act(admin_client, "reactivate", "busy")
        assert everything(store) == before
        assert not LogEntry.objects.exists()

    def test_twice_the_same_session_is_once(self, admin_client: Client, store: SessionStore):
        act(admin_client, "interrupt", "busy", "busy")
        assert len(store.get_events("busy", types=["interrupt_requested"])) == 1

    def test_a_limit_at_once(
        self, admin_client: Client, store: SessionStore, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(action_views, "MOST_AT_ONCE", 1)
        listed = {"action": "fail", "_selected_action": ["busy", "busy-child"]}
        assert admin_client.post(LIST, listed).status_code == 302
        assert act(admin_client, "fail", "busy", "busy-child").status_code == 404
        assert store.load_state("busy").status == "active"

    @each("ids", ["", "nonsense", "{}", "[1]", '["' + "x" * 300 + '"]', '["\\u0000"]'])
    def test_broken_ids(self, admin_client: Client, ids: str):
        response = admin_client.post(action("fail"), {"ids": ids, "reason": "because"})
        assert response.status_code in (200, 404)
        assert not LogEntry.objects.exists()

    def test_unknown_action(self, admin_client: Client):
        assert admin_client.get(action("nonsense", "busy")).status_code == 404

    def test_no_deletion_beside_the_action(self, admin_client: Client, store: SessionStore):
        assert admin_client.post(page_of("busy", "delete"), {"post": "yes"}).status_code == 403
        admin_client.post(LIST, {"action": "delete_selected", "_selected_action": ["busy"], "post": "yes"})
        assert store.session_exists("busy")

    def test_nothing_is_added_by_hand(self, admin_client: Client):
        assert admin_client.get(f"{LIST}add/").status_code == 403
