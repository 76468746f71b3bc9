"""Spend limits as they are set, listed and deleted, and what is counted for them."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions import models
from helix_sessions.exceptions import InvalidInput, NotFound
from helix_sessions.runtime import SendMessage, SessionRunner, SessionRuntime
from helix_sessions.runtime.scripted import ScriptedAgent
from helix_sessions.store import SessionStore
from helix_sessions.store.limits import spend_totals
from helix_sessions.types import AgentDefinition, SpendStatus
from tests.limits.conftest import costs, working

pytestmark = pytest.mark.django_db(transaction=True)


def spend(store: SessionStore, session_id: str, usd: float, tokens: int = 0, **fields: Any) -> None:
    """Drive a session through one turn at this price."""
    if not store.session_exists(session_id):
        store.create_session(session_id, **{"agent_type": "writer", **fields})
    store.admit_input(session_id, "hello")
    assert SessionRunner(ScriptedAgent(costs(usd, tokens)), store=store).run(session_id).kind == "completed"


def used(store: SessionStore, **selectors: Any) -> dict[tuple[str, Any, str], tuple[float, int]]:
    return {
        (each.scope, each.key, each.window): (each.used_usd, each.used_tokens)
        for each in store.spend_status(**selectors)
    }


def test_what_is_set(store: SessionStore, ada: Any) -> None:
    """The value has the fields; the same selectors replace; a row of the model does as well."""
    key = str(ada.pk)
    made = store.set_spend_limit(scope="owner", key=key, window="day", usd=1.5, tokens=10, warn_at=0.8)
    assert (made.scope, made.key, made.window, made.usd, made.tokens, made.warn_at, made.enabled) == (
        *("owner", key, "day", 1.5, 10, 0.8, True),
    )
    again = store.set_spend_limit(scope="owner", key=key, window="day", tokens=5, enabled=False)
    assert (again.limit_id, again.usd, again.tokens, again.enabled) == (made.limit_id, None, 5, False)
    every = store.set_spend_limit(scope="all", window="total", usd=Decimal("0.000000001"))
    assert every.usd == 1e-9
    assert store.set_spend_limit(scope="all", window="total", usd=2).limit_id == every.limit_id
    models.SpendLimit.objects.create(scope="agent_type", key="writer", window="month", usd=3)
    found = store.list_spend_limits()
    assert [(each.scope, each.key, each.window, each.usd) for each in found] == [
        ("agent_type", "writer", "month", 3.0),
        ("all", None, "total", 2.0),
        ("owner", key, "day", None),
    ]
    store.delete_spend_limit(made.limit_id)
    with pytest.raises(NotFound):
        store.delete_spend_limit(made.limit_id)
    assert len(store.list_spend_limits()) == 2


def test_bad_values_are_refused(store: SessionStore, ada: Any) -> None:
    good = {"scope": "all", "window": "day", "usd": 1}
    owner = {"scope": "owner", "key": str(ada.pk), "window": "day", "usd": 1}
    bad: list[dict[str, Any]] = [
        {**good, "scope": "team"},
        {**good, "scope": None},
        {**good, "window": "week"},
        {**good, "key": "x"},
        {**owner, "key": None},
        {**owner, "key": "nobody"},
        {**owner, "scope": "agent_type", "key": ""},
        {**owner, "scope": "agent_type", "key": 7},
        {**good, "usd": None},
        {**good, "usd": -0.01},
        {**good, "usd": float("nan")},
        {**good, "usd": float("inf")},
        {**good, "usd": "1"},
        {**good, "usd": True},
        {**good, "usd": 10**9},
        {**good, "tokens": -1},
        {**good, "tokens": 1.5},
        {**good, "tokens": True},
        {**good, "warn_at": 0},
        {**good, "warn_at": 80},
        {**good, "warn_at": -0.5},
        {**good, "warn_at": float("nan")},
        {**good, "warn_at": "0.8"},
        {**good, "enabled": "yes"},
    ]
    for values in bad:
        try:
            store.set_spend_limit(**values)
        except InvalidInput:
            continue
        pytest.fail(f"{values} was taken")
    for call in (
        lambda mine: mine.set_spend_limit(**good),
        lambda mine: mine.list_spend_limits(),
        lambda mine: mine.delete_spend_limit("x"),
        lambda mine: mine.spend_status(owner=ada.pk + 1),
        lambda mine: mine.spend_status(agent_type="writer"),
    ):
        with pytest.raises(InvalidInput):
            call(SessionStore(owned_by=ada))
    assert not models.SpendLimit.objects.exists()


def test_what_a_turn_uses_is_counted_for_each_scope(store: SessionStore, ada: Any, bob: Any) -> None:
    """Also what was spent before a limit was made, and by sessions that are deleted since."""
    spend(store, "a", 0.1, 7, owner=ada)
    spend(store, "a", 0.2, 7, owner=ada)
    spend(store, "b", 1, 100, owner=bob, agent_type="reader")
    spend(store, "c", 0.3, owner=None)
    store.delete_session("a")
    for scope, key in (("owner", str(ada.pk)), ("agent_type", "writer"), ("all", None)):
        for window in ("day", "month", "total"):
            store.set_spend_limit(scope=scope, key=key, window=window, usd=10)
    expected = {
        ("owner", str(ada.pk)): (0.3, 14),
        ("agent_type", "writer"): (0.6, 14),
        ("all", None): (1.6, 114),
    }
    assert used(store) == {
        (*of, window): amount for of, amount in expected.items() for window in ("day", "month", "total")
    }
    assert set(used(store, owner=ada)) == {("owner", str(ada.pk), each) for each in ("day", "month", "total")}
    assert used(SessionStore(owned_by=ada)) == used(store, owner=str(ada.pk))
    assert set(used(store, agent_type="writer", owner=bob)) == {
        ("agent_type", "writer", each) for each in ("day", "month", "total")
    }
    assert used(SessionStore(owned_by=bob)) == {}
    assert not models.SpendEntry.objects.exists()  # set_spend_limit has folded them
    spend(store, "d", 0.2, 1, owner=ada)
    assert used(store, owner=ada)["owner", str(ada.pk), "day"] == (0.5, 15)


def test_windows_begin_at_midnight_in_the_zone_of_the_project(
    store: SessionStore, ada: Any, at: Callable[[str], datetime]
) -> None:
    key = str(ada.pk)
    for window in ("day", "month", "total"):
        store.set_spend_limit(scope="owner", key=key, window=window, usd=100)
    steps = [  # when a dollar is spent, and what is used of each window then
        ("2026-01-30T23:59", (1, 1, 1)),
        ("2026-01-31T00:00", (1, 2, 2)),
        ("2026-01-31T23:59:59", (2, 3, 3)),
        ("2026-02-01T00:00", (1, 1, 4)),
    ]
    for number, (time, expected) in enumerate(steps):
        for _ in range(2):  # whether it is folded or not
            at(time)
            if not store.session_exists(f"s{number}"):
                spend(store, f"s{number}", 1, owner=ada)
            found = [used(store)["owner", key, window][0] for window in ("day", "month", "total")]
            assert found == list(expected), time
            spend_totals.fold(store.using)
    at("2026-12-31T12:00")
    assert [(each.window, each.used_usd, each.resets_at) for each in store.spend_status()] == [
        ("day", 0, datetime(2027, 1, 1, 5, tzinfo=UTC)),
        ("month", 0, datetime(2027, 1, 1, 5, tzinfo=UTC)),
        ("total", 4, None),
    ]
    at("2026-03-08T12:00")  # that night has an hour less
    assert store.spend_status()[0].resets_at == datetime(2026, 3, 9, 4, tzinfo=UTC)


def test_every_door_is_counted(store: SessionStore, ada: Any) -> None:
    """Reports of runs by other drivers, corrections, and the executions of actions."""
    store.set_spend_limit(scope="all", window="total", usd=100)

    def total() -> tuple[float, int]:
        return used(store)["all", None, "total"]

    store.create_session("s", agent_type="writer", owner=ada)
    run = store.create_run("s").run_id
    store.update_run_status("s", run, "running", usage={"cost": 0.5, "total_tokens": 9})
    assert total() == (0.5, 9)
    store.update_run_status("s", run, "running", usage={"cost": 0.7, "total_tokens": 12})
    assert total() == (0.7, 12)
    store.update_run_status("s", run, "completed", usage={"cost": 0.6, "total_tokens": 12})
    assert total() == (0.6, 12)
    run = store.create_run("s").run_id
    store.end_run("s", run, "completed", usage={"cost_usd": 0.4, "prompt_tokens": 3})
    assert total() == (1, 15)
    runtime = SessionRuntime(store)
    chat = runtime.create(AgentDefinition("chat"))
    for agent in (working(2, 0.5, 5), lambda session: costs(1, 10)):
        runtime.execute(chat.session_id, SendMessage("hello", agent))
    assert total() == (3, 35)
    assert store.get_usage(chat.session_id).cost == 2


def test_absurd_reports_do_no_harm(store: SessionStore) -> None:
    store.set_spend_limit(scope="agent_type", key="other", window="total", usd=1)
    store.set_spend_limit(scope="all", window="day", usd=10**9 - 1)
    for number in range(12):
        store.create_session(f"s{number}", agent_type="writer")
        for amount in (9e14, float("1e14"), -5, "lots", None, True):
            run = store.create_run(f"s{number}").run_id
            usage = {"cost": amount, "input_tokens": amount}
            store.update_run_status(f"s{number}", run, "completed", usage=usage)
    [status] = [each for each in store.spend_status() if each.scope == "all"]
    assert status.used_usd > 10**6
    spend_totals.fold(store.using)
    assert [each for each in store.spend_status() if each.scope == "all"] == [status]


def test_status_of_a_limit(store: SessionStore, ada: Any) -> None:
    before = timezone.now()
    store.set_spend_limit(scope="owner", key=ada, window="day", usd=2, tokens=50)
    store.set_spend_limit(scope="owner", key=ada, window="month", usd=2, enabled=False)
    spend(store, "s", 0.25, 40, owner=ada)
    [status] = store.spend_status(owner=ada)
    assert status == SpendStatus(
        scope="owner",
        key=str(ada.pk),
        window="day",
        used_usd=0.25,
        used_tokens=40,
        limit_usd=2.0,
        limit_tokens=50,
        resets_at=status.resets_at,
    )
    assert status.resets_at is not None
    assert status.resets_at > before
