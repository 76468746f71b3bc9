"""A forgotten `migrate`: every door says it in a sentence, and none shows a traceback."""

import io
from pathlib import Path
from traceback import format_exc
from typing import Any

import pytest
from django.contrib.admin import site
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection, connections
from django.test import RequestFactory
from django.urls import resolve, reverse
from rest_framework.test import APIClient

from helix_sessions.exceptions import NotMigrated
from helix_sessions.store import SessionStore

pytestmark = pytest.mark.django_db(transaction=True)

COMMANDS: dict[str, dict[str, Any]] = {
    "sessions_doctor": {},
    "cleanup_sessions": {},
    "cleanup_debris": {},
    "prune_idempotency_keys": {},
    "export_sessions": {"output": "-"},
}


def test_it_is_a_sentence(tmp_path: Path, run_processes: Any) -> None:
    [problem] = run_processes(1, forget, str(tmp_path / "some.sqlite3"))
    assert not problem, problem


INDEX = "/admin/helix_sessions/"
"""Django's own page, with our dashboard in it."""


def pages() -> list[str]:
    """The list of every model of ours, pages of a session, and the index."""
    ours = [model for model in site._registry if model._meta.app_label == "helix_sessions"]
    lists = [reverse(f"admin:helix_sessions_{model._meta.model_name}_changelist") for model in ours]
    assert len(lists) >= 7
    return [INDEX, *lists, *(f"{INDEX}session/{page}" for page in ("s/change/", "s/state/", "waiting/"))]


def seen_in_the_admin(path: str) -> tuple[int, str]:
    """What a superuser gets. Neither users nor logins are in the database."""
    request = RequestFactory(headers={"Host": "localhost"}).get(path)
    request.user = get_user_model()(pk=1, is_superuser=True, is_staff=True)
    found = resolve(path)
    answer = found.func(request, *found.args, **found.kwargs)
    if hasattr(answer, "render"):
        answer.render()
    return answer.status_code, answer.content.decode()


def forget(index: int, name: str) -> str:
    """Go through every door of a database without our tables; what went wrong."""
    if connection.vendor == "postgresql":
        connections.settings["default"].setdefault("OPTIONS", {})["options"] = "-c search_path=pg_temp"
    else:
        connections.settings["default"]["NAME"] = name
    try:
        store = SessionStore()
        for call in (store.list_sessions, lambda: store.create_session("s", agent_type="a")):
            with pytest.raises(NotMigrated, match="migrate"):
                call()
        for command, options in COMMANDS.items():
            with pytest.raises(CommandError, match="migrate"):
                call_command(command, stdout=io.StringIO(), stderr=io.StringIO(), **options)
        api = APIClient(headers={"Host": "localhost"})
        api.force_authenticate(get_user_model()(pk=1, is_superuser=True))
        for path in ("/api/sessions/", "/api/sessions/s/", "/api/sessions/s/messages/", "/api/memories/"):
            answer = api.get(path)
            assert (answer.status_code, answer.json()["code"]) == (503, "not_migrated"), path
            assert "manage.py migrate" in answer.json()["detail"]
        for path in pages():
            status, text = seen_in_the_admin(path)
            assert "manage.py migrate" in text, path
            assert status == (200 if path == INDEX else 503), path
    except BaseException:
        return format_exc()
    finally:
        connections.close_all()
    return ""
