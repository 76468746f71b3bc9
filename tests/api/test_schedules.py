"""Schedules, and priorities, over HTTP."""

import pytest

from helix_sessions.api import operator_examples
from helix_sessions.models import Session
from tests.api.test_problems import is_problem
from tests.rows import each

pytestmark = pytest.mark.django_db

GIVEN = operator_examples.NEW_SCHEDULE


def priority_of(answer):
    return Session.objects.get(session_id=answer.json()["session_id"]).priority


@pytest.fixture
def operator(user, client_of, grant):
    return client_of(grant(user, "change_schedule"))


def test_a_schedule_is_made_listed_changed_run_and_deleted(operator, user):
    made = operator.post("/api/schedules/", {**GIVEN, "owner": user.pk, "priority": 3})
    assert made.status_code == 201
    schedule = made.json()
    assert set(schedule) == set(operator_examples.SCHEDULE)
    assert (schedule["owner_id"], schedule["priority"]) == (user.pk, 3)
    assert len(schedule["next_firings"]) == 5
    assert operator.get("/api/schedules/").json() == {"items": [schedule], "next_cursor": None}
    path = f"/api/schedules/{schedule['schedule_id']}/"
    assert operator.get(path).json() == schedule
    fired = operator.post(f"{path}run/")
    assert fired.status_code == 201
    assert fired.json()["state"] == "fired"
    assert operator.get(f"{path}firings/").json()["items"] == [fired.json()]
    assert priority_of(fired) == 3
    changed = operator.patch(path, {"enabled": False}).json()
    assert (changed["enabled"], changed["next_firings"]) == (False, [])
    assert operator.get("/api/schedules/?enabled=true").json()["items"] == []
    assert operator.delete(path).status_code == 204
    for answer in (operator.get(path), operator.patch(path, {}), operator.post(f"{path}run/")):
        is_problem(answer, 404, "schedule_not_found")


WRONG = [
    *({"cron": cron} for cron in ("0 0 30 2 *", "hourly", "", 5)),
    *({"timezone": zone} for zone in ("Mars/Olympus", "")),
    *({"session": "old"}, {"overlap": "allow"}, {"catch_up": -1}, {"catch_up": "1"}, {"priority": 11}),
    *({"prompt": ""}, {"name": ""}, {"agent_type": ""}, {"owner": "nobody"}, {"unknown": 1}),
]


@each("wrong", WRONG)
def test_bad_values_are_refused_when_they_are_entered(operator, wrong):
    is_problem(operator.post("/api/schedules/", {**GIVEN, **wrong}), 400, "invalid_input")
    path = f"/api/schedules/{operator.post('/api/schedules/', GIVEN).json()['schedule_id']}/"
    is_problem(operator.patch(path, wrong), 400, "invalid_input")
    [schedule] = operator.get("/api/schedules/").json()["items"]
    assert {name: schedule[name] for name in GIVEN} == GIVEN


def test_participants_and_drivers_have_none(api, user, client_of, grant, operator):
    path = f"/api/schedules/{operator.post('/api/schedules/', GIVEN).json()['schedule_id']}/"
    user.user_permissions.clear()
    for client in (client_of(type(user).objects.get(pk=user.pk)), client_of(grant(user, "drive_session"))):
        for answer in (
            client.get("/api/schedules/"),
            client.post("/api/schedules/", GIVEN),
            client.get(path),
            client.patch(path, {"enabled": False}),
            client.post(f"{path}run/"),
            client.get(f"{path}firings/"),
            client.delete(path),
        ):
            assert answer.status_code == 403


def test_priorities(api, user, client_of, grant, store, settings):
    settings.HELIX_SESSIONS = {**settings.HELIX_SESSIONS, "PARTICIPANT_AGENT_TYPES": "*"}
    driver = client_of(grant(type(user).objects.create_user("driver"), "drive_session"))
    made = driver.post("/api/sessions/", {"agent_type": "writer", "priority": 4})
    assert (made.status_code, priority_of(made)) == (201, 4)
    inputs = f"/api/sessions/{made.json()['session_id']}/inputs/"
    assert driver.post(inputs, {"prompt": "hello", "priority": 7}).status_code == 201
    assert priority_of(made) == 7
    for wrong in (-11, 11, "1", 1.5):
        is_problem(driver.post(inputs, {"prompt": "hello", "priority": wrong}), 400, "invalid_input")
        body = {"agent_type": "writer", "priority": wrong}
        is_problem(driver.post("/api/sessions/", body), 400, "invalid_input")
    # A participant may step back, and not push in.
    someone = client_of(type(user).objects.create_user("someone"))
    mine = someone.post("/api/sessions/", {"agent_type": "writer", "priority": -2})
    assert (mine.status_code, priority_of(mine)) == (201, -2)
    inputs = f"/api/sessions/{mine.json()['session_id']}/inputs/"
    assert someone.post(inputs, {"prompt": "hello", "priority": 0}).status_code == 201
    is_problem(someone.post(inputs, {"prompt": "hello", "priority": 1}), 403, "permission_denied")
    body = {"agent_type": "writer", "priority": 1}
    is_problem(someone.post("/api/sessions/", body), 403, "permission_denied")
