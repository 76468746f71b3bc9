"""What a body may not decide: whose a session is, its version, its counts, its mode."""

from datetime import timedelta

import pytest
from django.utils import timezone

from tests.rows import each

pytestmark = pytest.mark.django_db

NOT_YOURS = {
    "owner_id": 1,
    "version": 99,
    "head_seq": 99,
    "first_seq": 99,
    "message_count": 99,
    "resume_count": 99,
    "checkpoint_id": "c",
    "checkpoint_source": "staging",
    "forked_from": ["x", None],
    "created_at": "2000-01-01T00:00:00Z",
    "updated_at": "2000-01-01T00:00:00Z",
    "run_id": "forged",
    "staged_count": 99,
    "state_digest": "0" * 32,
    "awaiting_client": True,
    "is_staff": True,
}


def owned(state):
    """What of a session these attacks are about."""
    return {
        name: getattr(state, name)
        for name in ("owner_id", "mode", "resume_count", "forked_from", "created_at", "root_session_id")
    }


@each("field", NOT_YOURS)
def test_creating(field, api, store, user):
    answer = api.post("/api/sessions/", {"session_id": "n", "agent_type": "a", field: NOT_YOURS[field]})
    if answer.status_code == 201:
        state = store.load_state("n")
        assert (state.owner_id, state.version, state.resume_count) == (user.pk, 1, 0)
        assert state.created_at > timezone.now() - timedelta(minutes=1)
    else:
        assert answer.status_code in (400, 403)
        assert not store.session_exists("n")


@each("field", [*NOT_YOURS, "owner", "mode", "session_id", "agent_type", "root_session_id"])
def test_saving_a_state(field, api, session, store, user, stranger):
    before = owned(store.load_state(session))
    value = {"owner": stranger.pk, "mode": "persistent", "session_id": "x", "agent_type": "x"}.get(
        field, NOT_YOURS.get(field, "x")
    )
    answer = api.put("/api/sessions/s/state/", {"custom_state": {}, field: value})
    assert answer.status_code in (200, 400, 409)
    state = store.load_state(session)
    assert owned(state) == before
    assert state.agent_type == "test"
    assert state.version <= 2


@each(
    ("method", "path", "body"),
    [
        ("patch", "metadata/", {"owner_id": 1, "version": 99}),
        ("post", "messages/", {"messages": [], "owner_id": 1}),
        ("post", "messages/", {"messages": [{"role": "user", "seq": 99, "position": 99, "session_id": "x"}]}),
        ("post", "runs/", {"turn": 99, "start_sequence": 99, "status": "completed"}),
        ("post", "clone/", {"new_id": "branch", "owner": 1, "owner_id": 1}),
        ("post", "events/", {"type": "noted", "seq": 99, "session_id": "x", "created_at": "2000-01-01"}),
        ("post", "commit/", {"state": {"custom_state": {}, "owner_id": 1, "version": 99}, "owner": 1}),
        ("post", "checkpoints/", {"seq": 99, "state": {"forged": True}, "message_count": 99}),
        ("put", "status/", {"status": "paused", "owner_id": 1, "mode": "persistent"}),
    ],
)
def test_every_other_body(method, path, body, api, session, store, user, stranger):
    answer = getattr(api, method)(f"/api/sessions/s/{path}", body)
    assert answer.status_code < 500
    state = store.load_state(session)
    assert (state.owner_id, state.mode) == (user.pk, "standard")
    assert state.version <= 2
    assert [event.seq for event in store.get_events(session)] == list(range(1, state.head_seq + 1))
    if store.session_exists("branch"):
        assert store.load_state("branch").owner_id == user.pk
    for run in store.list_runs(session).items:
        assert (run.turn, run.status) == (1, "running")


def test_a_session_for_somebody_else_needs_the_permission(api, stranger, store):
    body = {"session_id": "gift", "agent_type": "a", "owner": stranger.pk}
    assert api.post("/api/sessions/", body).status_code == 403
    assert not store.session_exists("gift")
