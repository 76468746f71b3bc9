"""Guessing is slow: tokens and passwords that do not fit are counted, and refused when there are too many."""

import pytest
from django.core.cache import cache
from django.test import Client
from rest_framework.test import APIClient

from project import attempts
from project.tokens import create_token

pytestmark = pytest.mark.django_db


def with_token(token: str, **more: str) -> APIClient:
    return APIClient(headers={"Authorization": f"Bearer {token}", **more})


class TestTokens:
    def test_guessing_is_throttled(self):
        answers = [with_token(f"helix_{n}").get("/api/sessions/") for n in range(attempts.TOKENS + 5)]
        statuses = [answer.status_code for answer in answers]
        assert statuses == [401] * attempts.TOKENS + [429] * 5
        assert int(answers[-1]["Retry-After"]) <= attempts.SECONDS
        assert answers[-1]["Content-Type"] == "application/problem+json"

    def test_saying_to_be_somebody_else_does_not_help(self):
        for n in range(attempts.TOKENS):
            with_token(f"helix_{n}", **{"X-Forwarded-For": f"10.0.0.{n}"}).get("/api/sessions/")
        answer = with_token("helix_x", **{"X-Forwarded-For": "10.9.9.9"}).get("/api/sessions/")
        assert answer.status_code == 429

    def test_who_has_a_token_is_not_locked_out_by_who_guesses(self, user):
        token = create_token(user, "t")
        for n in range(attempts.TOKENS + 1):
            with_token(f"helix_{n}").get("/api/sessions/")
        assert with_token(token).get("/api/sessions/").status_code == 200

    def test_the_answer_does_not_tell_why(self, user):
        from django.utils import timezone

        expired = create_token(user, "t", timezone.now())
        answers = [with_token(token).get("/api/sessions/").content for token in (expired, "helix_x", "")]
        assert answers[0] == answers[1] == answers[2]


class TestPasswords:
    def log_in(self, password: str, username: str = "ada") -> int:
        return Client().post("/admin/login/", {"username": username, "password": password}).status_code

    def test_guessing_locks_the_name_for_this_address(self, django_user_model):
        django_user_model.objects.create_superuser("ada", password="right")
        assert self.log_in("right") == 302
        for n in range(attempts.PASSWORDS):
            assert self.log_in(f"wrong {n}") == 200
        assert self.log_in("right") == 200  # refused: the form again, without saying why

    def test_other_names_are_not_locked(self, django_user_model):
        for name in ("ada", "bob"):
            django_user_model.objects.create_superuser(name, password="right")
        for n in range(attempts.PASSWORDS):
            self.log_in(f"wrong {n}")
        assert self.log_in("right", "bob") == 302

    def test_it_passes(self, django_user_model):
        django_user_model.objects.create_superuser("ada", password="right")
        for n in range(attempts.PASSWORDS):
            self.log_in(f"wrong {n}")
        cache.clear()  # what the end of the time does
        assert self.log_in("right") == 302


def test_deploying_without_rates_is_warned_about(settings):
    from helix_sessions.deploy_checks import check_throttles

    settings.HELIX_SESSIONS = {}
    assert [warning.id for warning in check_throttles(None)] == ["helix_sessions.W004"]
    settings.HELIX_SESSIONS = {"API_THROTTLE_RATES": {"create": "60/min", "write": "600/min", "read": "50/s"}}
    assert check_throttles(None) == []
