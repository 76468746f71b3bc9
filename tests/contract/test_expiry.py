"""`set_expiry`: when a session expires."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.exceptions import InvalidInput, SessionNotFound, StaleState
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from tests.rows import each

pytestmark = pytest.mark.django_db


def test_sets_and_removes(store: SessionStore):
    store.create_session("s", agent_type="a")
    moment = timezone.now() + timedelta(hours=1)
    assert store.set_expiry("s", moment) == 2
    assert store.load_state("s").expires_at == moment
    assert store.set_expiry("s", None) == 3
    assert store.load_state("s").expires_at is None
    events = store.get_events("s", types=["expiry_changed"])
    told = moment.astimezone().isoformat()
    assert [datetime.fromisoformat(event.data["to"] or told) for event in events] == [moment, moment]
    assert [event.data["from"] is None for event in events] == [True, False]


def test_the_same_moment_is_nothing(store: SessionStore):
    moment = timezone.now()
    store.create_session("s", agent_type="a", expires_at=moment)
    assert store.set_expiry("s", moment) == 1
    assert store.get_events("s", types=["expiry_changed"]) == []


def test_an_expired_session_is_found(store: SessionStore):
    store.create_session("s", agent_type="a")
    store.set_expiry("s", timezone.now() - timedelta(seconds=1))
    assert Session.objects.expired().get().session_id == "s"


@each("moment", ["2030-01-01", 5, datetime(2030, 1, 1)])
def test_what_is_no_moment(store: SessionStore, moment: Any):
    store.create_session("s", agent_type="a")
    with pytest.raises(InvalidInput):
        store.set_expiry("s", moment)
    assert store.load_state("s").version == 1


def test_refusals(store: SessionStore):
    with pytest.raises(SessionNotFound):
        store.set_expiry("absent", None)
    store.create_session("s", agent_type="a")
    with pytest.raises(StaleState):
        store.set_expiry("s", timezone.now(), expected_version=7)
    assert store.load_state("s").expires_at is None
