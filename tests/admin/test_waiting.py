"""Everything that waits, on one page: found by index, answered with a permission, a reason and two logs."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from helix_sessions.models import Session
from helix_sessions.runtime import AgentSession, SessionRuntime
from helix_sessions.store import SessionStore
from helix_sessions.types import PendingCall
from tests.admin.places import APP, CALL_ACTIONS, LIST, WAITING, page_of
from tests.contract.suspended import approval, asked, calling, child, suspend, suspended, wait_for
from tests.rows import each

pytestmark = pytest.mark.django_db

HOSTILE = "<script>alert(1)</script>"
ANSWERS: dict[str, dict[str, str]] = {"answer_call": {"result": '{"place": "Berlin"}'}}
CALL_OF = {"approve_call": "a", "deny_call": "a", "answer_call": "b"}


@pytest.fixture
def trip(store: SessionStore) -> SessionStore:
    """`trip` waits for an approval `a` and a client `b`, `parent` for its child."""
    suspended(store, "trip", approval("a", deadline=datetime(2040, 1, 1, tzinfo=UTC)), asked("b"))
    store.begin_turn("parent", run_id="r")
    child(store, "parent", "parent/1", "c")
    suspend(
        store,
        "parent",
        kind="awaiting_children",
        awaiting_children=[wait_for("c", "parent/1")],
        append_messages=[calling("c")],
    )
    return store


def entry_of(store: SessionStore, call_id: str, session_id: str = "trip") -> Any:
    return (store.load_state(session_id).pending_client_tool_calls or {})[call_id]


def ask(name: str, call_id: str, session_id: str = "trip") -> str:
    return f"{LIST}action/{name}/?id={quote(session_id, '')}&call={quote(call_id, '')}"


def act(client: Client, store: SessionStore, name: str, call_id: str, **more: str) -> Any:
    data = {
        "ids": '["trip"]',
        "call": call_id,
        "asked_at": entry_of(store, call_id)["requested_at"],
        "reason": "because",
        **ANSWERS.get(name, {}),
        **more,
    }
    return client.post(f"{LIST}action/{name}/", data)


def shown(response: Any) -> list[str]:
    assert response.status_code == 200
    return [item.session.session_id for item in response.context["page"].items]


class TestPage:
    def test_who_for_what_since_when_until_when(self, viewer: Client, trip: SessionStore):
        response = viewer.get(WAITING)
        assert shown(response) == ["trip", "parent"]
        text = response.content.decode()
        for word in ("tool_a", "tool_b", "An approval", "A person or a client", "2040-01-01", "parent/1"):
            assert word in text
        assert "A sub-session" in text

    def test_what_is_overdue_says_so(self, viewer: Client, trip: SessionStore):
        assert "overdue" not in viewer.get(WAITING).content.decode()
        suspended(trip, "late", approval("x", deadline=timezone.now() - timedelta(hours=1)))
        assert "overdue" in viewer.get(WAITING).content.decode()
        assert "overdue" in viewer.get(page_of("late", "calls")).content.decode()

    def test_what_is_answered_or_ended_is_not_there(self, viewer: Client, trip: SessionStore):
        trip.submit_tool_result("trip", "a", approved=True)
        assert "tool_a" not in viewer.get(WAITING).content.decode()
        trip.submit_tool_result("trip", "b", result=1)
        assert shown(viewer.get(WAITING)) == ["parent"]
        trip.update_status("parent", "failed")
        assert shown(viewer.get(WAITING)) == []
        assert "Nothing waits." in viewer.get(WAITING).content.decode()

    def test_a_tombstone_waits_for_nobody(self, viewer: Client, trip: SessionStore):
        class Delete:
            def execute_on(self, session: AgentSession) -> AgentSession:
                return session.with_status("deleted")

        SessionRuntime(trip).execute("trip", Delete())
        assert shown(viewer.get(WAITING)) == ["parent"]
        rows = Session._base_manager.filter(session_id="trip").values_list("waiting_since", flat=True)
        assert list(rows) == [None]

    def test_a_settled_child_is_not_waited_for(self, viewer: Client, trip: SessionStore):
        trip.settle_child("parent/1", "completed")
        assert shown(viewer.get(WAITING)) == ["trip"]

    def test_it_needs_the_permission_to_see_sessions(self, stranger: Client, client: Client):
        assert stranger.get(WAITING).status_code == 403
        assert client.get(WAITING).status_code == 302

    def test_it_is_linked(self, viewer: Client, trip: SessionStore):
        for place in (APP, LIST, page_of("trip", "calls")):
            assert f'href="{WAITING}"' in viewer.get(place).content.decode(), place

    def test_hostile_words_are_only_words(self, admin_client: Client, store: SessionStore):
        store.create_session(HOSTILE, agent_type=HOSTILE, user_id=HOSTILE)
        store.create_run(HOSTILE, run_id="r")
        call = {"tool_call_id": HOSTILE, "tool_name": HOSTILE, "arguments": {HOSTILE: HOSTILE}}
        wait = {"parent_tool_call_id": "c", "sub_session_id": HOSTILE, "agent_type": HOSTILE}
        store.suspend(
            HOSTILE,
            "client_tool",
            state=store.load_state(HOSTILE),
            run_id="r",
            pending_calls=[call],
            awaiting_children=[wait],
        )
        for place in (WAITING, page_of(HOSTILE, "calls"), ask("answer_call", HOSTILE, HOSTILE), APP):
            response = admin_client.get(place)
            assert response.status_code == 200, place
            assert HOSTILE not in response.content.decode(), place

    def test_whatever_a_caller_saved_is_shown(self, admin_client: Client, store: SessionStore):
        state = store.create_session("odd", agent_type="a")
        odd = {"x": 1, "y": None, "z": {"tool_name": 5, "requested_at": "never", "kind": ["a"]}}
        store.save_state(
            "odd", replace(state, pending_client_tool_calls=odd, suspended_awaiting_children=odd)
        )
        for place in (WAITING, page_of("odd", "calls")):
            assert admin_client.get(place).status_code == 200

    def test_secrets_are_masked(self, viewer: Client, store: SessionStore):
        store.begin_turn("s", run_id="r")
        call = {"tool_call_id": "c", "tool_name": "login", "arguments": {"password": "hunter2"}}
        store.suspend("s", "client_tool", state=store.load_state("s"), run_id="r", pending_calls=[call])
        assert "hunter2" not in viewer.get(WAITING).content.decode()


class TestMany:
    def fill(self, store: SessionStore, count: int) -> None:
        suspended(store, "model", approval("a"))
        row = Session.objects.values().get(session_id="model")
        then = timezone.now() - timedelta(days=1)
        Session.objects.bulk_create(
            Session(
                **{
                    **row,
                    "session_id": f"w-{number:05}",
                    "waiting_since": then + timedelta(seconds=number // 3),
                }
            )
            for number in range(count)
        )
        store.delete_session("model")

    def test_pages_hold_each_session_once(self, viewer: Client, store: SessionStore):
        self.fill(store, 60)
        seen, place = [], WAITING
        while place:
            response = viewer.get(place)
            seen += shown(response)
            cursor = response.context["page"].next_cursor
            place = f"{WAITING}?after={cursor}" if cursor else ""
        assert seen == [f"w-{number:05}" for number in range(60)]

    def test_a_broken_cursor_begins_anew(self, viewer: Client, store: SessionStore):
        self.fill(store, 3)
        for junk in ("x", "%00", "é", "a" * 5000):
            assert len(shown(viewer.get(WAITING, {"after": junk}))) == 3

    def test_as_many_queries_for_a_thousand_as_for_ten(self, admin_client: Client, store: SessionStore):
        counts = []
        for count in (10, 1000):
            Session.objects.all().delete()
            self.fill(store, count)
            with CaptureQueriesContext(connection) as captured:
                shown(admin_client.get(WAITING))
            counts.append(len(captured))
        assert counts[0] == counts[1] <= 5

    def test_it_is_an_index_scan(self, store: SessionStore, engine: str):
        self.fill(store, 1000)
        rows = Session.objects.waiting().filter(waiting_since__gte=timezone.now() - timedelta(hours=23))
        if engine == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("ANALYZE helix_sessions_session")
        assert "helix_session_waiting_idx" in rows[:26].explain()


every_answer = each("name", CALL_ACTIONS)


class TestAnswering:
    @every_answer
    def test_it_takes_its_own_permission(self, client_with: Any, trip: SessionStore, name: str):
        before = trip.load_state("trip")
        others = set(CALL_ACTIONS.values()) - {CALL_ACTIONS[name]}
        for client in (client_with("view_session", *others), client_with(CALL_ACTIONS[name])):
            assert client.get(ask(name, CALL_OF[name])).status_code == 403
            assert act(client, trip, name, CALL_OF[name]).status_code == 403
            assert f"action/{name}/" not in client.get(WAITING).content.decode()
        assert trip.load_state("trip") == before
        client = client_with("view_session", CALL_ACTIONS[name])
        for place in (WAITING, page_of("trip", "calls")):
            assert f"action/{name}/" in client.get(place).content.decode()
        assert act(client, trip, name, CALL_OF[name]).status_code == 302
        assert entry_of(trip, CALL_OF[name])["submitted_at"]

    @every_answer
    def test_it_is_confirmed_with_a_reason(self, admin_client: Client, trip: SessionStore, name: str):
        before = trip.load_state("trip")
        page = admin_client.get(ask(name, CALL_OF[name]))
        text = page.content.decode()
        assert page.status_code == 200
        assert f"tool_{CALL_OF[name]}" in text
        assert "csrfmiddlewaretoken" in text
        assert act(admin_client, trip, name, CALL_OF[name], reason=" ").status_code == 422
        assert trip.load_state("trip") == before

    @every_answer
    def test_it_is_logged_twice(self, admin_client: Client, trip: SessionStore, name: str):
        assert act(admin_client, trip, name, CALL_OF[name])["Location"] == WAITING
        entry = LogEntry.objects.get()
        assert (entry.object_id, "because" in entry.change_message) == ("trip", True)
        [event] = trip.get_events("trip", types=["operator_action"])
        assert (event.data["action"], event.data["reason"]) == (name, "because")
        assert event.data["by"]["username"] == "admin"
        [answer] = trip.get_events("trip", types=["tool_result_submitted"])
        assert answer.data["by"] == {"kind": "operator", "id": str(event.data["by"]["id"])}

    @every_answer
    def test_a_call_that_was_answered_meanwhile(self, admin_client: Client, trip: SessionStore, name: str):
        call_id = CALL_OF[name]
        trip.submit_tool_result("trip", call_id, **({"approved": True} if call_id == "a" else {"result": 1}))
        before = trip.load_state("trip")
        response = act(admin_client, trip, name, call_id)
        assert "It has an answer already." in response.content.decode()
        assert trip.load_state("trip") == before
        assert not LogEntry.objects.exists()
        assert admin_client.get(ask(name, call_id)).status_code == 302

    @every_answer
    def test_a_call_that_was_asked_again_is_another(
        self, admin_client: Client, trip: SessionStore, name: str
    ):
        call_id = CALL_OF[name]
        stale = entry_of(trip, call_id)["requested_at"]
        trip.submit_tool_result("trip", "a", approved=False)
        trip.submit_tool_result("trip", "b", result=1)
        trip.resume("trip")
        suspend(trip, "trip", approval("a"), asked("b"))
        response = act(admin_client, trip, name, call_id, asked_at=stale)
        assert "This call does not wait any more." in response.content.decode()
        assert entry_of(trip, call_id)["submitted_at"] is None


class TestWhatIsSaid:
    def test_approval(self, admin_client: Client, trip: SessionStore):
        act(admin_client, trip, "approve_call", "a")
        assert entry_of(trip, "a")["response"] == {"approved": True, "reason": "because"}

    def test_denial(self, admin_client: Client, trip: SessionStore):
        act(admin_client, trip, "deny_call", "a")
        trip.submit_tool_result("trip", "b", result=1)
        first, _ = trip.resume("trip").tool_messages
        assert (first["content"], first["is_error"]) == ("because", True)

    @each(
        ("said", "result"),
        [('{"a": 1}', {"a": 1}), ("plain", "plain"), ("", ""), ("null", None), ("NaN", "NaN")],
    )
    def test_result(self, admin_client: Client, trip: SessionStore, said: str, result: Any):
        act(admin_client, trip, "answer_call", "b", result=said)
        assert entry_of(trip, "b")["response"] == {"result": result}

    def test_error(self, admin_client: Client, trip: SessionStore):
        act(admin_client, trip, "answer_call", "b", is_error="error")
        assert entry_of(trip, "b")["response"] == {"error": "because"}

    def test_the_wrong_way_is_not_offered(self, admin_client: Client, trip: SessionStore):
        assert admin_client.get(ask("approve_call", "b")).status_code == 302
        assert act(admin_client, trip, "approve_call", "b").status_code == 200
        assert entry_of(trip, "b")["submitted_at"] is None
        assert admin_client.get(ask("approve_call", "unknown")).status_code == 302
        assert admin_client.get(ask("approve_call", "a", "unknown")).status_code == 302


class TestApproving:
    def fields(self, client: Client, name: str, call_id: str) -> dict[str, Any]:
        """What the page of an answer would send."""
        form = client.get(ask(name, call_id)).context["form"]
        return {field.html_name: field.value() or "" for field in form}

    def test_the_arguments_can_be_edited(self, admin_client: Client, trip: SessionStore):
        given = self.fields(admin_client, "approve_call", "a")
        assert given["arguments"] == '{\n  "of": "a"\n}'
        for wrong in ("[1]", "{", "5", '{"a": NaN}'):
            assert (
                act(
                    admin_client, trip, "approve_call", "a", **{**given, "reason": "x", "arguments": wrong}
                ).status_code
                == 422
            )
        assert entry_of(trip, "a")["submitted_at"] is None
        more = {**given, "reason": "because", "arguments": '{"of": "me"}'}
        assert act(admin_client, trip, "approve_call", "a", **more).status_code == 302
        assert entry_of(trip, "a")["response"] == {
            "approved": True,
            "reason": "because",
            "arguments": {"of": "me"},
        }
        assert "operator" in admin_client.get(page_of("trip", "calls")).content.decode()
        timeline = admin_client.get(page_of("trip", "timeline")).content.decode()
        assert "with other arguments" in timeline

    def test_a_page_left_as_it_is_changes_no_argument(self, admin_client: Client, trip: SessionStore):
        given = {**self.fields(admin_client, "approve_call", "a"), "reason": "because"}
        act(admin_client, trip, "approve_call", "a", **given)
        assert entry_of(trip, "a")["response"] == {"approved": True, "reason": "because"}

    @every_answer
    def test_a_page_opened_before_the_call_changed(self, admin_client: Client, trip: SessionStore, name: str):
        call_id = CALL_OF[name]
        given = {**self.fields(admin_client, name, call_id), "reason": "because"}
        state = trip.load_state("trip")
        calls = {
            **(state.pending_client_tool_calls or {}),
            call_id: {**entry_of(trip, call_id), "arguments": {}},
        }
        trip.save_state("trip", replace(state, pending_client_tool_calls=calls))
        response = act(admin_client, trip, name, call_id, **given)
        assert "other arguments" in response.content.decode()
        assert entry_of(trip, call_id)["submitted_at"] is None

    def test_secrets_do_not_come_back_as_dots(self, admin_client: Client, store: SessionStore):
        """What is masked or cut cannot be edited here, only replaced."""
        calls = {"a": {"password": "hunter2", "cents": 5}, "b": {"text": "x" * 30_000}, "c": "text"}
        pending = [
            PendingCall(tool_call_id=key, tool_name="t", arguments=value, kind="approval")
            for key, value in calls.items()
        ]
        suspended(store, "trip", *pending)
        for key in calls:
            given = self.fields(admin_client, "approve_call", key)
            assert given["arguments"] == "", key
        act(
            admin_client,
            store,
            "approve_call",
            "a",
            **{**self.fields(admin_client, "approve_call", "a"), "reason": "x"},
        )
        assert "arguments" not in entry_of(store, "a")["response"]

    def test_always_allow_takes_the_permission_for_rules(
        self, admin_client: Client, client_with: Any, trip: SessionStore
    ):
        approver = client_with("view_session", CALL_ACTIONS["approve_call"])
        assert "remember" not in self.fields(approver, "approve_call", "a")
        assert act(approver, trip, "approve_call", "a", remember="session").status_code == 403
        assert entry_of(trip, "a")["submitted_at"] is None
        assert act(admin_client, trip, "approve_call", "a", remember="always").status_code == 422
        assert act(admin_client, trip, "approve_call", "a", remember="session").status_code == 302
        [rule] = trip.list_tool_rules()
        assert (rule.session_id, rule.tool, rule.decision) == ("trip", "tool_a", "allow")
        assert "always allow: session" in LogEntry.objects.get().change_message
        assert "Tool rule: allow tool_a" in admin_client.get(page_of("trip", "timeline")).content.decode()

    def test_a_result_that_does_not_fit_is_refused(self, admin_client: Client, store: SessionStore):
        suspended(store, "trip", asked("b", response_schema={"type": "object", "required": ["place"]}))
        assert "The result must fit" in admin_client.get(ask("answer_call", "b")).content.decode()
        refused = act(admin_client, store, "answer_call", "b", result="5")
        assert "does not fit" in refused.content.decode()
        assert act(admin_client, store, "answer_call", "b").status_code == 302
