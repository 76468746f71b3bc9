"""Whoever fires schedules, and however many do: each firing once, also when some of them are killed."""

from datetime import timedelta
from functools import partial
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connections
from django.utils import timezone

from helix_sessions.models import Input, Schedule, ScheduleFiring, Session
from helix_sessions.store import SessionStore
from tests.parallel import Worker, run_processes, run_threads, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

COUNT = 40


def missed_hourly(count: int, **fields: object) -> None:
    """Schedules that missed one firing, so that each is to fire once, whatever the time is."""
    now = timezone.now()
    minute = (now - timedelta(minutes=30)).minute
    values = {"cron": f"{minute} * * * *", "timezone": "UTC", "agent_type": "polite", "prompt": "hello"}
    rows = [Schedule(name=str(number), **{**values, **fields}) for number in range(count)]
    Schedule.objects.bulk_create(rows)
    Schedule.objects.update(next_at=now - timedelta(minutes=59))


def fire(index: int) -> int:
    return SessionStore().fire_schedules()


def fire_for_ever(journal: str) -> None:
    while True:
        SessionStore().fire_schedules()


def _are_made(some: int) -> bool:
    return ScheduleFiring.objects.count() >= some


def assert_each_fired_once() -> None:
    fired = ScheduleFiring.objects.filter(state="fired")
    assert fired.count() == fired.values("schedule_id").distinct().count() == COUNT
    assert Session.objects.count() == Input.objects.count() == COUNT


def test_threads_and_processes_fire_each_once(store):
    missed_hourly(COUNT)
    assert sum(run_threads(4, fire)) + sum(run_processes(3, fire)) == COUNT
    assert_each_fired_once()


def test_a_killed_process_leaves_its_firings_to_others(store):
    missed_hourly(COUNT)
    for some in (1, COUNT // 3, 2 * COUNT // 3):
        worker = Worker(fire_for_ever, "")
        worker.wait_until_ready()
        worker.go()
        wait_until(partial(_are_made, some))
        worker.kill()
        assert Session.objects.count() >= ScheduleFiring.objects.count()
    connections.close_all()
    wait_until(lambda: store.fire_schedules() or ScheduleFiring.objects.count() == COUNT)
    assert_each_fired_once()


def test_run_sessions_fires_and_drives_what_is_queued_too(store, settings):
    settings.HELIX_SESSIONS = {"AGENTS": {"polite": "tests.runner.agents.polite"}}
    missed_hourly(1)
    [schedule] = Schedule.objects.all()
    for _ in range(2):
        store.run_schedule(schedule.pk)
    out = StringIO()
    call_command("run_sessions", "--once", "--concurrency", "2", "--poll", "0.05", stdout=out)
    assert "Driven 3, of which 0 failed." in out.getvalue()
    assert set(ScheduleFiring.objects.values_list("state", flat=True)) == {"fired"}


def test_the_sweeping_task_fires_too(store, settings):
    tasks = pytest.importorskip("helix_sessions.tasks")
    settings.HELIX_SESSIONS = {"AGENTS": {"polite": "tests.runner.agents.polite"}}
    missed_hourly(1)
    assert tasks.sweep_sessions.call() == {"swept": 1}
