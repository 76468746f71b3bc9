"""`move_owner`: everything of an owner goes to another database, and is live in one of the two."""

import io
import json
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.utils import timezone

from helix_sessions.exceptions import Fenced, SessionBusy, SessionMoved, SessionNotFound
from helix_sessions.memory import MemoryStore
from helix_sessions.models import MovedOwner, MovedSession, Schedule, Session
from helix_sessions.runtime.actions.lifecycle import ClearSession
from helix_sessions.runtime.loop.runner import SessionRunner
from helix_sessions.runtime.scripted import ScriptedAgent
from helix_sessions.runtime.session_runtime import SessionRuntime
from helix_sessions.store import SessionStore
from helix_sessions.store.engine import moves
from helix_sessions.types import RetentionPolicy
from tests.cells.conftest import Cells, in_cells
from tests.contract.suspended import approval, suspended

pytestmark = pytest.mark.django_db(transaction=True)

NOT_COMPARED = ("fence", "write_mark", "lease_owner", "lease_token", "lease_expires_at")


def exported(store: SessionStore, owner: Any) -> list[dict[str, Any]]:
    file = io.StringIO()
    store.export_sessions(file, owner=owner)
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    return [{name: value for name, value in line.items() if name not in NOT_COMPARED} for line in lines]


def fill(cells: Cells) -> None:
    """Sessions of every kind: with a log, a tree, an inbox, calls that are waited for, and a run."""
    store = cells.here
    store.create_session("talk", agent_type="writer", owner=cells.owner, custom_state={"a": 1})
    for number in range(30):
        store.append_messages("talk", [{"role": "user", "content": f"message {number}"}])
    store.truncate_messages("talk", 20)
    store.emit_event("talk", "progress", {"n": 1}, idempotency_key="once")
    store.create_session("child", agent_type="writer", owner=cells.owner, parent_session_id="talk")
    store.admit_input("child", "hello", input_id="first")
    store.create_session("waiting", agent_type="writer", owner=cells.owner)
    store.create_run("waiting")
    call = {"id": "c1", "type": "function", "function": {"name": "ask", "arguments": "{}"}}
    store.append_messages("waiting", [{"role": "assistant", "content": None, "tool_calls": [call]}])
    store.create_session("elsewhere", agent_type="writer")
    MemoryStore("default").put(("owner", str(cells.owner.pk), "likes"), "tea", {"text": "tea"})


@in_cells
def test_everything_of_an_owner_goes_and_nothing_else(cells: Cells) -> None:
    fill(cells)
    before = exported(cells.here, cells.owner)
    summary = cells.here.move_owner(cells.owner, "second")
    assert (summary.trees, summary.sessions, summary.memories) == (2, 3, 1)
    assert exported(cells.there, cells.owner) == before
    assert [row.session_id for row in Session.with_tombstones.using("default")] == ["elsewhere"]
    assert MemoryStore("default").get(("owner", str(cells.owner.pk), "likes"), "tea") is None
    assert not MovedSession.objects.using("second").exists()
    assert not MovedOwner.objects.using("second").exists()
    assert cells.here.examine_sessions() == cells.there.examine_sessions() == []
    assert cells.there.append_messages("talk", [{"role": "user", "content": "more"}]).message_count == 21
    assert cells.here.move_owner(cells.owner, "second").sessions == 0


@in_cells
def test_the_source_refuses_and_names_the_other_database(cells: Cells) -> None:
    fill(cells)
    cells.here.move_owner(cells.owner, "second")
    message = [{"role": "user", "content": "late"}]
    late: dict[str, Any] = {
        "read": lambda: cells.here.load_state("talk"),
        "messages": lambda: cells.here.get_messages("talk"),
        "write": lambda: cells.here.append_messages("talk", message),
        "ensure": lambda: cells.here.ensure_session("talk", agent_type="writer", owner=cells.owner),
        "create": lambda: cells.here.create_session("talk", agent_type="writer"),
        "create another": lambda: cells.here.create_session(None, agent_type="writer", owner=cells.owner),
        "delete": lambda: cells.here.delete_session("talk"),
        "branch": lambda: cells.here.clone_session("talk", "branch"),
        "begin a branch": lambda: cells.here.begin_turn("branch", branch=("talk", None)),
        "below": lambda: cells.here.create_session("below", agent_type="writer", parent_session_id="talk"),
        "settle": lambda: cells.here.settle_child("child", "completed"),
        "export": lambda: cells.here.export_sessions(io.StringIO(), session_ids=["talk"]),
        "get": lambda: SessionRuntime(cells.here).get_session("talk"),
        "execute": lambda: SessionRuntime(cells.here).execute("talk", ClearSession()),
        "interrupt": lambda: SessionRunner(ScriptedAgent(), store=cells.here).interrupt("talk"),
    }
    for name, call in late.items():
        with pytest.raises(SessionMoved) as caught:
            call()
        assert caught.value.cell == "second", name
    with pytest.raises(SessionNotFound) as hidden:
        SessionStore("default", owned_by=cells.owner.pk + 1).load_state("talk")
    assert hidden.type is SessionNotFound
    cells.here.create_session("mine", agent_type="writer", owner=cells.owner.pk + 1)
    assert cells.there.ensure_session("talk", agent_type="writer").message_count == 20


@in_cells
def test_a_link_to_answer_goes_where_its_session_is(cells: Cells) -> None:
    cells.here.create_session("asks", agent_type="writer", owner=cells.owner)
    suspended(cells.here, "asks", approval("a"))
    token = cells.here.create_answer_link("asks", "a").token
    cells.here.move_owner(cells.owner, "second")
    for call in (
        lambda: cells.here.read_answer_link(token),
        lambda: cells.here.submit_by_answer_link(token, approved=True),
    ):
        with pytest.raises(SessionMoved) as caught:
            call()
        assert caught.value.cell == "second"
    assert cells.there.read_answer_link(token).tool_name == "tool_a"
    assert cells.there.submit_by_answer_link(token, approved=True).outcome == "accepted"


@in_cells
def test_a_call_that_looks_as_the_last_tree_arrives_is_to_be_repeated(cells: Cells) -> None:
    """It finds no session, and when it asks why, the move is over."""
    fill(cells)
    Session.objects.using("default").update(created_at=timezone.now() - timedelta(hours=1))
    explain = moves.explain_absence

    def late(*asked: Any) -> None:
        cells.here.move_owner(cells.owner, "second")
        explain(*asked)

    with patch.object(moves, "explain_absence", late), pytest.raises(SessionBusy):
        cells.there.load_state("talk")
    assert not MovedOwner.objects.using("second").exists()
    assert cells.there.load_state("talk").session_id == "talk"


@in_cells
def test_a_copy_is_absent_until_it_is_live(cells: Cells) -> None:
    fill(cells)
    cells.here.request_run("waiting")
    stopped = iter([False] * 2 + [True] * 100)
    cells.here.move_owner(cells.owner, "second", should_stop=lambda: next(stopped))
    assert MovedSession.objects.using("second").filter(state="arriving").count() == 3
    assert cells.there.list_sessions().items == []
    assert cells.there.list_runnable() == []
    for call in (
        lambda: cells.there.load_state("talk"),
        lambda: cells.there.ensure_session("talk", agent_type="writer"),
        lambda: cells.there.create_session(None, agent_type="writer", owner=cells.owner),
        lambda: cells.there.delete_session("talk"),
    ):
        with pytest.raises(SessionBusy):
            call()
    prunes = RetentionPolicy(terminal_for=timedelta(0), statuses=("deleted",))
    assert cells.there.prune_sessions(prunes).sessions == 0
    assert cells.there.examine_sessions() == []
    cells.here.append_messages("talk", [{"role": "user", "content": "meanwhile"}])
    cells.here.truncate_messages("talk", 5)
    cells.here.delete_session("waiting")
    cells.here.create_session("new", agent_type="writer", owner=cells.owner)
    before = exported(cells.here, cells.owner)
    cells.here.move_owner(cells.owner, "second")
    assert exported(cells.there, cells.owner) == before
    assert cells.there.load_state("talk").message_count == 5
    assert cells.there.examine_sessions() == []


@in_cells
def test_a_driver_is_fenced_and_its_run_goes_on_in_the_other_database(cells: Cells) -> None:
    fill(cells)
    lease = cells.here.acquire_lease("waiting", "worker", 600)
    cells.here.move_owner(cells.owner, "second")
    with pytest.raises((Fenced, SessionMoved)):
        cells.here.fenced(lease).append_messages("waiting", [{"role": "user", "content": "late"}])
    with pytest.raises((Fenced, SessionMoved)):
        cells.here.renew_lease(lease, 60)
    due = [row.session_id for row in cells.there.list_runnable()]
    assert "waiting" in due, due
    assert cells.there.acquire_lease("waiting", "other", 60).fence > lease.fence


@in_cells
def test_an_owner_goes_and_comes_back(cells: Cells) -> None:
    fill(cells)
    before = exported(cells.here, cells.owner)
    cells.here.move_owner(cells.owner, "second")
    cells.there.move_owner(cells.owner, "default")
    assert exported(cells.here, cells.owner) == before
    assert not MovedOwner.objects.using("default").exists()
    assert not MovedSession.objects.using("default").exists()
    with pytest.raises(SessionMoved):
        cells.there.load_state("talk")
    cells.here.create_session("again", agent_type="writer", owner=cells.owner)


@in_cells
def test_schedules_limits_spending_and_rules_go_too(cells: Cells) -> None:
    store = cells.here
    store.create_session("talk", agent_type="writer", owner=cells.owner)
    store.create_schedule("daily", cron="0 8 * * *", agent_type="writer", prompt="go", owner=cells.owner)
    due = Schedule.objects.using("default").get()
    store.set_tool_rule("look", "allow", owner=cells.owner)
    store.set_tool_rule("pay", "deny", session_id="talk")
    store.set_spend_limit(scope="owner", key=str(cells.owner.pk), window="total", usd=5)
    run = store.create_run("talk").run_id
    store.update_run_status("talk", run, "completed", usage={"cost": 0.5, "total_tokens": 9})
    before = store.spend_status(owner=cells.owner)
    assert [status.used_usd for status in before] == [0.5]
    store.move_owner(cells.owner, "second")
    assert cells.there.spend_status(owner=cells.owner) == before
    assert store.spend_status(owner=cells.owner) == []
    assert sorted(rule.tool for rule in cells.there.list_tool_rules()) == ["look", "pay"]
    assert store.list_tool_rules() == []
    arrived = Schedule.objects.using("second").get()
    assert (arrived.pk, arrived.enabled, arrived.next_at, arrived.prompt) == (due.pk, True, due.next_at, "go")
    assert not Schedule.objects.using("default").exists()
    assert arrived.next_at is None or arrived.next_at > timezone.now()
