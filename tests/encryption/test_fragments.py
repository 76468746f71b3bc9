"""What was said so far is sealed as the message will be."""

import time
from typing import Any

import pytest

from helix_sessions.models import FragmentBatch
from helix_sessions.runtime import SessionRunner, TurnContext
from helix_sessions.runtime.scripted import ScriptedAgent
from helix_sessions.store import SessionStore

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "the diagnosis"


def test_fragments_are_sealed_and_come_back(store: SessionStore) -> None:
    store.create_session("s", agent_type="a")
    told: list[Any] = []

    def speak(turn: TurnContext) -> str:
        turn.publish_fragment({"text": SECRET})
        deadline = time.monotonic() + 20
        while not FragmentBatch.objects.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert SECRET not in str(list(FragmentBatch.objects.values()))
        with store.subscribe("s", fragments=True) as tail:
            told.append(next(tail).data)
        return SECRET

    store.admit_input("s", "hello")
    assert SessionRunner(ScriptedAgent([speak])).run("s").kind == "completed"
    assert told == [{"text": SECRET}]
