"""What an owner has beside sessions goes with them to another cell: rules, answers, memories, schedules and
what was spent.

Each function may be called again at any time, and by another process, until the move is over.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from helix_sessions.models import (
    IdempotentAnswer,
    MovedOwner,
    SavedView,
    Schedule,
    ScheduleFiring,
    ToolRule,
)
from helix_sessions.store.engine.connection import execute, transaction_on
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.spending import Spent
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.limits import spend_totals, spend_transfer
from helix_sessions.store.limits.spend_transfer import SpendImporter
from helix_sessions.store.maintenance import export_rows, sql
from helix_sessions.store.maintenance.job import PAGE
from helix_sessions.store.maintenance.row_copies import put_rows, read_rows
from helix_sessions.store.maintenance.tree_copies import Route
from helix_sessions.store.memory import names, transfer
from helix_sessions.store.memory.transfer import MemoryImporter
from helix_sessions.types import UNSET

_OWNED: tuple[tuple[type[models.Model], str], ...] = (
    (ToolRule, "owner_id"),
    (SavedView, "owner_id"),
    (IdempotentAnswer, "user_id"),
)


def copy_rows(route: Route, owner: Any) -> None:
    """Copy rules, saved views, answers that are kept for retries, and limits, so that sessions find them when
    they arrive."""
    for model, column in _OWNED:
        _copy(route, model, column, owner)
    limits = SpendImporter(route.target, UNSET)
    for line in spend_transfer.lines(route.source, owner):
        found = export_rows.split(line)
        if found["kind"] == f'"{spend_transfer.LIMIT}"':
            limits.add(found)


def take_rows(route: Route, owner: Any) -> None:
    """Copy the rows again, and remove them from the source."""
    for model, column in _OWNED:
        _copy(route, model, column, owner, take=True)


def _copy(
    route: Route,
    model: type[models.Model],
    column: str,
    value: Any,
    *,
    take: bool = False,
) -> None:
    """Put an owner's rows of a table in the place of those in the target."""
    with locking_transaction(route.source) as source:
        rows = [row for row in read_rows(source, model, column, value) if not _is_in_progress(model, row)]
        with locking_transaction(route.target) as target:
            put_rows(target, model, rows)
        if take:
            key, parameters = table(model).key, dialect_of(source).parameters
            for row in rows:
                execute(source, sql.remove_row(table(model)), parameters([row[name] for name in key]))


def _is_in_progress(model: type[models.Model], row: dict[str, Any]) -> bool:
    """Whether it is a request that has no answer yet. It will have one here."""
    return model is IdempotentAnswer and row["status"] is None


# Memories


def take_memories(route: Route, owner: Any, *, keep: bool = False) -> int:
    """Move the memories; returns how many. Of two with one key the newer stands. One that is put meanwhile
    stays for the next call; with `keep` all of them stay."""
    moved, page, put = 0, list[str](), MemoryImporter(route.target, "newer", UNSET)
    for line in transfer.lines(route.source, names.owner_namespace(owner)):
        put.add(export_rows.split(line))
        page.append(line)
        if len(page) == PAGE:
            moved += _put_and_remove(route, put, page, keep)
            page = []
    return moved + _put_and_remove(route, put, page, keep)


def _put_and_remove(route: Route, put: MemoryImporter, page: list[str], keep: bool) -> int:
    put.flush()
    return 0 if keep else transfer.remove_unchanged(route.source, page)


# Schedules


def take_schedules(route: Route, owner: Any) -> None:
    """Move the schedules, disabled, so that none fires in both cells; the move enables them at its end."""
    with locking_transaction(route.source) as source:
        schedules = read_rows(source, Schedule, "owner_id", owner)
        keys = [row["schedule_id"] for row in schedules]
        firings = [row for key in keys for row in read_rows(source, ScheduleFiring, "schedule_id", key)]
        if schedules:
            with _arriving(route) as (target, progress):
                was = {row["schedule_id"]: [row["enabled"], _text(row["next_at"])] for row in schedules}
                progress["schedules"] = {**progress.get("schedules", {}), **was}
                put_rows(target, Schedule, [{**row, "enabled": False, "next_at": None} for row in schedules])
                put_rows(target, ScheduleFiring, firings, without="firing_id")
        ScheduleFiring.objects.using(route.source).filter(schedule_id__in=keys).delete()
        Schedule.objects.using(route.source).filter(schedule_id__in=keys).delete()


def enable_schedules(route: Route) -> None:
    """Let the schedules that arrived fire again, as they would have."""
    with _arriving(route) as (_, progress):
        for key, (enabled, next_at) in progress.pop("schedules", {}).items():
            rows = Schedule.objects.using(route.target).filter(schedule_id=key)
            rows.update(enabled=enabled, next_at=next_at)


def _text(moment: Any) -> str | None:
    return None if moment is None else moment.isoformat()


# Spending


def carry_spending(route: Route) -> None:
    """Add to the target what the source has counted since this was called last."""
    spend_totals.fold(route.source, owner=route.tenant)
    now = spend_totals.read(route.source, owner=route.tenant)
    with _arriving(route) as (target, progress):
        counted = {_place(entry[:4]): Spent(*entry[4:]) for entry in progress.get("spent", [])}
        more = {
            place: Spent(*(new - old for new, old in zip(amount, counted.get(place, Spent()), strict=True)))
            for place, amount in now.items()
        }
        spend_totals.add(target, {place: amount for place, amount in more.items() if amount != Spent()})
        progress["spent"] = [[*place[:3], place[3].isoformat(), *amount] for place, amount in now.items()]


def _place(entry: Any) -> spend_totals.Place:
    scope, key, window, starts_on = entry
    return scope, key, window, date.fromisoformat(starts_on)


def forget_spending(route: Route, owner: Any) -> None:
    """Remove from the source what the target has counted."""
    spend_totals.erase_owner(route.source, owner)
    with _arriving(route) as (_, progress):
        progress.pop("spent", None)


@contextmanager
def _arriving(route: Route) -> Iterator[tuple[BaseDatabaseWrapper, dict[str, Any]]]:
    """The progress of a move, locked, and kept with what the block writes to the target."""
    with transaction_on(route.target) as target:
        rows = MovedOwner.objects.using(route.target).select_for_update()
        row = rows.get(tenant=route.tenant, cell=route.source)
        yield target, row.progress
        row.since = timezone.now()
        row.save(using=route.target, update_fields=["progress", "since"])
