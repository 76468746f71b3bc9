"""Users in one database, sessions in another, and a replica that lags: every door follows the router.

Everything happens in a process of its own: its default database has users, and no table of ours.
"""

import io
import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from traceback import format_exc
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections
from django.test import Client, override_settings

pytestmark = pytest.mark.django_db(transaction=True)

OURS = "helix_sessions"


class Apart:
    """Sessions are in `agents`, all the rest is in `default`. Who leaves a read to the router gets it from a
    replica that is not even there."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "replica" if model._meta.app_label == OURS else None

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "agents" if model._meta.app_label == OURS else None

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return (app_label == OURS) == (db == "agents")


class Polite:
    """An agent that answers."""

    def run_turn(self, turn: Any) -> Any:
        from helix_sessions.types import TurnOutcome

        return TurnOutcome({"role": "assistant", "content": "Good day."})


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The names of two databases, which are empty."""
    if connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
        pytest.skip("the pooler knows one database")
    names = ("helix_people", "helix_agents")
    if connection.vendor != "postgresql":
        yield str(tmp_path / names[0]), str(tmp_path / names[1])
        return
    with connection.cursor() as cursor:
        for name in names:
            cursor.execute(f"DROP DATABASE IF EXISTS {name}")
            cursor.execute(f"CREATE DATABASE {name}")
    yield names
    with connection.cursor() as cursor:
        for name in names:
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_users_in_one_database_and_sessions_in_another(two: tuple[str, str], run_processes: Any) -> None:
    [problem] = run_processes(1, live_apart, *two)
    assert not problem, problem


def live_apart(index: int, people: str, agents: str) -> str:
    """Go through every door; what went wrong."""
    default = connections.settings["default"]
    connections.settings["agents"] = {**deepcopy(default), "NAME": agents}
    default["NAME"] = people
    ours = {"AGENTS": {"polite": "tests.store.test_routers.Polite"}, "AUDIT_TRAIL": True}
    try:
        with override_settings(
            DATABASE_ROUTERS=[Apart()], HELIX_SESSIONS=ours, ALLOWED_HOSTS=["*"], ROOT_URLCONF="tests.urls"
        ):
            for alias in ("default", "agents"):
                call_command("migrate", database=alias, verbosity=0)
            tables = connections["default"].introspection.table_names()
            assert not [name for name in tables if name.startswith(OURS)]
            _look_through_every_door()
    except BaseException:
        return format_exc()
    finally:
        connections.close_all()
    return ""


def _look_through_every_door() -> None:
    from django.contrib.auth import get_user_model

    from helix_sessions.store import SessionStore

    users = get_user_model()
    root = users.objects.create_superuser("root")
    ada = users.objects.create_user("ada")
    store = SessionStore()
    assert store.using == "agents"
    _use_the_api(ada, root)
    _use_the_worker(store)
    _use_the_commands(ada)
    _use_the_admin(store, ada, root)
    _use_the_tasks()
    _delete_a_user(store, ada)


def _use_the_api(ada: Any, root: Any) -> None:
    participant, operator = Client(), Client()
    participant.force_login(ada)
    operator.force_login(root)

    def sends(client: Client, path: str, body: Any, status: int) -> Any:
        answer = client.post(f"/api/{path}", json.dumps(body), content_type="application/json")
        assert answer.status_code == status, (path, answer.content)
        return answer

    sends(participant, "sessions/", {"session_id": "s", "agent_type": "polite"}, 201)
    for _ in range(2):
        body = json.dumps({"prompt": "Hello."})
        answer = participant.post(
            "/api/sessions/s/inputs/", body, content_type="application/json", headers={"Idempotency-Key": "k"}
        )
        assert answer.status_code == 201, answer.content
    sends(participant, "memories/", {"namespace": ["owner", str(ada.pk)], "key": "k", "value": {"a": 1}}, 201)
    sends(operator, "tool-rules/", {"tool": "refund", "decision": "ask", "owner": ada.pk}, 201)
    sends(operator, "webhooks/", {"url": "https://example.com/hook"}, 201)
    for path in (
        "sessions/",
        "sessions/s/",
        "sessions/s/state/",
        "sessions/s/messages/",
        "sessions/s/events/",
        "sessions/s/events/stream/?after=0&wait=0",
        "sessions/s/inputs/",
        "memories/?prefix=[]&query=1",
        "tool-rules/",
        "webhooks/",
    ):
        found = operator.get(f"/api/{path}")
        assert found.status_code == 200, (path, found.content)
    assert operator.get("/health/ready").status_code == 200


def _use_the_worker(store: Any) -> None:
    call_command("run_sessions", once=True, verbosity=0)
    assert [message["content"] for message in store.get_messages("s").messages][-1] == "Good day."


def _use_the_commands(ada: Any) -> None:
    out = io.StringIO()
    call_command("export_sessions", owner="ada", output="-", stdout=out)
    assert '"s"' in out.getvalue()
    call_command("sessions_doctor", stdout=io.StringIO())
    call_command("cleanup_sessions", stdout=io.StringIO())
    call_command("cleanup_debris", stdout=io.StringIO())
    call_command("prune_idempotency_keys", stdout=io.StringIO())
    call_command("guard_event_log", stdout=out)
    assert "is guarded" in out.getvalue()


def _use_the_admin(store: Any, ada: Any, root: Any) -> None:
    from helix_sessions.models import Session
    from tests.admin.places import ACTIONS, APP, LIST, PAGES, WAITING, action, make_busy_session, page_of
    from tests.contract.suspended import approval, suspended

    make_busy_session(store)
    store.create_session("waits", agent_type="polite", owner=ada)
    suspended(store, "waits", approval("c"))
    Session.objects.using("agents").filter(session_id="busy").update(owner_id=ada.pk)
    client = Client()
    client.force_login(root)
    lists = [f"{APP}{name}/" for name in ("auditentry", "instructions", "memory", "toolrule", "webhook")]
    pages = [page_of(key, page) for key in ("busy", "waits") for page in PAGES]
    for path in (APP, LIST, f"{LIST}?q=busy", WAITING, f"{APP}webhookdelivery/", *lists, *pages):
        answer = client.get(path, follow=True)
        assert answer.status_code == 200, path
    assert b"ada" in client.get(page_of("busy")).content
    assert b"ada" in client.get(WAITING).content
    assert b"ada" in client.get(f"{APP}toolrule/").content
    for name in ACTIONS:
        assert client.get(action(name, "busy")).status_code == 200, name
    client.post(action("fail"), {"ids": '["busy"]', "reason": "because"})
    assert store.load_state("busy").status == "failed"
    made = client.post(f"{APP}toolrule/add/", {"tool": "pay", "decision": "deny", "owner": ada.pk})
    assert made.status_code == 302, made.content
    [rule] = store.list_tool_rules(tool="pay")
    assert rule.owner_id == ada.pk
    assert client.get(f"{APP}toolrule/{rule.rule_id}/change/").status_code == 200
    assert client.post(f"{APP}toolrule/{rule.rule_id}/delete/", {"post": "yes"}).status_code == 302
    assert store.list_tool_rules(tool="pay") == []


def _use_the_tasks() -> None:
    from helix_sessions import tasks as configured

    tasks: Any = configured
    assert tasks.examine_sessions.func() is not None
    assert tasks.sweep_sessions.func() == {"swept": 0}


def _delete_a_user(store: Any, ada: Any) -> None:
    """Who deletes an account in the admin sees what else goes, and the sessions stay without an owner."""
    client = Client()
    from django.contrib.auth import get_user_model

    client.force_login(get_user_model().objects.get(username="root"))
    page = f"/admin/auth/user/{ada.pk}/delete/"
    assert client.get(page).status_code == 200
    assert store.get_session_head("s").owner_id == ada.pk
    assert client.post(page, {"post": "yes"}).status_code == 302
    assert store.get_session_head("s").owner_id is None
