"""Now: troubles by cause, with what can be done, and how the work goes; cheap, and true to its lists."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from helix_sessions.admin.now import flow
from helix_sessions.admin.now.cause import Cause
from helix_sessions.admin.now.causes import causes
from helix_sessions.admin.now.windows import WINDOWS, bars
from helix_sessions.models import Run, Session
from helix_sessions.store import SessionStore
from helix_sessions.store.driving.workers import beat
from helix_sessions.store.maintenance import run_tallies
from tests.admin.places import APP, LIST, make_stuck, rows_of
from tests.contract.suspended import asked, suspended

pytestmark = pytest.mark.django_db

NOW = f"{LIST}now/"
DAY = WINDOWS["day"]


def fail(store: SessionStore, session_id: str, message: str, agent_type: str = "support") -> None:
    store.create_session(session_id, agent_type=agent_type)
    error = {"code": "tool_failed", "message": message, "type": "ToolFailed"}
    store.compare_and_set_status(session_id, ["active"], "failed", error=error)


def by_kind(kind: str) -> list[Cause]:
    return [cause for cause in causes(DAY, timezone.now()) if cause.kind == kind]


def test_failures_are_grouped_by_the_cause_of_their_error(store: SessionStore, admin_client: Client):
    for number in range(3):
        fail(store, f"port-{number}", f"Connection to port {5000 + number} refused")
    fail(store, "other-agent", "Connection to port 7 refused", "invoices")
    fail(store, "alone", "No space left")
    store.create_session("by-hand", agent_type="support")
    store.compare_and_set_status("by-hand", ["active"], "failed", failure_reason="Given up")
    first, *others = by_kind("failed")
    assert (first.count, first.agents) == (4, [("support", 3), ("invoices", 1)])
    assert "refused" in first.title
    assert sum(first.series) == 4
    assert first.example in {"port-0", "port-1", "port-2", "other-agent"}
    assert {cause.title for cause in others} == {"tool_failed · ToolFailed: No space left", "Given up"}
    for cause in (first, *others):  # each leads to the list of exactly its sessions
        assert len(rows_of(admin_client.get(f"{LIST}?{cause.query}"))) == cause.count, cause.title


def test_a_failure_before_the_window_is_not_of_now(store: SessionStore):
    fail(store, "old", "No space left")
    Session.objects.filter(session_id="old").update(status_since=timezone.now() - timedelta(days=3))
    assert by_kind("failed") == []
    assert [c.count for c in causes(WINDOWS["fortnight"], timezone.now()) if c.kind == "failed"] == [1]


def test_runs_without_a_sign_of_their_agent(store: SessionStore, admin_client: Client):
    for number in range(2):
        store.create_session(f"s-{number}", agent_type="support")
        store.create_run(f"s-{number}")
    make_stuck("s-1", minutes=60)
    [silent] = by_kind("stuck")
    assert (silent.count, silent.example, silent.agents) == (1, "s-1", [("support", 1)])
    assert rows_of(admin_client.get(f"{LIST}?{silent.query}")) == ["s-1"]


def test_sessions_that_no_worker_takes(store: SessionStore, admin_client: Client):
    store.create_session("late", agent_type="support")
    store.request_run("late")
    store.create_session("fresh", agent_type="support")
    store.request_run("fresh")
    then = timezone.now() - timedelta(minutes=10)
    Session.objects.filter(session_id="late").update(runnable_at=then)
    [queued] = by_kind("queued")
    assert (queued.count, queued.example, queued.since) == (1, "late", then)
    assert rows_of(admin_client.get(f"{LIST}?{queued.query}")) == ["late"]


def test_sessions_behind_a_busy_worker_are_not_without_one(store: SessionStore):
    then = timezone.now() - timedelta(minutes=10)
    for agent_type in ("support", "invoices"):
        store.create_session(agent_type, agent_type=agent_type)
        store.request_run(agent_type)
        Session.objects.filter(session_id=agent_type).update(runnable_at=then)
    fail(store, "failed", "No space left")
    about: Any = {"host": "box-1", "pid": 7, "concurrency": 4, "agents": ["support"], "started_at": then}
    beat(store.using, "box-1:7:a", **about)
    assert [cause.agents for cause in by_kind("queued")] == [[("invoices", 1)]]
    [busy] = by_kind("busy")
    assert (busy.agents, busy.detail[:8]) == ([("support", 1)], "1 worker")
    kinds = [cause.kind for cause in causes(DAY, timezone.now())]
    assert kinds == ["failed", "queued", "busy"]  # what needs an operator first


def wait_for(store: SessionStore, session_id: str, tool: str, kind: Any = "approval") -> None:
    suspended(store, session_id, replace(asked(f"{session_id}-call", kind=kind), tool_name=tool))


def test_calls_that_wait_are_grouped_by_tool(store: SessionStore, admin_client: Client):
    wait_for(store, "a", "pay")
    wait_for(store, "b", "pay")
    wait_for(store, "c", "refund")
    wait_for(store, "d", "pick_date", "client_tool")
    found = {cause.title: cause for cause in by_kind("waiting")}
    assert {title: cause.count for title, cause in found.items()} == {
        "Approval of pay": 2,
        "Approval of refund": 1,
        "An answer to pick_date": 1,
    }
    then = timezone.now() - timedelta(hours=30)
    document = Session.objects.get(session_id="a").pending_client_tool_calls
    document["a-call"]["requested_at"] = then.isoformat()
    Session.objects.filter(session_id="a").update(pending_client_tool_calls=document, waiting_since=then)
    [old] = [cause for cause in by_kind("waiting") if cause.title == "Approval of pay"]
    assert (old.detail, old.since) == ("1 for more than a day", then)
    assert sorted(rows_of(admin_client.get(f"{LIST}?{old.query}"))) == ["a", "b"]
    page = admin_client.get(f"{LIST}waiting/?{found['Approval of pay'].place}").content.decode()
    assert f"{LIST}action/approve_calls/?filter=is%3Dwaiting%26tool%3Dpay&amp;tool=pay" in page
    assert "a-call" in page
    assert "b-call" in page
    assert "c-call" not in page


def test_full_inboxes(store: SessionStore, admin_client: Client, settings: Any):
    settings.HELIX_SESSIONS = {**getattr(settings, "HELIX_SESSIONS", {}), "INBOX_LIMIT": 5}
    store.create_session("full", agent_type="support")
    store.create_session("fine", agent_type="support")
    for number in range(4):
        store.admit_input("full", {"content": "hello"}, input_id=f"f-{number}")
    store.admit_input("fine", {"content": "hello"}, input_id="one")
    [inbox] = by_kind("inbox")
    assert (inbox.count, inbox.example) == (1, "full")
    assert rows_of(admin_client.get(f"{LIST}?{inbox.query}")) == ["full"]


def test_requests_to_stop_and_expiries_that_nobody_sees_to(store: SessionStore):
    then = timezone.now() - timedelta(minutes=5)
    store.create_session("stopping", agent_type="support")
    store.create_run("stopping")
    store.set_interrupt_flag("stopping", "enough")
    Session.objects.filter(session_id="stopping").update(interrupt_requested_at=then)
    store.create_session("gone", agent_type="support", expires_at=then)
    assert [(cause.count, cause.example) for cause in by_kind("stopping")] == [(1, "stopping")]
    assert [(cause.count, cause.example, cause.since) for cause in by_kind("expired")] == [(1, "gone", then)]


def make_runs(store: SessionStore) -> None:
    for number in range(4):
        store.create_session(f"s-{number}", agent_type="support" if number else "invoices")
        run = store.create_run(f"s-{number}")
        store.emit_event(f"s-{number}", "model_called", {"turn": 1}, turn_id="t")
        store.append_messages(f"s-{number}", [{"role": "assistant", "content": "I look."}])
        call = {"tool_call_id": "c", "tool_name": "look_up"}
        store.emit_event(f"s-{number}", "tool_called", call)
        store.emit_event(f"s-{number}", "tool_responded", {**call, "result": "x" * 5000})
        usage = {"input_tokens": 100, "cost": 0.5, "model": "small" if number else "large"}
        status: Any = "completed" if number else "failed"
        store.update_run_status(f"s-{number}", run.run_id, status, usage=usage)


def test_throughput_durations_and_cost(store: SessionStore):
    make_runs(store)
    now = timezone.now()
    found = flow.throughput(DAY, now)
    assert (found.ended, found.failed, found.steps[-1].ended, found.share) == (4, 1, 4, 25.0)
    Run.objects.update(started_at=now - timedelta(seconds=30), ended_at=now)
    runs = flow.sampled_runs(DAY, now)
    speeds = {speed.name: speed for speed in flow.speeds(runs)}
    assert speeds["Runs"].median == timedelta(seconds=30)
    assert (speeds["Runs"].failed, speeds["Model calls"].count, speeds["look_up"].count) == (1, 4, 4)
    money = flow.money(DAY, now, runs)
    assert (money.total.cost, money.total.tokens, money.runs) == (2.0, 400, 4)
    assert {line.name: line.usage.cost for line in money.by_model} == {"small": 1.5, "large": 0.5}
    assert {line.name: line.usage.cost for line in money.by_agent} == {"support": 1.5, "invoices": 0.5}


def test_percentiles():
    spans = [timedelta(seconds=number) for number in range(1, 101)]
    assert flow.percentile(spans, 50) == timedelta(seconds=50)
    assert flow.percentile(spans, 95) == timedelta(seconds=95)
    assert flow.percentile(spans[:1], 95) == timedelta(seconds=1)
    assert flow.percentile([], 95) is None


def test_windows_have_a_step_for_every_moment():
    for window in WINDOWS.values():
        now = timezone.now()
        steps = window.steps(now)
        assert len(steps) == round(window.span / window.step), window.name
        assert steps[-1] == window.floor(now), window.name
        assert steps == sorted(set(steps)), window.name
    assert [bar.value for bar in bars([0, 2, 0, 1])] == [2, 1]


def test_what_can_be_done_depends_on_the_permissions(store: SessionStore, client_with: Any, viewer: Client):
    fail(store, "s", "No space left")
    assert "action/retry/" not in viewer.get(NOW).content.decode()
    page = client_with("view_session", "retry_session").get(NOW).content.decode()
    assert re.search(r"action/retry/\?filter=cause%3D[0-9a-f]{32}%26within%3Dday", page)


def test_only_those_who_may_see_sessions_see_it(store: SessionStore, stranger: Client, viewer: Client):
    for place in (NOW, f"{NOW}panels/"):
        assert stranger.get(place).status_code == 403
        assert viewer.get(place).status_code == 200
    assert "What goes wrong" in viewer.get(APP).content.decode()


def test_hostile_words_stay_words(store: SessionStore, viewer: Client):
    fail(store, "s", "<script>window.hurt = 1</script>", "<b>agent</b>")
    page = viewer.get(NOW).content.decode()
    assert "<script>window" not in page
    assert "<b>agent" not in page


def test_a_page_costs_the_same_however_much_there_is(store: SessionStore, viewer: Client):
    def queries() -> int:
        cache.clear()
        with CaptureQueriesContext(connection) as found:
            assert viewer.get(f"{NOW}panels/").status_code == 200
        return len(found)

    make_runs(store)
    fail(store, "first", "No space left")
    while run_tallies.tally(store.using, timezone.now()):
        """As a worker does; without one, a query looks how far the runs are to be counted."""
    few = queries()
    for number in range(6):
        fail(store, f"more-{number}", f"Another error {chr(97 + number)}", f"agent-{number}")
        wait_for(store, f"w-{number}", f"tool-{number}")
    assert queries() == few
    assert few <= 20


def test_runs_that_no_worker_tallied_are_counted_up_to_a_bound(
    store: SessionStore, viewer: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(flow, "COUNTED_RUNS", 3)
    make_runs(store)
    now = timezone.now()
    for number in range(4):
        then = now - timedelta(days=number)
        Run.objects.filter(session_id=f"s-{number}").update(ended_at=then, started_at=then)
    found = flow.throughput(WINDOWS["fortnight"], now)
    assert found.is_cut
    assert found.ended == 4  # the newest three, and where the bound lies
    monkeypatch.setattr(flow, "COUNTED_RUNS", 2)
    assert flow.throughput(WINDOWS["fortnight"], now).ended == 3
    cache.clear()
    assert "run_sessions counts the others" in viewer.get(f"{NOW}?window=fortnight").content.decode()
    monkeypatch.setattr(flow, "COUNTED_RUNS", 4)
    assert not flow.throughput(WINDOWS["fortnight"], now).is_cut
