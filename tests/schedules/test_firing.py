"""Schedules fire what is due, each firing once; overlap, missed firings, the days when clocks are changed."""

from io import StringIO
from typing import Any

import pytest
from django.db import transaction

from helix_sessions import models
from helix_sessions.conf import Conf
from helix_sessions.exceptions import InvalidExport, InvalidInput, ScheduleNotFound
from helix_sessions.models import Schedule, ScheduleFiring
from helix_sessions.runtime import SessionRunner
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.signals import schedule_fired
from helix_sessions.store import SessionStore
from helix_sessions.values.tools import ToolOptions
from tests.rows import each
from tests.schedules.conftest import sessions

pytestmark = pytest.mark.django_db(transaction=True)


def states() -> list[str]:
    return list(ScheduleFiring.objects.order_by("firing_id").values_list("state", flat=True))


def run_all(store: SessionStore, agent: object = None) -> int:
    return SessionRunner(agent or ScriptedAgent(), store=store).sweep()


def test_a_firing_is_a_session_of_the_owner_with_the_prompt(store, clock, hourly, django_user_model):
    ada = django_user_model.objects.create_user("ada")
    schedule = hourly(owner=ada)
    assert store.fire_schedules() == 0
    clock.at("2026-05-04T09:00:00")
    assert store.fire_schedules() == 1
    assert store.fire_schedules() == 0
    [session_id] = sessions()
    session = models.Session.objects.get()
    assert (session.owner_id, session.agent_type) == (ada.pk, "writer")
    assert session.metadata["schedule_id"] == schedule.pk
    [waiting] = store.list_inputs(session_id)
    assert waiting.prompt == "Write the digest."
    assert "schedule_fired" in [event.type for event in store.get_events(session_id)]
    assert run_all(store) == 1
    clock.at("2026-05-04T10:00:30")
    assert store.fire_schedules() == 1
    assert len(sessions()) == 2
    firings = store.list_schedule_firings(schedule.pk).items
    assert [f"{firing.firing_at:%H:%M}" for firing in firings] == ["10:00", "09:00"]


def test_firings_keep_to_one_session(store, clock, hourly, django_user_model):
    schedule = hourly(session="keep")
    for hour in (9, 10, 11):
        clock.at(f"2026-05-04T{hour:02}:00:00")
        assert store.fire_schedules() == 1
        run_all(store)
    [session_id] = sessions()
    assert len(store.list_inputs(session_id, pending=False)) == 3
    # Another session takes its place once it is gone, or belongs to somebody else.
    store.delete_session(session_id)
    clock.at("2026-05-04T12:00:00")
    store.fire_schedules()
    [second] = sessions()
    assert second != session_id
    run_all(store)
    store.update_schedule(schedule.pk, owner=django_user_model.objects.create_user("ada"))
    clock.at("2026-05-04T13:00:00")
    assert store.fire_schedules() == 1
    assert len(sessions()) == 2


class TestOverlap:
    def test_it_is_skipped_while_the_firing_before_is_pending(self, store, clock, hourly):
        schedule = hourly()
        for hour in (9, 10):
            clock.at(f"2026-05-04T{hour:02}:00:00")
            store.fire_schedules()
        assert len(sessions()) == 1
        assert states() == ["fired", "skipped"]
        run_all(store)
        # What was skipped is not made good.
        clock.at("2026-05-04T10:30:00")
        assert store.fire_schedules() == 0
        clock.at("2026-05-04T11:00:00")
        assert store.fire_schedules() == 1
        assert states() == ["fired", "skipped", "fired"]
        assert store.get_schedule(schedule.pk).last_error is None

    def test_while_it_runs_and_while_it_waits(self, store, clock, hourly):
        hourly()
        agent = ScriptedAgent(calls("refund", cents=5), "done")
        agent.tools = {"refund": lambda arguments, turn: "paid"}
        agent.tool_options = {"refund": ToolOptions(approval=True)}
        clock.at("2026-05-04T09:00:00")
        store.fire_schedules()
        [session_id] = sessions()
        store.acquire_lease(session_id, "driver", ttl=60)
        store.release_lease(store.get_lease(session_id))
        run_all(store, agent)
        assert store.load_state(session_id).pending_client_tool_calls
        clock.at("2026-05-04T10:00:00")
        store.fire_schedules()
        [call_id] = store.load_state(session_id).pending_client_tool_calls
        store.submit_tool_result(session_id, call_id, approved=True)
        clock.at("2026-05-04T11:00:00")
        store.fire_schedules()  # answered, and not taken up yet
        assert states() == ["fired", "skipped", "skipped"]
        run_all(store, agent)
        clock.at("2026-05-04T12:00:00")
        store.fire_schedules()
        assert states()[-1] == "fired"

    def test_what_else_a_kept_session_does_is_no_overlap(self, store, clock, hourly):
        hourly(session="keep")
        clock.at("2026-05-04T09:00:00")
        store.fire_schedules()
        run_all(store)
        [session_id] = sessions()
        store.admit_input(session_id, "a person's own prompt")
        store.create_run(session_id)
        clock.at("2026-05-04T10:00:00")
        assert store.fire_schedules() == 1
        clock.at("2026-05-04T11:00:00")
        assert store.fire_schedules() == 0
        assert states() == ["fired", "fired", "skipped"]

    def test_it_is_queued_and_begins_when_the_firing_before_has_ended(self, store, clock, hourly):
        hourly(overlap="queue")
        for hour in (9, 10, 11):
            clock.at(f"2026-05-04T{hour:02}:00:00")
            assert store.fire_schedules() == 1
        first, second, third = sessions()
        assert states() == ["fired", "queued", "queued"]
        for session_id, left in ((first, [second, third]), (second, [third]), (third, [])):
            assert run_all(store) == 1
            assert store.list_inputs(session_id) == []
            assert [key for key in sessions() if store.list_inputs(key)] == left
            store.fire_schedules()
        assert states() == ["fired"] * 3

    def test_a_kept_session_queues_its_inputs(self, store, clock, hourly):
        hourly(overlap="queue", session="keep")
        for hour in (9, 10):
            clock.at(f"2026-05-04T{hour:02}:00:00")
            assert store.fire_schedules() == 1
        [session_id] = sessions()
        assert len(store.list_inputs(session_id)) == 2
        run_all(store)
        assert [run.status for run in store.list_runs(session_id).items] == ["completed"] * 2

    def test_a_cancelled_or_deleted_firing_is_over(self, store, clock, hourly):
        hourly()
        clock.at("2026-05-04T09:00:00")
        store.fire_schedules()
        [session_id] = sessions()
        store.cancel_input(session_id, store.list_inputs(session_id)[0].input_id)
        clock.at("2026-05-04T10:00:00")
        assert store.fire_schedules() == 1
        store.delete_session(sessions()[1])
        clock.at("2026-05-04T11:00:00")
        assert store.fire_schedules() == 1


MISSED = {
    "on time to the last second": (59, 1, ["09:00"]),
    "missed after a minute, and made good": (60, 1, ["09:00"]),
    "missed, and not made good": (60, 0, []),
    "on time, though none is made good": (59, 0, ["09:00"]),
    "the last of many": (3 * 3600 + 120, 1, ["12:00"]),
    "some of many": (3 * 3600 + 120, 3, ["10:00", "11:00", "12:00"]),
    "all of many": (3 * 3600 + 120, 10, ["09:00", "10:00", "11:00", "12:00"]),
    "missed ones and one that is due": (3 * 3600, 2, ["10:00", "11:00", "12:00"]),
}


@each("row", MISSED.values(), ids=MISSED)
def test_missed_firings_are_made_good_one_after_another(store, clock, hourly, row):
    late, catch_up, expected = row
    clock.at("2026-05-04T08:59:30")
    hourly(catch_up=catch_up, overlap="queue")
    clock.at("2026-05-04T09:00:00")
    clock.advance(seconds=late)
    assert store.fire_schedules() == len(expected)
    made = ScheduleFiring.objects.order_by("firing_id")
    assert [f"{firing.firing_at:%H:%M}" for firing in made] == expected
    assert states() == [*["fired"] * (expected != []), *["queued"] * (len(expected) - 1)]


def test_missed_firings_are_made_good_whatever_overlap_says(store, clock, hourly):
    hourly(catch_up=2)
    clock.at("2026-05-04T11:00:00")
    assert store.fire_schedules() == 2
    # The one that is due now is skipped, because the firing before is pending.
    assert states() == ["fired", "queued", "skipped"]
    run_all(store)
    store.fire_schedules()
    assert run_all(store) == 1
    assert states() == ["fired", "fired", "skipped"]


def test_a_year_without_workers_is_soon_worked_out(store, clock, hourly):
    hourly(cron="* * * * *", catch_up=2)
    clock.at("2027-05-04T09:00:30")
    assert store.fire_schedules() == 2
    assert [f"{firing.firing_at:%H:%M}" for firing in ScheduleFiring.objects.order_by("firing_id")] == [
        "08:58",
        "08:59",
        "09:00",
    ]


@each(
    ("cron", "first", "minutes", "expected"),
    [
        ("30 2 * * *", "2026-03-29T00:00:10", 4 * 60, ["29 01:00"]),
        ("30 2 * * *", "2026-10-25T00:00:10", 4 * 60, ["25 00:30"]),
        ("0 3 * * *", "2026-03-29T00:00:10", 4 * 60, ["29 01:00"]),
    ],
)
def test_clocks_that_are_changed_double_and_lose_no_firing(
    store, clock, hourly, cron, first, minutes, expected
):
    clock.at("2026-03-28T12:00:00" if "-03-" in first else "2026-10-24T12:00:00")
    hourly(cron=cron, timezone="Europe/Berlin", overlap="queue")
    clock.at(first)
    for _ in range(minutes):
        store.fire_schedules()
        clock.advance(minutes=1)
    made = ScheduleFiring.objects.order_by("firing_id")
    assert [f"{firing.firing_at:%d %H:%M}" for firing in made] == expected


def test_nothing_is_fired_or_missed_while_a_schedule_is_paused(store, clock, hourly):
    by_store, by_rows, by_saving = hourly(), hourly(), hourly()
    store.update_schedule(by_store.pk, enabled=False)
    Schedule.objects.filter(pk=by_rows.pk).update(enabled=False)
    by_saving.enabled = False
    by_saving.save()
    clock.at("2026-05-04T10:20:00")
    assert store.fire_schedules() == 0
    assert store.get_schedule(by_store.pk).next_firings == ()
    store.update_schedule(by_store.pk, enabled=True)
    Schedule.objects.filter(pk__in=[by_rows.pk, by_saving.pk]).update(enabled=True)
    assert store.fire_schedules() == 0
    clock.at("2026-05-04T11:00:00")
    assert store.fire_schedules() == 3


def test_other_times_hold_from_now_on(store, clock, hourly):
    schedule = hourly(cron="0 0 1 1 *")
    assert f"{store.get_schedule(schedule.pk).next_firings[0]:%m-%d}" == "01-01"
    store.update_schedule(schedule.pk, cron="0 9 * * *", timezone="Europe/Berlin")
    clock.at("2026-05-05T07:00:00")
    assert store.fire_schedules() == 1
    row = Schedule.objects.get()
    row.name = "Renamed"
    row.save()
    assert store.fire_schedules() == 0


def test_run_now_is_a_firing_that_never_overlaps(store, clock, hourly):
    schedule = hourly(enabled=False)
    assert store.run_schedule(schedule.pk).state == "fired"
    assert store.run_schedule(schedule.pk).state == "queued"
    assert len(sessions()) == 2
    run_all(store)
    store.fire_schedules()
    assert run_all(store) == 1
    with pytest.raises(ScheduleNotFound):
        store.run_schedule("no such schedule")


def test_the_error_of_a_firing_is_kept_and_the_next_one_is_tried(store, clock, hourly, monkeypatch):
    schedule = hourly(session="keep", overlap="queue")
    other = hourly()
    monkeypatch.setattr(Conf, "INBOX_LIMIT", 0)
    clock.at("2026-05-04T09:00:00")
    assert store.fire_schedules() == 0
    found = store.get_schedule(schedule.pk)
    assert found.last_error is not None
    assert found.last_error.startswith("InboxFull: ")
    [firing] = store.list_schedule_firings(other.pk).items
    assert (firing.state, firing.session_id) == ("failed", None)
    assert sessions() == []
    monkeypatch.undo()


def test_a_failed_firing_is_no_overlap(store, clock, hourly, monkeypatch):
    schedule = hourly()
    with monkeypatch.context() as patch:
        patch.setattr(Conf, "INBOX_LIMIT", 0)
        clock.at("2026-05-04T09:00:00")
        assert store.fire_schedules() == 0
    clock.at("2026-05-04T10:00:00")
    assert store.fire_schedules() == 1
    assert store.get_schedule(schedule.pk).last_error is None


def test_a_row_that_is_no_schedule_stops_no_other(store, clock, hourly):
    bad = hourly()
    hourly()
    Schedule.objects.filter(pk=bad.pk).update(cron="0 0 30 2 *")
    clock.at("2026-05-04T09:00:00")
    assert store.fire_schedules() == 1
    assert "no cron expression" in (store.get_schedule(bad.pk).last_error or "")
    assert not Schedule.objects.get(pk=bad.pk).enabled


def test_a_signal_tells_of_each_firing(store, clock, hourly):
    told = []
    schedule_fired.connect(lambda **given: told.append(given["state"]), weak=False, dispatch_uid="test")
    try:
        hourly()
        for hour in (9, 10):
            clock.at(f"2026-05-04T{hour:02}:00:00")
            store.fire_schedules()
    finally:
        schedule_fired.disconnect(dispatch_uid="test")
    assert told == ["fired", "skipped"]


def test_a_caller_that_rolls_back_has_fired_nothing(store, clock, hourly):
    hourly()
    clock.at("2026-05-04T09:00:00")
    with transaction.atomic():
        assert store.fire_schedules() == 1
        transaction.set_rollback(True)
    assert sessions() == []
    assert store.fire_schedules() == 1


ENTERED: dict[str, list[Any]] = {
    "cron": ["0 0 30 2 *", "every day", "", "* * * *", 5],
    "timezone": ["Mars/Olympus", "", "../UTC"],
    "name": ["", "x" * 201, 5],
    "agent_type": ["", "x" * 256],
    "prompt": ["", 5, "x" * 100_001],
    "session": ["old", ""],
    "overlap": ["allow", None],
    "catch_up": [-1, 101, 1.5, True, "2"],
    "priority": [-11, 11, True],
    "enabled": ["yes"],
}


@each(("name", "value"), [(name, value) for name, values in ENTERED.items() for value in values])
def test_bad_values_are_refused_when_they_are_entered(store, clock, hourly, name, value):
    schedule = hourly()
    with pytest.raises(InvalidInput):
        hourly(**{name: value})
    good = {"name": "n", "cron": "* * * * *", "agent_type": "writer", "prompt": "p", "timezone": "UTC"}
    given = {**good, name: value}
    with pytest.raises(InvalidInput):
        store.create_schedule(given.pop("name"), **given)
    with pytest.raises(InvalidInput):
        store.update_schedule(schedule.pk, **{name: value})
    setattr(schedule, name, value)
    with pytest.raises(InvalidInput):
        schedule.save()
    assert Schedule.objects.count() == 1
    assert store.get_schedule(schedule.pk).cron == "0 * * * *"


def test_a_store_of_one_owner_has_its_own_schedules(store, clock, hourly, django_user_model):
    ada, bob = (django_user_model.objects.create_user(name) for name in ("ada", "bob"))
    foreign = hourly(owner=bob)
    own = SessionStore(owned_by=ada)
    mine = own.create_schedule("Mine", cron="0 * * * *", timezone="UTC", agent_type="writer", prompt="p")
    assert mine.owner_id == ada.pk
    assert [found.schedule_id for found in own.list_schedules().items] == [mine.schedule_id]
    for call in (own.get_schedule, own.delete_schedule, own.run_schedule, own.list_schedule_firings):
        with pytest.raises(ScheduleNotFound):
            call(foreign.pk)
    with pytest.raises(InvalidInput):
        own.update_schedule(mine.schedule_id, owner=bob)
    clock.at("2026-05-04T09:00:00")
    assert own.fire_schedules() == 1
    assert store.fire_schedules() == 1


def test_pages_of_schedules_and_the_next_five_firings(store, clock, hourly):
    for number in range(5):
        hourly(name=str(number), enabled=number != 3)
    first = store.list_schedules(limit=2)
    second = store.list_schedules(limit=2, cursor=first.next_cursor)
    third = store.list_schedules(limit=2, cursor=second.next_cursor)
    names = [found.name for page in (first, second, third) for found in page.items]
    assert sorted(names) == ["0", "1", "2", "3", "4"]
    assert third.next_cursor is None
    assert len(store.list_schedules(enabled=True).items) == 4
    assert [f"{at:%H:%M}" for at in first.items[0].next_firings] == [
        *("09:00", "10:00", "11:00", "12:00", "13:00")
    ]


def test_schedules_are_exported_and_imported(store, clock, hourly, django_user_model):
    ada, bob = (django_user_model.objects.create_user(name) for name in ("ada", "bob"))
    mine, other = hourly(owner=ada, prompt="a \u2028 plan", overlap="queue"), hourly(enabled=False)
    before = {found.schedule_id: found for found in store.list_schedules().items}
    file = StringIO()
    assert store.export_sessions(file, owner=ada).schedules == 1
    assert store.export_sessions(StringIO(), user_id="ada").schedules == 0
    everything = StringIO()
    assert store.export_sessions(everything).schedules == 2
    with pytest.raises(InvalidExport):
        store.import_sessions(StringIO(everything.getvalue()))
    assert store.import_sessions(StringIO(everything.getvalue()), on_collision="skip").skipped == 2
    Schedule.objects.all().delete()
    assert store.import_sessions(StringIO(everything.getvalue())).schedules == 2
    assert {found.schedule_id: found for found in store.list_schedules().items} == before
    assert store.import_sessions(StringIO(file.getvalue()), on_collision="renew", owner=bob).schedules == 1
    assert [row.prompt for row in Schedule.objects.filter(owner=bob)] == [mine.prompt]
    bad = file.getvalue().replace("0 * * * *", "0 0 30 2 *")
    with pytest.raises(InvalidExport):
        store.import_sessions(StringIO(bad), on_collision="renew")
    assert other.pk in before


def test_schedules_go_with_their_owner(store, clock, hourly, django_user_model):
    ada = django_user_model.objects.create_user("ada")
    hourly(owner=ada)
    kept = hourly()
    clock.at("2026-05-04T09:00:00")
    store.fire_schedules()
    store.erase_user(owner=ada)
    assert [row.pk for row in Schedule.objects.all()] == [kept.pk]
    assert ScheduleFiring.objects.count() == 1
    bob = django_user_model.objects.create_user("bob")
    hourly(owner=bob)
    bob.delete()
    assert Schedule.objects.count() == 1
