"""The demo's own views: the visitor, branches, and the button that kills the worker."""

import json
import os
import re
import signal
import subprocess
import sys
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from helix_sessions.store import SessionStore
from project.agents import AGENTS, CARDS
from project.chat import PARENT
from project.visitors import USERNAME

pytestmark = pytest.mark.django_db


@pytest.fixture
def debugged(settings: Any) -> None:
    settings.DEBUG = True


@pytest.fixture
def visitor(debugged: None) -> Client:
    client = Client()
    client.post("/enter/")
    return client


def _settings(client: Client, path: str = "/") -> dict[str, Any]:
    page = client.get(path).content.decode()
    found = re.search(r'<script id="chat-settings" type="application/json">(.*?)</script>', page)
    assert found
    settings: dict[str, Any] = json.loads(found[1])
    return settings


class TestVisitor:
    def test_comes_in_without_a_password_on_this_machine_while_debugging(self, visitor: Client):
        assert _settings(visitor)["user"] == USERNAME
        assert visitor.get("/admin/helix_sessions/session/").status_code == 200
        assert not get_user_model().objects.get(username=USERNAME).has_usable_password()

    def test_looking_at_the_page_logs_nobody_in(self, debugged: None, client: Client):
        assert _settings(client)["user"] is None
        assert client.get("/enter/").status_code == 405
        assert not get_user_model().objects.exists()

    def test_nobody_comes_in_from_elsewhere_or_when_nothing_is_debugged(self, settings: Any, client: Client):
        for debug, address in ((False, "127.0.0.1"), (True, "192.0.2.7"), (True, ""), (False, "192.0.2.7")):
            settings.DEBUG = debug
            assert client.post("/enter/", REMOTE_ADDR=address).status_code == 403, (debug, address)
            assert _settings(client)["user"] is None
        assert not get_user_model().objects.exists()

    def test_is_nobody_once_the_project_is_not_debugged(self, settings: Any, visitor: Client):
        settings.DEBUG = False
        assert visitor.get("/admin/helix_sessions/session/").status_code == 302
        assert visitor.get("/api/sessions/").status_code in (401, 403)

    def test_a_foreign_page_cannot_log_in(self, debugged: None):
        assert Client(enforce_csrf_checks=True).post("/enter/").status_code == 403

    def test_sees_own_sessions_only_over_http(self, store: SessionStore, visitor: Client):
        store.create_session("foreign", agent_type=CARDS[0].agent_type)
        assert visitor.get("/api/sessions/").json()["items"] == []
        assert visitor.get("/chat/").json()["items"] == []
        assert visitor.get("/chat/foreign/").status_code == 404


class TestBranches:
    def test_a_branch_knows_where_it_left_its_origin(self, store: SessionStore, visitor: Client):
        owner = get_user_model().objects.get(username=USERNAME)
        store.create_session("a", agent_type=CARDS[0].agent_type, owner=owner)
        said = [{"role": role, "content": str(n)} for n in range(3) for role in ("user", "assistant")]
        store.append_messages("a", said)

        def branch(source: str, position: int) -> tuple[str, dict[str, Any], int]:
            made = visitor.post(f"/chat/{source}/branch/", {"position": position}).json()["session_id"]
            return made, dict(store.get_metadata(made)[0]), store.get_message_count(made)

        first, metadata, count = branch("a", 2)
        assert (metadata["branch_of"], metadata["branch_at"], count) == ("a", 2, 2)
        store.append_messages(first, said[2:])
        for source, position, origin in ((first, 4, first), (first, 2, "a"), (first, 0, "a")):
            assert branch(source, position)[1]["branch_of"] == origin, (source, position)
        assert {item["session_id"] for item in visitor.get("/chat/").json()["items"]} >= {"a", first}

    def test_what_is_no_position_is_refused(self, store: SessionStore, visitor: Client):
        owner = get_user_model().objects.get(username=USERNAME)
        store.create_session("a", agent_type=CARDS[0].agent_type, owner=owner)
        assert visitor.post("/chat/a/branch/", {"position": "first"}).status_code == 400
        assert visitor.post("/chat/absent/branch/", {"position": 0}).status_code == 404


class TestKillingTheWorker:
    def test_there_is_no_button_without_a_parent_that_keeps_one(self, visitor: Client):
        assert _settings(visitor)["kill"] is None
        assert visitor.post("/kill-worker/").status_code == 403

    def test_only_the_own_parent_is_signalled(
        self, settings: Any, visitor: Client, monkeypatch: pytest.MonkeyPatch
    ):
        signals: list[tuple[int, int]] = []
        monkeypatch.setattr("os.kill", lambda pid, number: signals.append((pid, number)))
        monkeypatch.setenv(PARENT, str(os.getppid() + 1))
        assert visitor.post("/kill-worker/").status_code == 403
        monkeypatch.setenv(PARENT, str(os.getppid()))
        assert visitor.post("/kill-worker/", REMOTE_ADDR="192.0.2.7").status_code == 403
        assert Client().post("/kill-worker/").status_code == 302
        assert visitor.get("/kill-worker/").status_code == 405
        assert signals == []
        assert visitor.post("/kill-worker/").status_code == 202
        assert signals == [(os.getppid(), signal.SIGUSR1)]
        settings.DEBUG = False
        assert visitor.post("/kill-worker/").status_code == 302

    def test_a_foreign_page_cannot_press_it(self, visitor: Client, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv(PARENT, str(os.getppid()))
        strict = Client(enforce_csrf_checks=True)
        strict.cookies = visitor.cookies
        assert strict.post("/kill-worker/").status_code == 403


@pytest.mark.once
def test_the_agents_need_no_key_and_take_one_where_it_is():
    pytest.importorskip("pydantic_ai.models.openai")
    script = (
        "import django; django.setup()\n"
        "from django.utils.module_loading import import_string\n"
        f"for path in {sorted(AGENTS.values())}:\n"
        "    agent = import_string(path)\n"
        "    while hasattr(agent, 'agent'): agent = agent.agent\n"
        "    print(agent.model.model_name)\n"
    )
    bare = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    for key, model in (({}, "script"), ({"OPENAI_API_KEY": "sk-none"}, "gpt-5-mini")):
        environment = bare | key | {"DJANGO_SETTINGS_MODULE": "project.settings"}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [model] * len(AGENTS)
