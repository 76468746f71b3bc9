"""Hostile bodies to every address that takes one: a refusal or success, never a 5xx or a broken session.

The long form is run by `make test-all`, or for longer: `HELIX_TEST_TIMES=60 pytest tests/attack -m slow`.
`HELIX_HOSTILE_SEED` repeats a run.
"""

import os
import random
import time
from typing import Any

import pytest

from helix_sessions.store import SessionStore
from tests.api.filled import fill
from tests.api.routes import BODIES, address
from tests.attack.hostile_json import body
from tests.invariants import assert_healthy
from tests.lengths import at_length

TARGETS = sorted(BODIES)
TYPES = (
    "application/json",
    "application/json; charset=utf-16",
    "application/json-patch+json",
    "text/plain",
    "",
)


def attack(api: Any, user: Any, rng: random.Random, until: Any) -> dict[int, int]:
    """Send until told to stop; how often each status was answered."""
    store = SessionStore()
    answered: dict[int, int] = {}
    while not until(sum(answered.values())):
        if not store.session_exists("s"):
            store.create_session("s", agent_type="a", owner=user)
            fill(store, "s")
        method, name = rng.choice(TARGETS)
        sent = body(rng, BODIES[method, name])
        kind = TYPES[0] if rng.random() < 0.93 else rng.choice(TYPES)
        answer = api.generic(method.upper(), address(name, "s"), sent, content_type=kind)
        assert answer.status_code < 500, (method, name, kind, sent[:500], answer.content[:500])
        if answer.status_code >= 400:
            assert answer["Content-Type"] == "application/problem+json", (method, name, sent[:200])
            assert "Traceback" not in answer.content.decode()
        answered[answer.status_code] = answered.get(answer.status_code, 0) + 1
    for summary in store.list_sessions(limit=500).items:
        assert_healthy(summary.session_id)
    return answered


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("seed", [1, 2])
def test_in_short(api, user, seed):
    answered = attack(api, user, random.Random(seed), lambda sent: sent >= 200)
    assert answered.keys() & {200, 201}
    assert answered.keys() & {400, 422}


@pytest.mark.slow
@pytest.mark.timeout(2 * 60 * 60)
@pytest.mark.django_db(transaction=True)
def test_at_length(api, user, capsys):
    seed = int(os.environ.get("HELIX_HOSTILE_SEED") or random.randrange(2**32))
    end = time.monotonic() + at_length(60)
    with capsys.disabled():
        print(f"\nHELIX_HOSTILE_SEED={seed}", flush=True)
        answered = attack(api, user, random.Random(seed), lambda sent: time.monotonic() > end)
        print(f"{sum(answered.values()):,} hostile requests, answers by status {sorted(answered.items())}")
