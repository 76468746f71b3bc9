"""Large documents are stored as writes on a base: chains that end, take little, and leave nothing behind."""

from typing import Any

import pytest
from django.db import connections

from helix_sessions.exceptions import SessionNotFound
from helix_sessions.models import Session, StateSnapshot
from helix_sessions.store import SessionStore
from helix_sessions.store.state import snapshots

pytestmark = pytest.mark.django_db

LARGE = {"text": "x" * 2 * snapshots.SMALL}


def merge(store: SessionStore, name: str, value: Any) -> None:
    store.merge_custom_state("s", [{"op": "set", "path": [name], "value": value}])


def chain() -> list[tuple[int, int]]:
    """The numbers and bases of what is stored."""
    rows = StateSnapshot.objects.filter(session_id="s").order_by("number")
    return list(rows.values_list("number", "base"))


def test_a_chain_has_an_end(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "LONGEST_CHAIN", 3)
    store.create_session("s", agent_type="a", custom_state=LARGE)
    for n in range(4):
        merge(store, "n", n)

    assert chain() == [(5, 5)], "a new base, and nothing that nobody points at"
    merge(store, "n", 4)
    assert chain() == [(5, 5), (6, 5)]
    assert store.load_state("s").custom_state == {**LARGE, "n": 4}


def test_a_chain_takes_at_most_half_of_its_base(store: SessionStore) -> None:
    store.create_session("s", agent_type="a", custom_state=LARGE)
    for n in range(20):
        merge(store, "n", f"{n}" * 2_000)
        row = Session.objects.get(session_id="s")
        stored = StateSnapshot.objects.filter(session_id="s", number__gt=row.state_base)
        assert sum(len(str(change.document)) for change in stored) <= row.state_size

    assert chain()[0][0] > 1, "it has a new base by now"


def test_what_a_checkpoint_points_at_stays(store: SessionStore) -> None:
    store.create_session("s", agent_type="a", custom_state={"n": 0})
    for n in range(1, 4):
        merge(store, "n", n)
    store.create_checkpoint("s", {"checkpoint_id": "c"})
    for n in range(4, 7):
        merge(store, "n", n)

    assert chain() == [(4, 4), (7, 7)]
    assert store.get_checkpoint("s", "c").state.custom_state == {"n": 3}
    assert store.load_state("s").custom_state == {"n": 6}


def test_a_document_that_went_with_its_session(store: SessionStore) -> None:
    """Between two reads of one call somebody deleted the session."""
    with pytest.raises(SessionNotFound):
        snapshots.read(connections["default"], "gone", 1, 2)
