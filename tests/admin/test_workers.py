"""Workers: what is alive, what it drives and since when; the same on Now and on the page of workers."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from helix_sessions.admin import workers as module
from helix_sessions.admin.workers import WorkerLine, workers
from helix_sessions.models import Run, Session, Worker
from helix_sessions.store import SessionStore
from helix_sessions.store.driving.workers import beat, leave
from tests.admin.places import LIST, make_stuck

pytestmark = pytest.mark.django_db

WORKERS = f"{LIST}workers/"
PANELS = f"{LIST}now/panels/"


def drive(store: SessionStore, session_id: str, owner: str) -> None:
    store.create_session(session_id, agent_type="support")
    store.create_run(session_id)
    store.acquire_lease(session_id, owner, 60)


def lose_lease(session_id: str) -> None:
    Session.objects.filter(session_id=session_id).update(lease_expires_at=timezone.now() - timedelta(hours=1))


def say_alive(store: SessionStore, owner: str, driven: int = 0) -> None:
    started = timezone.now() - timedelta(hours=2)
    about: Any = {"host": "box", "pid": 7, "concurrency": 4, "agents": ["*"], "started_at": started}
    beat(store.using, owner, **about)
    beat(store.using, owner, **about, driven=driven)


def found() -> dict[str, WorkerLine]:
    return {line.name: line for line in workers(timezone.now()).lines}


def test_a_worker_is_alive_while_it_says_so_whatever_it_drives(store: SessionStore):
    say_alive(store, "busy", driven=3)
    say_alive(store, "idle")
    say_alive(store, "dead")
    Worker.objects.filter(owner="dead").update(seen_at=timezone.now() - timedelta(minutes=5))
    drive(store, "s", "busy")
    drive(store, "left", "dead")  # its lease has not run out yet, but nobody renews it
    began = timezone.now() - timedelta(minutes=3)
    Run.objects.filter(session_id="s").update(started_at=began)
    lines = workers(timezone.now()).lines
    assert [(line.name, line.is_alive, line.count) for line in lines] == [
        ("busy", True, 1),
        ("idle", True, 0),
        ("dead", False, 1),
    ]
    busy = lines[0]
    assert busy.row is not None
    assert (busy.row.driven, busy.since, busy.load) == (3, busy.row.started_at, 25.0)
    assert [(each.session_id, each.since) for each in busy.driven] == [("s", began)]


def test_an_owner_of_leases_without_a_row_is_alive_as_long_as_they_are(store: SessionStore):
    drive(store, "s", "mine")
    drive(store, "lost", "gone")
    lose_lease("lost")
    store.create_session("idle", agent_type="support")
    store.acquire_lease("idle", "between-runs", 60)
    store.create_session("rest", agent_type="support")
    store.acquire_lease("rest", "forgotten", 60)
    lose_lease("rest")  # nothing was under way
    lines = found()
    assert {name: line.is_alive for name, line in lines.items()} == {
        "mine": True,
        "gone": False,
        "between-runs": True,
    }
    assert (lines["gone"].lost, lines["gone"].driven[0].is_lost) == (1, True)
    assert lines["mine"].since == Run.objects.get(session_id="s").started_at
    assert (workers(timezone.now()).alive, workers(timezone.now()).driven) == (2, 2)


def test_a_worker_that_leaves_is_no_worker(store: SessionStore):
    say_alive(store, "w")
    leave(store.using, "w")
    assert found() == {}


def test_what_needs_a_look_is_named_first_and_the_rest_counted(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "NAMED", 2)
    say_alive(store, "w")
    for number in range(4):
        drive(store, f"s-{number}", "w")
    lose_lease("s-3")
    make_stuck("s-2")
    line = found()["w"]
    assert [each.session_id for each in line.driven] == ["s-3", "s-2"]
    assert (line.count, line.unnamed, line.lost, line.silent) == (4, 2, 1, 1)
    monkeypatch.setattr(module, "MOST_DRIVEN", 3)
    assert workers(timezone.now()).is_cut


def test_both_pages_say_the_same(store: SessionStore, viewer: Client, stranger: Client):
    assert "No worker is alive" in viewer.get(WORKERS).content.decode()
    say_alive(store, "<b>one</b>")
    drive(store, "s-1", "<b>one</b>")
    drive(store, "s-2", "other")
    lose_lease("s-2")
    cache.clear()
    for place in (WORKERS, PANELS):
        response = viewer.get(place)
        context: Any = response.context
        told = context["workers"] if place == WORKERS else context["now"].workers
        assert [(line.name, line.is_alive, line.count) for line in told.lines] == [
            ("<b>one</b>", True, 1),
            ("other", False, 1),
        ], place
        page = response.content.decode()
        for words in ("1 alive", "1 session driven", "&lt;b&gt;one&lt;/b&gt;", "lease ran out"):
            assert words in page, (place, words)
    assert stranger.get(WORKERS).status_code == 403
