"""Leases over HTTP, and the fence on every write."""

import pytest

from tests.api.filled import fill
from tests.api.routes import BODIES, address, of_a_session
from tests.api.test_problems import is_problem

pytestmark = pytest.mark.django_db

PATH = "/api/sessions/s/lease/"
WORKER = {"owner": "worker-1", "ttl": 30}
UNFENCED = {("post", "inputs"), ("post", "tool-results"), ("put", "interrupt"), ("post", "lease")}


def test_a_lease_is_taken_renewed_and_released(api, session, store):
    taken = api.post(PATH, WORKER)
    assert taken.status_code == 201
    lease = taken.json()
    assert set(lease) == {"session_id", "owner", "fence", "expires_at"}
    fence = {"Helix-Fence": str(lease["fence"])}
    renewed = api.put(PATH, {**WORKER, "ttl": 60}, headers=fence).json()
    assert renewed["fence"] == lease["fence"]
    assert renewed["expires_at"] > lease["expires_at"]
    assert api.delete(PATH, headers=fence).status_code == 204
    assert store.get_lease(session) is None
    is_problem(api.put(PATH, WORKER, headers=fence), 409, "fenced")


def test_one_that_is_held_says_by_whom(api, session):
    api.post(PATH, WORKER)
    held = is_problem(api.post(PATH, {"owner": "worker-2", "ttl": 30}), 409, "lease_held")
    assert held["owner"] == "worker-1"


def test_a_lease_is_named_by_its_fence(api, session):
    api.post(PATH, WORKER)
    assert api.put(PATH, WORKER).status_code == 400
    assert api.delete(PATH).status_code == 400
    assert api.delete(PATH, headers={"Helix-Fence": "one"}).status_code == 400
    is_problem(api.put(PATH, {**WORKER, "owner": "worker-2"}, headers={"Helix-Fence": "1"}), 409, "fenced")


def test_a_write_under_a_stale_fence_is_refused_and_changes_nothing(api, session, store):
    fill(store, session)
    api.post(PATH, {"owner": "old", "ttl": 0})
    api.post(PATH, WORKER)
    before, staged = store.load_state(session), store.get_staged_changes(session)
    for method, name in of_a_session():
        if method != "get":
            body = BODIES.get((method, name))
            answer = getattr(api, method)(address(name, session), body, headers={"Helix-Fence": "1"})
            is_problem(answer, 409, "fenced")
            assert (store.load_state(session), store.get_staged_changes(session)) == (before, staged), name


def test_a_write_under_the_newest_fence_is_made(api, session):
    api.post(PATH, WORKER)
    for headers in ({"Helix-Fence": "1"}, {}):
        answer = api.post("/api/sessions/s/messages/", BODIES["post", "messages"], headers=headers)
        assert answer.status_code == 201
