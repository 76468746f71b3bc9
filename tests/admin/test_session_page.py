"""The head of a session's page, a run as a waterfall, the timeline's days and folds, the tree's numbers."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from helix_sessions.admin.pages.waterfall import waterfall
from helix_sessions.models import Run, Session
from helix_sessions.store import SessionStore
from tests.admin.places import LIST, make_stuck, page_of, rows_of
from tests.contract.suspended import approval, suspended

pytestmark = pytest.mark.django_db


def head_of(client: Client, session_id: str) -> Any:
    return client.get(page_of(session_id)).context


def make_run(store: SessionStore, session_id: str = "s", status: Any = "completed") -> None:
    """A run with two turns: a model call that fails and is retried, a tool that works and one that does not,
    and a sub-agent."""
    store.create_session(session_id, agent_type="support")
    run = store.create_run(session_id)
    turn = {"turn_id": f"{run.run_id}:1", "run_id": run.run_id}
    emit = store.emit_event
    emit(session_id, "turn_started", {"turn": 1, "model": "small"}, **turn)
    emit(session_id, "model_called", {"turn": 1, "model": "small", "attempt": 1}, **turn)
    retry = (timezone.now() + timedelta(seconds=1)).isoformat()
    emit(session_id, "model_call_failed", {"attempt": 1, "error": "busy", "retry_at": retry}, **turn)
    emit(session_id, "model_called", {"turn": 1, "model": "small", "attempt": 2}, **turn)
    calls = [{"id": name, "name": f"tool_{name}", "arguments": {"n": 1}} for name in ("a", "b")]
    store.append_messages(session_id, [{"role": "assistant", "content": "I look.", "tool_calls": calls}])
    for name in ("a", "b"):
        emit(session_id, "tool_called", {"tool_call_id": name, "tool_name": f"tool_{name}"}, **turn)
    emit(session_id, "tool_responded", {"tool_call_id": "a", "result": "fine"}, **turn)
    emit(session_id, "tool_error", {"tool_call_id": "b", "error": "broken"}, **turn)
    ref = {"sub_session_id": f"{session_id}/child", "agent_type": "helper"}
    store.add_sub_session_refs(session_id, [ref])
    emit(session_id, "turn_finished", {"turn": 1, "model": "small"}, **turn)
    usage = {"input_tokens": 900, "output_tokens": 40, "cost": 0.25, "model": "small"}
    store.update_run_status(session_id, run.run_id, status, usage=usage)


def test_a_waterfall_has_a_bar_for_each_thing(store: SessionStore):
    make_run(store)
    found = waterfall(Session.objects.get(session_id="s"))
    assert found is not None
    spans = [(span.kind, span.label, span.depth, span.is_error, span.is_wait) for span in found.spans]
    assert sorted(spans) == sorted(
        [
            ("run", "Run 1", 0, False, False),
            ("turn", "Turn 1", 1, False, False),
            ("model", "small", 2, True, False),
            ("wait", "Waits to try again", 2, False, True),
            ("model", "small", 2, False, False),
            ("tool", "tool_a", 2, False, False),
            ("tool", "tool_b", 2, True, False),
            ("agent", "helper", 2, False, False),
        ]
    )
    assert spans[0][0] == "run"
    for span in found.spans:
        assert 0 <= span.x <= span.x + span.width <= 1000, span.label
    by_label = {span.label: span for span in found.spans}
    assert by_label["tool_a"].came_out is not None
    assert by_label["tool_a"].came_out.value == "fine"


def test_each_bar_leads_to_what_went_in_and_out(store: SessionStore, viewer: Client):
    make_run(store)
    page = viewer.get(page_of("s", "trace")).content.decode()
    assert "tool_b" in page
    assert "broken" in page
    assert "hx-failed" in page
    assert "hx-waits" in page
    assert "s/child" in page


def test_a_wait_of_days_leaves_room_for_a_run_of_seconds(store: SessionStore):
    suspended(store, "s", replace(approval("a"), tool_name="pay"))
    then = timezone.now() - timedelta(days=12)
    Run.objects.filter(session_id="s").update(started_at=then, ended_at=then + timedelta(seconds=2))
    found = waterfall(Session.objects.get(session_id="s"))
    assert found is not None
    run, wait = found.spans[0], found.spans[-1]
    assert (wait.kind, wait.is_wait, wait.is_open) == ("wait", True, True)
    assert run.width > 4 * wait.width


def test_a_failed_call_of_the_model_is_no_bookkeeping(store: SessionStore, viewer: Client):
    make_run(store)
    blocks = viewer.get(page_of("s", "timeline")).context["page"].blocks
    shown = {block.entry.type: block.entry for block in blocks if block.entry is not None}
    assert shown["model_call_failed"].is_error
    assert "busy" in shown["model_call_failed"].sentence
    errors = viewer.get(page_of("s", "timeline", "?kind=errors")).context["page"].entries
    assert {entry.type for entry in errors} == {"model_call_failed", "tool_error", "run_finished"}


def test_a_run_of_milliseconds_has_an_axis_of_milliseconds(store: SessionStore):
    make_run(store)
    then = timezone.now()
    Run.objects.filter(session_id="s").update(started_at=then, ended_at=then + timedelta(seconds=0.08))
    found = waterfall(Session.objects.get(session_id="s"))
    assert found is not None
    labels = [tick.label for tick in found.ticks]
    assert len(labels) == len(set(labels)) > 2
    assert labels[:2] == ["0", "20 ms"]


def test_what_failed_leads_to_the_others_that_failed_alike(store: SessionStore, viewer: Client):
    for number in range(3):
        store.create_session(f"s-{number}", agent_type="support")
        error = {"code": "tool_failed", "message": f"Connection to port {number} refused"}
        store.compare_and_set_status(f"s-{number}", ["active"], "failed", error=error)
    page = viewer.get(page_of("s-1"))
    address = page.context["alike"]
    assert address in page.content.decode()
    assert sorted(rows_of(viewer.get(address))) == ["s-0", "s-1", "s-2"]
    assert "tool_failed" in viewer.get(address).content.decode().partition("hx-applied")[2][:400]


def test_no_remark_repeats_the_headline(store: SessionStore, viewer: Client):
    store.create_session("stuck", agent_type="support")
    store.create_run("stuck")
    make_stuck("stuck")
    context = head_of(viewer, "stuck")
    assert "has given no sign" in context["overview"].headline
    assert [remark.tone for remark in context["remarks"]] == []
    store.create_session("ready", agent_type="support")
    store.request_run("ready")
    context = head_of(viewer, "ready")
    assert context["overview"].headline.startswith("Ready to run since")
    assert [remark.text for remark in context["remarks"]] == []


def test_any_run_can_be_looked_at(store: SessionStore, viewer: Client):
    store.create_session("s", agent_type="support")
    for number in range(14):
        run = store.create_run("s")
        store.update_run_status("s", run.run_id, "failed" if number == 3 else "completed")
    for asked, turn in (("", 14), ("?run=4", 4), ("?run=1", 1), ("?run=99", 14), ("?run=x", 14)):
        trace = viewer.get(page_of("s", "trace", asked)).context["trace"]
        assert trace.turn == turn, asked
        assert [link.turn for link in trace.runs if link.selected] == [turn], asked
    store.create_session("fresh", agent_type="support")
    assert viewer.get(page_of("fresh", "trace")).context["trace"] is None


def test_a_waterfall_costs_the_same_however_much_happened(store: SessionStore, viewer: Client):
    def queries(session_id: str) -> int:
        with CaptureQueriesContext(connection) as found:
            assert viewer.get(page_of(session_id, "trace")).status_code == 200
        return len(found)

    make_run(store, "short")
    make_run(store, "long", "running")
    for number in range(700):
        store.emit_event("long", "note", {"n": number})
    assert queries("long") == queries("short")
    assert viewer.get(page_of("long", "trace")).context["trace"].is_cut


def test_one_sentence_says_how_it_stands(store: SessionStore, viewer: Client):
    make_run(store)
    store.update_status("s", "completed")
    assert head_of(viewer, "s")["overview"].headline == "Completed just now after 1 run."
    store.create_session("failed", agent_type="support")
    error = {"code": "tool_failed", "message": "No space left"}
    store.compare_and_set_status("failed", ["active"], "failed", error=error)
    assert head_of(viewer, "failed")["overview"].headline == (
        "Failed just now after 0 runs: tool_failed · No space left"
    )
    suspended(store, "asking", replace(approval("a"), tool_name="pay"))
    assert head_of(viewer, "asking")["overview"].headline.startswith("Waits for a person to approve pay")
    store.create_session("stuck", agent_type="support")
    store.create_run("stuck")
    assert "under way" in head_of(viewer, "stuck")["overview"].headline
    make_stuck("stuck")
    assert "has given no sign for 1 h" in head_of(viewer, "stuck")["overview"].headline
    store.create_session("idle", agent_type="support")
    assert head_of(viewer, "idle")["overview"].headline.startswith("Idle")


def test_four_numbers(store: SessionStore, viewer: Client):
    make_run(store)
    then = timezone.now() - timedelta(hours=1)
    Run.objects.filter(session_id="s").update(started_at=then, ended_at=then + timedelta(seconds=42))
    found = head_of(viewer, "s")["overview"]
    assert (found.took, found.tokens, found.cost, found.model) == (
        timedelta(seconds=42),
        940,
        0.25,
        "small",
    )


def test_three_buttons_fit_the_state_and_the_rest_is_one_click_away(
    store: SessionStore, admin_client: Client
):
    store.create_session("failed", agent_type="support")
    store.compare_and_set_status("failed", ["active"], "failed", failure_reason="no")
    context = head_of(admin_client, "failed")
    names = [action.name for action in context["fitting"]]
    assert names[0] == "retry"
    assert len(names) <= 3
    assert "delete" in [action.name for action in context["more"]]
    store.create_session("paused", agent_type="support")
    store.update_status("paused", "paused")
    assert next(action.name for action in head_of(admin_client, "paused")["fitting"]) == "resume"


def test_a_call_that_waits_is_answered_from_the_head(store: SessionStore, client_with: Any, viewer: Client):
    suspended(store, "s", replace(approval("a"), tool_name="pay"))
    page = client_with("view_session", "approve_call_session").get(page_of("s")).content.decode()
    assert "action/approve_call/?id=s&amp;call=a" in page
    assert "action/approve_call/" not in viewer.get(page_of("s")).content.decode()


def test_the_trace_elsewhere_is_linked(store: SessionStore, viewer: Client, settings: Any):
    store.create_session("s 1", agent_type="support")
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    store.create_session("with", agent_type="support", tracing_context={"traceparent": parent})
    assert head_of(viewer, "s 1")["overview"].trace_url == ""
    settings.HELIX_SESSIONS = {"TRACE_URL": "https://traces.example/t/{trace_id}?s={session_id}&x={y}"}
    assert head_of(viewer, "with")["overview"].trace_url == (
        f"https://traces.example/t/{'a' * 32}?s=with&x={{y}}"
    )
    own = head_of(viewer, "s 1")["overview"].trace_url
    assert own.startswith("https://traces.example/t/")
    assert own.endswith("?s=s%201&x={y}")
    settings.HELIX_SESSIONS = {"TRACE_URL": "javascript:alert({trace_id})"}
    assert head_of(viewer, "with")["overview"].trace_url == ""


def test_bookkeeping_is_folded_and_days_are_told_apart(store: SessionStore, viewer: Client):
    make_run(store)
    page = viewer.get(page_of("s", query="?order=oldest")).context["page"]
    assert [block.day is not None for block in page.blocks].count(True) == 1
    folded = [entry for block in page.blocks for entry in block.folded]
    assert {"turn_started", "model_called"} <= {entry.type for entry in folded}
    assert all(entry.look == "quiet" for entry in folded)
    assert not any(block.is_open for block in page.blocks)
    seq = folded[0].seq
    linked = viewer.get(page_of("s", query=f"?seq={seq}")).context["page"]
    assert [block.is_open for block in linked.blocks if block.folded].count(True) == 1
    assert page.entries[0].after is None
    assert all(entry.after >= timedelta(0) for entry in page.entries[1:])


def test_a_tree_tells_time_cost_and_error(store: SessionStore, viewer: Client):
    store.create_session("top", agent_type="support")
    store.create_session("child", agent_type="helper", parent_session_id="top")
    run = store.create_run("child")
    store.update_run_status("child", run.run_id, "failed", usage={"input_tokens": 1200, "cost": 0.5})
    error = {"code": "tool_failed", "message": "<b>No</b> space left"}
    store.compare_and_set_status("child", ["active"], "failed", error=error)
    page = viewer.get(page_of("top", "tree")).content.decode()
    assert "1,200 tokens" in page
    assert "0.5" in page
    assert "tool_failed · &lt;b&gt;No" in page


def test_a_thumb_is_shown_given_and_filtered_by(store: SessionStore, client_with: Any, viewer: Client):
    store.create_session("s", agent_type="support")
    store.create_session("other", agent_type="support")
    talk = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    store.append_messages("s", talk)
    store.give_feedback("s", 1, "down", comment="<b>Wrong</b>", by="visitor")
    page = viewer.get(page_of("s")).content.decode()
    assert "Thumb down" in page
    assert "&lt;b&gt;Wrong" in page
    assert "/feedback/1/" not in page
    assert viewer.post(page_of("s", "feedback/1"), {"rating": "up"}).status_code == 403
    judge = client_with("view_session", "add_feedback")
    assert "/feedback/1/" in judge.get(page_of("s")).content.decode()
    judge.post(page_of("s", "feedback/1"), {"rating": "up"})
    assert sorted(each.rating for each in store.list_feedback("s")) == ["down", "up"]
    judge.post(page_of("s", "feedback/1"), {"rating": "up"})
    assert [each.rating for each in store.list_feedback("s")] == ["down"]
    assert judge.post(page_of("s", "feedback/1"), {"rating": "x"}).status_code == 404
    assert rows_of(viewer.get(f"{LIST}?feedback=down")) == ["s"]
    assert rows_of(viewer.get(f"{LIST}?feedback=up")) == []
