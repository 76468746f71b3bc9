"""Folding, cleaning up, erasing a person, and moving to another installation."""

import io
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from helix_sessions import models
from helix_sessions.store import SessionStore
from helix_sessions.store.limits import spend_totals

pytestmark = pytest.mark.django_db(transaction=True)


def spend(store: SessionStore, session_id: str, usd: float, **fields: Any) -> None:
    if not store.session_exists(session_id):
        store.create_session(session_id, **{"agent_type": "writer", **fields})
    run = store.create_run(session_id).run_id
    store.update_run_status(session_id, run, "completed", usage={"cost": usd, "input_tokens": 1})


def status(store: SessionStore) -> list[tuple[Any, ...]]:
    return [
        (each.scope, each.key, each.window, each.used_usd, each.used_tokens) for each in store.spend_status()
    ]


def limits(store: SessionStore, owner: Any) -> None:
    for scope, key in (("owner", str(owner.pk)), ("agent_type", "writer"), ("all", None)):
        for window in ("day", "month", "total"):
            store.set_spend_limit(scope=scope, key=key, window=window, usd=1000)


def test_folding_changes_no_answer(
    store: SessionStore, ada: Any, bob: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spend_totals, "AT_ONCE", 3)
    limits(store, ada)
    for number in range(10):
        spend(store, f"s{number}", 0.1, owner=(ada, bob, None)[number % 3])
    before = status(store)
    assert spend_totals.fold(store.using) == 10
    assert status(store) == before
    assert not models.SpendEntry.objects.exists()
    assert spend_totals.fold(store.using) == 0
    assert ("owner", str(ada.pk), "total", 0.4, 4) in before


def test_folding_while_turns_are_committed(store: SessionStore, ada: Any, run_threads: Any) -> None:
    limits(store, ada)
    for number in range(4):
        store.create_session(f"s{number}", agent_type="writer", owner=ada)

    def work(number: int) -> None:
        if number >= 4:
            for _ in range(20):
                spend_totals.fold("default")
            return
        for _ in range(10):
            spend(SessionStore(), f"s{number}", 0.01)

    assert run_threads(6, work) == [None] * 6
    assert {(usd, tokens) for *_, usd, tokens in status(store)} == {(0.4, 40)}


def test_what_is_long_over_is_removed(store: SessionStore, ada: Any, at: Callable[[str], datetime]) -> None:
    """The totals of old days and months, by the clean-up; what was ever spent stays."""
    limits(store, ada)
    at("2023-05-01T12:00")
    spend(store, "old", 1, owner=ada)
    at("2026-05-01T12:00")
    spend(store, "new", 2, owner=ada)
    before = status(store)
    store.delete_session("old")
    assert store.cleanup_debris(dry_run=True).spend_removed == 0  # nothing is folded yet
    assert store.cleanup_debris().spend_removed == 6
    assert store.cleanup_debris().spend_removed == 0
    assert status(store) == before
    assert ("all", None, "total", 3.0, 2) in before


def test_erasing_a_person(store: SessionStore, ada: Any, bob: Any) -> None:
    """Nothing names the person any more; what all have spent stays what it was."""
    limits(store, ada)
    spend(store, "a", 1, owner=ada)
    spend_totals.fold(store.using)
    spend(store, "a", 2, owner=ada)
    spend(store, "b", 4, owner=bob)
    others = [row for row in status(store) if row[0] != "owner"]
    dry = store.erase_user(owner=ada, dry_run=True).answers_deleted
    assert dry > 0
    assert store.erase_user(owner=ada).answers_deleted >= 6  # three limits, three totals
    assert status(store) == others
    assert not models.SpendTotal.objects.filter(scope="owner", key=str(ada.pk)).exists()
    assert not models.SpendEntry.objects.filter(owner_key=str(ada.pk)).exists()
    assert models.SpendEntry.objects.filter(owner_key=str(bob.pk)).exists()


def exported(store: SessionStore, **selectors: Any) -> str:
    file = io.StringIO()
    store.export_sessions(file, **selectors)
    return file.getvalue()


def emptied() -> None:
    for model in (models.SpendLimit, models.SpendEntry, models.SpendTotal):
        model.objects.all().delete()


def test_to_another_installation(store: SessionStore, ada: Any, bob: Any) -> None:
    """A whole export has all limits and what was spent; that of an owner has theirs. To import twice counts
    nothing twice, and limits that are there stay."""
    limits(store, ada)
    spend(store, "a", 1, owner=ada)
    spend(store, "b", 2, owner=bob)
    whole, theirs, some = exported(store), exported(store, owner=ada), exported(store, session_ids=["b"])
    before = status(store)
    assert {json.loads(line).get("kind") for line in whole.splitlines()} >= {"spend_limit", "spend_total"}
    assert "spend_" not in some
    store.import_sessions(whole.splitlines(), on_collision="skip")  # where all of it is
    assert status(store) == before
    emptied()
    for _ in range(2):
        store.import_sessions(whole.splitlines(), on_collision="skip")
        assert status(store) == before
    emptied()
    store.set_spend_limit(scope="owner", key=str(ada.pk), window="day", usd=7)
    store.import_sessions(theirs.splitlines(), on_collision="skip")
    assert [row[:4] for row in status(store)] == [
        ("owner", str(ada.pk), window, 1.0) for window in ("day", "month", "total")
    ]
    assert store.spend_status()[0].limit_usd == 7
    emptied()
    store.import_sessions(theirs.splitlines(), on_collision="skip", owner=bob)
    assert {row[1] for row in status(store)} == {str(bob.pk)}
    emptied()
    store.import_sessions(whole.splitlines(), on_collision="skip", owner=None)
    assert {row[0] for row in status(store)} == {"agent_type", "all"}
