"""The permissions of a user are read in one statement, and decided on by the backends of the project."""

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import BaseBackend, ModelBackend
from django.contrib.auth.models import AnonymousUser, Group, Permission
from django.core.exceptions import PermissionDenied
from rest_framework.test import APIClient

from helix_sessions.api import permissions
from helix_sessions.api.permissions import holds_any
from helix_sessions.api.scoping import DRIVE, MANAGE_ALL, VIEW_ALL
from helix_sessions.conf import conf
from project.tokens import create_token
from tests.api.statements import captured_statements

pytestmark = pytest.mark.django_db

HERE = f"{__name__}."
DJANGOS = "django.contrib.auth.backends.ModelBackend"


class Refusing(BaseBackend):
    """Refuses everything, before other backends are asked."""

    def has_perm(self, user_obj: Any, perm: str, obj: Any = None) -> bool:
        raise PermissionDenied


class Granting(BaseBackend):
    """Grants one permission to all."""

    def get_user_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        return {MANAGE_ALL}


class ByName(ModelBackend):
    """Reads permissions in a way of its own."""

    def _get_group_permissions(self, user_obj: Any) -> Any:
        return Permission.objects.filter(codename="manage_all_sessions")


def permission(name: str) -> Permission:
    return Permission.objects.get(codename=name.partition(".")[2])


def again(user: Any) -> Any:
    """The user as another request reads it."""
    return get_user_model().objects.get(pk=user.pk)


@pytest.fixture
def member(db: None) -> Any:
    """A user with a permission, in a group with two, beside others who have more."""
    user = get_user_model().objects.create_user("mem")
    team, others = Group.objects.create(name="team"), Group.objects.create(name="others")
    user.user_permissions.add(permission(VIEW_ALL))
    team.permissions.add(permission(VIEW_ALL), permission(DRIVE))
    others.permissions.add(permission(MANAGE_ALL))
    user.groups.add(team)
    other = get_user_model().objects.create_user("other")
    other.user_permissions.add(permission(MANAGE_ALL))
    other.groups.add(others)
    return user


def test_all_are_read_in_one_statement(member: Any) -> None:
    holds_any(again(member), DRIVE)  # the first statement of a process asks which database it is
    asked = again(member)
    with captured_statements() as sent:
        held = {name: holds_any(asked, name) for name in (VIEW_ALL, DRIVE, MANAGE_ALL)}
    assert held == {VIEW_ALL: True, DRIVE: True, MANAGE_ALL: False}
    assert len(sent) == 1, sent


def test_they_are_those_that_django_reads(member: Any) -> None:
    ours, djangos = again(member), again(member)
    holds_any(ours, DRIVE)
    with captured_statements() as sent:
        read = [ours.get_user_permissions(), ours.get_group_permissions(), ours.get_all_permissions()]
    assert sent == []
    expected = [djangos.get_user_permissions(), djangos.get_group_permissions()]
    assert read == [*expected, djangos.get_all_permissions()]
    assert expected == [{VIEW_ALL}, {VIEW_ALL, DRIVE}]


def test_who_needs_no_permissions_takes_no_statement(member: Any) -> None:
    superuser = get_user_model().objects.create_superuser("root")
    member.is_active = False
    with captured_statements() as sent:
        assert [holds_any(user, DRIVE) for user in (superuser, member, AnonymousUser())] == [
            True,
            False,
            False,
        ]
    assert sent == []


def test_other_backends_decide_as_before(member: Any, settings: Any) -> None:
    for backends, expected in (
        ([DJANGOS, HERE + "Granting"], {VIEW_ALL: True, DRIVE: True, MANAGE_ALL: True}),
        ([HERE + "Granting"], {VIEW_ALL: False, DRIVE: False, MANAGE_ALL: True}),
        ([HERE + "Refusing", DJANGOS], {VIEW_ALL: False, DRIVE: False, MANAGE_ALL: False}),
        ([HERE + "ByName"], {VIEW_ALL: True, DRIVE: False, MANAGE_ALL: True}),
        ([HERE + "ByName", DJANGOS], {VIEW_ALL: True, DRIVE: False, MANAGE_ALL: True}),
    ):
        settings.AUTHENTICATION_BACKENDS = backends
        ours, djangos = again(member), again(member)
        assert {name: holds_any(ours, name) for name in expected} == expected, backends
        assert {name: djangos.has_perm(name) for name in expected} == expected, backends


def test_users_in_another_database_are_left_to_django(member: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "sessions_database", lambda named: "elsewhere")
    with captured_statements() as sent:
        assert holds_any(again(member), DRIVE)
    assert len(sent) == 3, sent  # the user, and Django's two


def test_a_permission_that_is_withdrawn_is_gone_with_the_next_request(user: Any, session: Any) -> None:
    client = APIClient(headers={"Authorization": f"Bearer {create_token(user, 'test')}"})
    address, body = "/api/sessions/s/messages/", {"messages": [{"role": "user", "content": "hi"}]}
    assert conf.API_DATABASE is None
    assert client.post(address, body, format="json").status_code == 201
    user.user_permissions.clear()
    assert client.post(address, body, format="json").status_code == 403
    team = Group.objects.create(name="team")
    team.permissions.add(permission(DRIVE))
    user.groups.add(team)
    assert client.post(address, body, format="json").status_code == 201
