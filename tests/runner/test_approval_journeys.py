"""People and an agent, each in a process of its own: a web server, a worker, clients that only know HTTP."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import Permission

from project.tokens import create_token
from tests.parallel import ROOT, joined_database_environment
from tests.servers import http_server

pytestmark = pytest.mark.django_db(transaction=True)

SETTINGS = {"DJANGO_SETTINGS_MODULE": "tests.runner.settings"}


class Person:
    """A user of the API."""

    def __init__(self, address: str, user: Any) -> None:
        headers = {"Authorization": f"Bearer {create_token(user, 'test')}"}
        self._http = httpx.Client(base_url=f"{address}/api/", headers=headers, timeout=30)

    def post(self, path: str, **body: Any) -> tuple[int, Any]:
        answer = self._http.post(path, json=body)
        return answer.status_code, answer.json()

    def get(self, path: str) -> Any:
        return self._http.get(path).raise_for_status().json()

    def says(self, prompt: str, name: str) -> Any:
        """Say something, and wait until the agent waits for an answer to its call; the entry of the call."""
        assert self.post("sessions/s/inputs/", prompt=prompt, input_id=name)[0] == 201
        return until(lambda: self._pending(f"call-{name}"))

    def _pending(self, call_id: str) -> Any:
        entry = (self.get("sessions/s/state/")["pending_client_tool_calls"] or {}).get(call_id)
        return None if entry is None or entry["submitted_at"] else entry

    def answers(self, entry: dict[str, Any], **answer: Any) -> tuple[int, Any]:
        return self.post("sessions/s/tool-results/", tool_call_id=entry["tool_call_id"], **answer)

    def hears(self, number: int) -> str:
        """What the agent said last, once it has said so many things."""

        def said() -> Any:
            messages = self.get("sessions/s/messages/?limit=100")["items"]
            found = [each["content"] for each in messages if each["role"] == "assistant" and each["content"]]
            return found if len(found) >= number else None

        return str(until(said)[-1])


def until(look: Any) -> Any:
    deadline = time.monotonic() + 60
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


@contextmanager
def worker(payments: Path) -> Iterator[None]:
    """`run_sessions` in a process of its own."""
    command = [sys.executable, "manage.py", "run_sessions", "--concurrency", "2", "--poll", "0.05"]
    environment = {**os.environ, **joined_database_environment(), **SETTINGS}
    environment["HELIX_TEST_PAYMENTS"] = str(payments)
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def test_people_approve_edit_remember_and_revoke(store: Any, django_user_model: Any, tmp_path: Path) -> None:
    pat, dora = (django_user_model.objects.create_user(name) for name in ("pat", "dora"))
    for name in ("drive_session", "drive_any_session", "change_toolrule"):
        dora.user_permissions.add(Permission.objects.get(codename=name))
    payments = tmp_path / "payments"
    with http_server(**SETTINGS) as server, worker(payments):
        person, driver = Person(server.url, pat), Person(server.url, dora)
        assert person.post("sessions/", session_id="s", agent_type="shop")[0] == 201

        # A refund waits for a driver, who approves less.
        asked = person.says("refund", "one")
        status, problem = person.answers(asked, approved=True)
        assert (status, problem["code"]) == (403, "answer_forbidden")
        status, problem = driver.answers(asked, approved=True, arguments_digest="0" * 64)
        assert (status, problem["code"]) == (409, "submission_mismatch")
        edit = {"arguments": {"cents": 321}, "arguments_digest": asked["arguments_digest"]}
        assert driver.answers(asked, approved=True, **edit)[1]["outcome"] == "accepted"
        assert "321" in person.hears(1), "the model is told what ran"
        assert driver.answers(asked, approved=True, **edit)[1]["outcome"] == "already_completed"
        assert payments.read_text().split() == ["321"]

        # A client's answer fits its schema, or waits on.
        asked = person.says("locate", "two")
        status, problem = person.answers(asked, result={"city": 7})
        assert (status, problem["code"]) == (409, "submission_mismatch")
        assert person.answers(asked, result={"city": "Berlin"})[0] == 200
        assert "Berlin" in person.hears(2)

        # Always allow, where the tool leaves it to the participant; until the rule is revoked.
        asked = person.says("lend", "three")
        assert person.answers(asked, approved=True, remember="owner")[0] == 403
        assert person.answers(asked, approved=True, remember="session")[1]["outcome"] == "accepted"
        person.hears(3)
        assert person.post("sessions/s/inputs/", prompt="lend", input_id="four")[0] == 201
        person.hears(4)
        assert payments.read_text().split() == ["321", "500", "500"]
        [rule] = driver.get("tool-rules/?session_id=s")["items"]
        assert driver._http.delete(f"tool-rules/{rule['rule_id']}/").status_code == 204
        asked = person.says("lend", "five")
        assert person.answers(asked, approved=False, reason="No more.")[0] == 200
        assert "No more." in person.hears(5)
    assert payments.read_text().split() == ["321", "500", "500"]
    told = [event.data for event in store.get_events("s", types=["tool_result_submitted"])]
    by = [(each["answer"], each["by"]["kind"], each["by"]["id"]) for each in told]
    assert by == [
        ("approved", "user", str(dora.pk)),
        ("result", "user", str(pat.pk)),
        ("approved", "user", str(pat.pk)),
        ("approved", "rule", rule["rule_id"]),
        ("denied", "user", str(pat.pk)),
    ]
