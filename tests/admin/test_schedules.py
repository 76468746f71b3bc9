"""Schedules in the admin."""

import pytest
from django.contrib.auth.models import Permission

from helix_sessions.models import Schedule, ScheduleFiring, Session

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/admin/helix_sessions/schedule/"
GIVEN = {
    **{"name": "Digest", "cron": "0 8 * * 1-5", "timezone": "Europe/Berlin", "agent_type": "writer"},
    **{"prompt": "Write it.", "owner": "", "session": "new", "overlap": "skip", "catch_up": "1"},
    **{"priority": "0", "enabled": "on"},
}


@pytest.fixture
def operator(client, django_user_model):
    user = django_user_model.objects.create_user("operator", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="change_schedule"))
    client.force_login(user)
    return client


def test_a_schedule_is_made_changed_and_refused(operator):
    for wrong in ({"cron": "0 0 30 2 *"}, {"timezone": "Mars/Olympus"}, {"priority": "11"}, {"prompt": ""}):
        answer = operator.post(f"{LIST}add/", {**GIVEN, **wrong})
        assert answer.status_code == 200, wrong
        assert "errorlist" in answer.content.decode()
    assert Schedule.objects.count() == 0
    assert operator.post(f"{LIST}add/", GIVEN).status_code == 302
    [schedule] = Schedule.objects.all()
    page = operator.get(f"{LIST}{schedule.pk}/change/").content.decode()
    assert page.count("<time") >= 5, "the next five firings"
    assert operator.post(f"{LIST}{schedule.pk}/change/", {**GIVEN, "name": "Other"}).status_code == 302
    assert Schedule.objects.get().name == "Other"
    assert "Other" in operator.get(LIST).content.decode()


def test_they_are_run_now_paused_and_deleted(operator):
    operator.post(f"{LIST}add/", {**GIVEN, "name": "<script>alert(1)</script>"})
    [schedule] = Schedule.objects.all()

    def act(action):
        return operator.post(LIST, {"action": action, "_selected_action": [schedule.pk]}, follow=True)

    assert "1 schedule was fired." in act("run_now").content.decode()
    assert Session.objects.count() == 1
    ScheduleFiring.objects.update(error="<b>InboxFull</b>")
    page = operator.get(f"{LIST}{schedule.pk}/change/").content.decode()
    assert "&lt;b&gt;InboxFull&lt;/b&gt;" in page
    assert "<script>alert(1)" not in page + operator.get(LIST).content.decode()
    assert Session.objects.get().session_id in page
    act("pause")
    assert not Schedule.objects.get().enabled
    act("enable")
    assert Schedule.objects.get().enabled
    assert operator.post(f"{LIST}{schedule.pk}/delete/", {"post": "yes"}).status_code == 302
    assert Schedule.objects.count() == 0


def test_a_user_without_the_permission_changes_nothing(operator, client, django_user_model):
    operator.post(f"{LIST}add/", GIVEN)
    [schedule] = Schedule.objects.all()
    viewer = django_user_model.objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_schedule"))
    client.force_login(viewer)
    assert client.get(LIST).status_code == 200
    assert client.get(f"{LIST}{schedule.pk}/change/").status_code == 200
    assert client.post(f"{LIST}add/", GIVEN).status_code == 403
    client.post(LIST, {"action": "run_now", "_selected_action": [schedule.pk]})
    assert Session.objects.count() == 0
