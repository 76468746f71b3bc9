"""Counts of runs by quarters of an hour: what was counted and what was not make the whole."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from helix_sessions.admin.companions import RunCounter
from helix_sessions.admin.now import flow
from helix_sessions.admin.now.windows import WINDOWS
from helix_sessions.models import Run, RunTally
from helix_sessions.store import SessionStore
from helix_sessions.store.maintenance import run_tallies
from helix_sessions.store.maintenance.run_tallies import KEPT, MOST_SLOTS, SETTLED, SLOT, slot_of, tally

pytestmark = pytest.mark.django_db

NOW = datetime(2031, 5, 6, 12, 40, tzinfo=UTC)


def end_runs(store: SessionStore, *moments: datetime, status: str = "completed") -> None:
    for moment in moments:
        key = f"s-{Run.objects.count()}"
        store.create_session(key, agent_type="a")
        store.create_run(key)
        Run.objects.filter(session_id=key).update(status=status, ended_at=moment)


def tally_all(store: SessionStore, now: datetime) -> None:
    while tally(store.using, now):
        pass


def test_quarters_that_are_over_are_counted_once(store: SessionStore):
    before = NOW - timedelta(hours=1)
    end_runs(store, before, before + timedelta(minutes=1), NOW - timedelta(minutes=1))
    end_runs(store, before, status="failed")
    tally_all(store, NOW)
    rows = {row.slot: (row.ended, row.failed) for row in RunTally.objects.all()}
    assert rows[slot_of(before)] == (3, 1)
    assert sum(ended for ended, _ in rows.values()) == 3  # the last quarter is not over
    assert max(rows) == slot_of(NOW) - SLOT
    assert len(rows) == KEPT // SLOT - 1
    assert tally(store.using, NOW) == 0
    tally_all(store, NOW + SLOT)
    assert RunTally.objects.get(slot=slot_of(NOW)).ended == 1
    assert RunTally.objects.count() == len(rows)  # the oldest went


def test_a_quarter_waits_for_writes_under_way(store: SessionStore):
    end = slot_of(NOW)
    tally_all(store, end + SETTLED - timedelta(seconds=1))
    assert not RunTally.objects.filter(slot=end - SLOT).exists()
    tally_all(store, end + SETTLED)
    assert RunTally.objects.filter(slot=end - SLOT).exists()


def test_charts_are_the_same_with_and_without(store: SessionStore):
    now = timezone.now()
    ago = [
        timedelta(minutes=3),
        timedelta(minutes=50),
        timedelta(hours=20),
        timedelta(days=4),
        timedelta(days=12),
    ]
    end_runs(store, *(now - each for each in ago))
    end_runs(store, now - timedelta(days=4), status="failed")
    without = {name: flow.throughput(window, now) for name, window in WINDOWS.items()}
    assert (without["fortnight"].ended, without["fortnight"].failed) == (6, 1)
    tally(store.using, now)  # a part of them
    assert RunTally.objects.count() == MOST_SLOTS
    for name, window in WINDOWS.items():
        assert flow.throughput(window, now) == without[name], name
    tally_all(store, now)
    for name, window in WINDOWS.items():
        assert flow.throughput(window, now) == without[name], name
    store.delete_session("s-4")  # what happened has happened
    assert flow.throughput(WINDOWS["fortnight"], now) == without["fortnight"]


def test_workers_count(store: SessionStore):
    end_runs(store, timezone.now() - timedelta(hours=1))
    RunCounter(None, poll=1).step(to_the_end=False)
    assert sum(RunTally.objects.values_list("ended", flat=True)) == 1
    assert run_tallies.tally(store.using, timezone.now()) == 0
