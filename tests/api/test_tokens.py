"""The demo's tokens: shown once, stored as a digest."""

from datetime import timedelta
from hashlib import sha256

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from project.models import ApiToken
from project.tokens import create_token
from tests.api.test_problems import is_problem
from tests.rows import each

pytestmark = pytest.mark.django_db


def get(token):
    return APIClient(headers={"Authorization": f"Bearer {token}"}).get("/api/sessions/")


def test_a_token_is_nowhere_but_with_its_user(user):
    token = create_token(user, "laptop")
    [row] = ApiToken.objects.values()
    assert token not in str(row)
    assert row["digest"] == sha256(token.encode()).hexdigest()
    assert token.startswith(row["prefix"])
    assert len(token) - len(row["prefix"]) > 30
    assert get(token).status_code == 200


@each("token", ["", "nonsense", "helix_" + "x" * 43, "é"])
def test_what_is_no_token(token, user):
    is_problem(get(token), 401, "authentication_failed")


def test_tokens_end(user):
    is_problem(get(create_token(user, "old", timezone.now())), 401, "authentication_failed")
    token = create_token(user, "inactive")
    user.is_active = False
    user.save()
    is_problem(get(token), 401, "authentication_failed")


def last_used():
    used = ApiToken.objects.get().last_used_at
    assert used is not None
    return used


def test_last_use_is_written_down_once_an_hour(user):
    token = create_token(user, "laptop")
    get(token)
    first = last_used()
    get(token)
    assert last_used() == first
    ApiToken.objects.update(last_used_at=first - timedelta(hours=2))
    get(token)
    assert last_used() >= first


def test_the_command_prints_it_once(user, capsys):
    call_command("create_api_token", user.get_username(), "--days", "1")
    token = capsys.readouterr().out.strip()
    assert get(token).status_code == 200
    assert ApiToken.objects.filter(expires_at__lte=timezone.now() + timedelta(days=1)).exists()
    with pytest.raises(CommandError):
        call_command("create_api_token", "nobody")


def test_session_login_needs_a_csrf_token(user):
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    assert client.get("/api/sessions/").status_code == 200
    response = client.post("/api/sessions/", {"agent_type": "a"}, content_type="application/json")
    is_problem(response, 403, "permission_denied")
