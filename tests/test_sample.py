"""The demo's sample: loaded once, whole, and worth looking at."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from io import StringIO

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.utils import timezone
from pytest_django import DjangoDbBlocker

from helix_sessions.models import Event, Run, Session
from helix_sessions.store import SessionStore
from helix_sessions.transcripts import open_tool_calls
from helix_sessions.types import SESSION_STATUSES
from project import sample
from project.settings import HELIX_SESSIONS as DEMO
from tests.invariants import assert_invariants, assert_no_orphans, dump
from tests.rows import each

pytestmark = pytest.mark.django_db

ENTRY = {
    "tool_call_id",
    "tool_name",
    "arguments",
    "kind",
    "approval_id",
    "deadline",
    "run_id",
    "requested_at",
    "response",
    "submitted_at",
}


def _ids(store: SessionStore) -> list[str]:
    return [summary.session_id for summary in store.list_sessions(limit=1000).items]


def test_a_second_call_says_it_is_there_and_changes_nothing(
    store: SessionStore, capsys: pytest.CaptureFixture[str]
):
    call_command("load_sample")
    assert "Loaded a sample of 75 sessions" in capsys.readouterr().out
    before = dump()
    call_command("load_sample")
    assert capsys.readouterr().out == "The sample is there.\n"
    assert dump() == before


def test_an_id_that_is_taken_leaves_nothing_of_it(store: SessionStore, capsys: pytest.CaptureFixture[str]):
    store.create_session("review-407", agent_type="mine")
    before = dump()
    call_command("load_sample")
    assert "The sample was not loaded. There is a session 'review-407' already." in capsys.readouterr().out
    assert dump() == before
    assert not get_user_model().objects.exists()


def test_it_can_be_loaded_again_when_it_was_deleted(store: SessionStore):
    call_command("load_sample")
    sessions = _ids(store)
    for session_id in sessions:
        store.delete_session(session_id)
    assert_no_orphans()
    call_command("load_sample")
    assert len(_ids(store)) == len(sessions)


@pytest.fixture(scope="class")
def sessions(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[list[str]]:
    """The ids of the sample, loaded once for all who only read it."""
    store = SessionStore()
    with django_db_blocker.unblock():
        call_command("load_sample", stdout=StringIO())
        yield _ids(store)
        for session_id in _ids(store):
            store.delete_session(session_id)
        get_user_model().objects.all().delete()


class TestContent:
    def test_its_sessions_keep_every_rule(self, sessions: list[str]):
        for session_id in sessions:
            assert_invariants(session_id)

    def test_all_of_it_is_tagged_and_owned(self, store: SessionStore, sessions: list[str]):
        tagged = store.list_sessions(tag=sample.TAG, limit=1000).items
        assert [summary.session_id for summary in tagged] == sessions
        assert len({summary.owner_id for summary in tagged} - {None}) == 4
        assert any(summary.user_id for summary in tagged)

    @each("status", SESSION_STATUSES)
    def test_every_status_is_there(self, store: SessionStore, sessions: list[str], status: str):
        assert store.list_sessions(status=status).items

    def test_a_tree_is_three_deep(self, store: SessionStore, sessions: list[str]):
        leaf = store.load_state("research-heat-pumps-policy-germany")
        middle = store.load_state(leaf.parent_session_id or "")
        root = store.load_state(middle.parent_session_id or "")
        assert root.parent_session_id is None
        assert {leaf.root_session_id, middle.root_session_id} == {root.session_id}
        assert leaf.session_id in {
            ref.sub_session_id for ref in store.get_sub_session_refs(middle.session_id)
        }
        refs = store.get_sub_session_refs(root.session_id)
        assert {(ref.mode, ref.location) for ref in refs} == {
            ("ephemeral", "local"),
            ("persistent", "local"),
            ("ephemeral", "remote"),
        }

    def test_calls_wait_for_a_client_and_for_an_approval(self, store: SessionStore, sessions: list[str]):
        waiting = Session.objects.awaiting_client().values_list("session_id", flat=True)
        kinds = set()
        for session_id in waiting:
            calls = store.load_state(session_id).pending_client_tool_calls or {}
            open_calls = {call["id"] for call in open_tool_calls(store.get_messages(session_id).messages)}
            assert open_calls == set(calls)
            for call_id, call in calls.items():
                assert set(call) == ENTRY
                assert call["tool_call_id"] == call_id
                assert store.get_run(session_id, call["run_id"]).status == "suspended_client_tool"
                assert datetime.fromisoformat(call["deadline"]).tzinfo
                kinds.add(call["kind"])
        assert kinds == {"client_tool", "approval"}

    def test_a_parent_waits_for_a_child_and_knows_whose_call_waits(
        self, store: SessionStore, sessions: list[str]
    ):
        root = store.load_state("research-heat-pumps")
        assert [wait["sub_session_id"] for wait in (root.suspended_awaiting_children or {}).values()] == [
            "research-heat-pumps-policy"
        ]
        assert set((root.client_tool_call_ownership or {}).values()) == {"research-heat-pumps-policy"}
        assert store.list_runs(root.session_id).items[0].status == "suspended_awaiting_children"

    def test_a_transcript_is_long(self, store: SessionStore, sessions: list[str]):
        page = store.get_messages("stocktake-november", limit=10)
        assert (page.total, page.has_more) == (400, True)
        assert (
            len({message["content"] for message in store.get_messages("stocktake-november").messages}) > 350
        )

    def test_runs_have_usage_and_tools_have_results(self, store: SessionStore, sessions: list[str]):
        runs = store.list_runs("support-4812").items
        assert [run.turn for run in runs] == [2, 1]
        assert all(run.usage["input_tokens"] > 0 for run in runs)
        events = store.get_events("support-4812", types=["tool_called", "tool_responded", "tool_error"])
        assert [event.type for event in events] == [
            "tool_called",
            "tool_responded",
            "tool_called",
            "tool_error",
            "tool_called",
            "tool_responded",
        ]

    def test_a_branch_and_its_checkpoint(self, store: SessionStore, sessions: list[str]):
        source, checkpoint_id = store.load_state("review-381-second-opinion").forked_from or ("", None)
        assert store.get_checkpoint(source, checkpoint_id or "").metadata["label"]

    def test_staged_writes_a_request_to_stop_and_an_expired_session(
        self, store: SessionStore, sessions: list[str]
    ):
        assert store.has_staged_changes("support-4820")
        assert store.get_current_run("support-4820")
        request = store.peek_interrupt_flag("support-4820")
        assert request is not None
        assert request.reason == "The customer asked for a person."
        assert [session.session_id for session in Session.objects.expired(timezone.now())] == ["invoice-0990"]

    def test_it_is_a_fortnight(self, sessions: list[str]):
        now = timezone.now()
        started = list(Session.objects.values_list("created_at", flat=True))
        assert {(now - moment).days for moment in started} >= set(range(14))
        assert not [moment for moment in started if moment > now or now - moment > timedelta(days=15)]
        assert not Event.objects.filter(created_at__gt=now).exists()
        assert not Run.objects.filter(ended_at__gt=now).exists()

    def test_runs_take_time_and_cost_money(self, sessions: list[str]):
        for run in Run.objects.filter(status="completed"):
            assert run.ended_at is not None
            assert run.ended_at > run.started_at, run
            assert run.usage["cost"] > 0, run
            assert run.usage["model"], run
        turns = Event.objects.filter(type="turn_finished")
        assert all(event.data["duration_ms"] > 0 and event.data["usage"]["cost"] for event in turns)

    def test_failures_have_causes_that_come_back(self, sessions: list[str]):
        failed = Run.objects.filter(status="failed")
        assert failed.exclude(error_fingerprint=None).count() == failed.count()
        causes = [run.error_fingerprint for run in failed]
        assert len(set(causes)) >= 5
        assert max(causes.count(cause) for cause in causes) >= 3

    def test_something_is_stuck_and_something_waits_past_its_deadline(
        self, store: SessionStore, sessions: list[str]
    ):
        now = timezone.now()
        stuck = Session.objects.stuck(now - timedelta(minutes=30))
        assert [session.session_id for session in stuck] == ["support-4820"]
        late = Session.objects.past_deadline(now).values_list("session_id", flat=True)
        assert set(late) == {"invoice-0990", "invoice-1165"}

    def test_no_worker_of_the_demo_takes_one_up(self, sessions: list[str]):
        assert not set(Session.objects.values_list("agent_type", flat=True)) & set(DEMO["AGENTS"])
