"""The recipe for Celery, as its page has it, with Celery's memory transport and a worker of Celery."""

import re
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.models import Session
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from tests.contract.suspended import asked, suspended
from tests.invariants import assert_invariants

celery = pytest.importorskip("celery")

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = Path(__file__).parents[2] / "docs/how-to/celery.md"


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The page's `shop/tasks.py`, and a worker of Celery that has it."""
    from celery.contrib.testing.worker import start_worker

    code = re.findall(r"```text\n(# shop/tasks\.py\n.*?)```", PAGE.read_text(), re.DOTALL)[0]
    module = ModuleType("shop.tasks")
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.tasks", module)
    with celery.Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=True) as app:
        exec(compile(code, str(PAGE), "exec"), vars(module))
        app.finalize()
        with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=60):
            yield module


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, "Celery has not brought it there"
        time.sleep(0.01)


def test_from_admission_to_completion(store: SessionStore, shop: ModuleType, settings: Any) -> None:
    refunded: list[Any] = []
    agent = ScriptedAgent(
        *("Hello.", [calls("refund", cents=5)], "Refunded.", "Late, but here."),
        tools={"refund": lambda arguments, turn: refunded.append(arguments)},
        approval_tools=("refund",),
    )
    settings.HELIX_SESSIONS = {"AGENTS": {"support": agent}, "WAKER": "shop.tasks.waker"}
    store.create_session("s", agent_type="support")

    def said() -> str:
        last = store.get_messages("s").messages[-1:]
        return str(last[0].get("content")) if last and last[0]["role"] == "assistant" else ""

    store.admit_input("s", "Hi.")
    until(lambda: store.load_state("s").status == "completed")
    assert said() == "Hello."

    store.admit_input("s", "My money back, please.")
    until(lambda: Session.objects.filter(awaiting_client=True, lease_owner=None).exists())
    [call_id] = store.load_state("s").pending_client_tool_calls or {}
    assert not refunded
    store.submit_tool_result("s", call_id, approved=True)
    until(lambda: said() == "Refunded.")
    assert refunded == [{"cents": 5}]

    settings.HELIX_SESSIONS = {"AGENTS": {"support": agent}, "WAKER": None}
    store.admit_input("s", "Is anybody there?")  # a hint that got lost
    settings.HELIX_SESSIONS = {"AGENTS": {"support": agent}, "WAKER": "shop.tasks.waker"}
    assert store.load_state("s").runnable_at is not None
    shop.sweep_sessions.delay()
    until(lambda: said() == "Late, but here.")
    until(lambda: store.get_lease("s") is None)
    assert store.load_state("s").status == "completed"
    assert_invariants("s")

    store.create_session("late", agent_type="support")
    over = timezone.now() + timedelta(seconds=0.05)
    suspended(store, "late", asked("a", deadline=over))
    until(lambda: timezone.now() > over)
    shop.sweep_sessions.delay()
    until(lambda: store.load_state("late").status == "completed")
    assert_invariants("late")
