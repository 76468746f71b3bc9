"""Schedules: made, changed, listed, deleted. A store of one owner has the schedules of that owner."""

from typing import Any

from django.db.models import QuerySet
from django.utils import timezone as clock

from helix_sessions import models
from helix_sessions.cron import Cron, cron
from helix_sessions.exceptions import InvalidInput, ScheduleNotFound
from helix_sessions.models.schedules import MAX_NAME, MAX_PROMPT, project_zone
from helix_sessions.store.engine import cursors, ids, inputs
from helix_sessions.store.engine.connection import transaction_on
from helix_sessions.store.engine.store import Store
from helix_sessions.types import UNSET, Overlap, Page, Schedule, ScheduleFiring, ScheduleSession, Unset

NEXT_FIRINGS = 5

Rows = QuerySet[models.Schedule]


def create_schedule(
    store: Store,
    name: str,
    *,
    cron: str,
    agent_type: str,
    prompt: str,
    timezone: str | None = None,
    owner: Any = None,
    session: ScheduleSession = "new",
    overlap: Overlap = "skip",
    catch_up: int = 1,
    priority: int = 0,
    enabled: bool = True,
) -> Schedule:
    """Give an agent a prompt at the times of a cron expression, from now on.

    Without a time zone it goes by the project's. `InvalidInput` for a cron that never fires and an
    unknown zone.
    """
    row = models.Schedule(
        schedule_id=ids.new_id(),
        name=inputs.identifier(name, "name", limit=MAX_NAME),
        cron=cron,
        timezone=project_zone() if timezone is None else timezone,
        agent_type=inputs.identifier(agent_type, "agent_type"),
        prompt=inputs.text(prompt, "prompt", limit=MAX_PROMPT),
        owner_id=store._owner_key(owner),
        session=session,
        overlap=overlap,
        catch_up=catch_up,
        priority=priority,
        enabled=enabled,
    )
    with transaction_on(store.using):
        row.save(using=store.using, force_insert=True)
    return value(row)


def get_schedule(store: Store, schedule_id: str) -> Schedule:
    """One schedule, with its next five firings."""
    return value(find(store, schedule_id))


def list_schedules(
    store: Store, *, enabled: bool | None = None, limit: int = 50, cursor: str | None = None
) -> Page[Schedule]:
    """Schedules, the oldest first."""
    most = min(inputs.integer(limit, "limit", minimum=1), inputs.MAX_INTEGER - 1)
    rows = rows_of(store).order_by("created_at", "schedule_id")
    if enabled is not None:
        rows = rows.filter(enabled=inputs.flag(enabled, "enabled"))
    if cursor is not None:
        [last] = cursors.decode("schedules", cursor, str)
        first = rows_of(store).filter(schedule_id=last).values_list("created_at", flat=True).first()
        if first is None:
            raise InvalidInput("The schedule that this cursor names is gone.")
        rows = rows.filter(created_at__gte=first).exclude(created_at=first, schedule_id__lte=last)
    found = list(rows[: most + 1])
    items = found[:most]
    more = cursors.encode("schedules", items[-1].pk) if len(found) > most else None
    return Page(items=[value(row) for row in items], next_cursor=more)


def update_schedule(
    store: Store,
    schedule_id: str,
    *,
    name: str | Unset = UNSET,
    cron: str | Unset = UNSET,
    timezone: str | Unset = UNSET,
    agent_type: str | Unset = UNSET,
    prompt: str | Unset = UNSET,
    owner: Any = UNSET,
    session: ScheduleSession | Unset = UNSET,
    overlap: Overlap | Unset = UNSET,
    catch_up: int | Unset = UNSET,
    priority: int | Unset = UNSET,
    enabled: bool | Unset = UNSET,
) -> Schedule:
    """Change what is given. Of one whose times change, or that is enabled again, nothing was missed."""
    given: dict[str, Any] = {
        "name": name if name is UNSET else inputs.identifier(name, "name", limit=MAX_NAME),
        "cron": cron,
        "timezone": timezone,
        "agent_type": agent_type if agent_type is UNSET else inputs.identifier(agent_type, "agent_type"),
        "prompt": prompt if prompt is UNSET else inputs.text(prompt, "prompt", limit=MAX_PROMPT),
        "owner_id": owner if owner is UNSET else store._owner_key(owner),
        "session": session,
        "overlap": overlap,
        "catch_up": catch_up,
        "priority": priority,
        "enabled": enabled,
    }
    with transaction_on(store.using):
        row = find(store, schedule_id, lock=True)
        for column, changed in given.items():
            if changed is not UNSET:
                setattr(row, column, changed)
        row.save(using=store.using)
    return value(row)


def delete_schedule(store: Store, schedule_id: str) -> None:
    """Delete a schedule. The sessions it has made stay."""
    with transaction_on(store.using):
        find(store, schedule_id, lock=True).delete(using=store.using)


def list_schedule_firings(
    store: Store, schedule_id: str, *, limit: int = 50, cursor: str | None = None
) -> Page[ScheduleFiring]:
    """What became of the last firings of a schedule, the newest first."""
    most = min(inputs.integer(limit, "limit", minimum=1), inputs.MAX_INTEGER - 1)
    key = find(store, schedule_id).pk
    rows = models.ScheduleFiring.objects.using(store.using).filter(schedule_id=key).order_by("-firing_id")
    if cursor is not None:
        [last] = cursors.decode("schedule_firings", cursor, int)
        rows = rows.filter(firing_id__lt=last)
    found = list(rows[: most + 1])
    more = cursors.encode("schedule_firings", found[most - 1].pk) if len(found) > most else None
    return Page(items=[firing_value(row) for row in found[:most]], next_cursor=more)


def rows_of(store: Store) -> Rows:
    """The schedules that a store has."""
    rows = models.Schedule.objects.using(store.using)
    return rows if store._owner is UNSET else rows.filter(owner_id=store._owner)


def find(store: Store, schedule_id: str, *, lock: bool = False) -> models.Schedule:
    """The row of a schedule."""
    key = inputs.identifier(schedule_id, "schedule_id")
    rows = rows_of(store).filter(schedule_id=key)
    row = (rows.select_for_update() if lock else rows).first()
    if row is None:
        raise ScheduleNotFound(f"There is no schedule {key!r:.100}.")
    return row


def value(row: models.Schedule) -> Schedule:
    """A schedule as callers see it."""
    columns = (
        *("schedule_id", "name", "cron", "timezone", "agent_type", "prompt", "owner_id", "session"),
        *("overlap", "catch_up", "priority", "enabled", "created_at", "last_firing_at", "last_error"),
    )
    found = {column: getattr(row, column) for column in columns}
    return Schedule(**found, next_firings=next_firings(row))


def next_firings(row: models.Schedule) -> tuple[Any, ...]:
    """When a schedule fires next; never while it is not enabled, or if it is none."""
    if not row.enabled:
        return ()
    try:
        return tuple(times(row).next(clock.now(), NEXT_FIRINGS))
    except InvalidInput:
        return ()


def times(row: models.Schedule) -> Cron:
    """The times of a schedule."""
    return cron(row.cron, row.timezone)


def firing_value(row: models.ScheduleFiring) -> ScheduleFiring:
    """A firing as callers see it."""
    columns = ("schedule_id", "firing_at", "made_at", "state", "session_id", "input_id", "error")
    return ScheduleFiring(**{column: getattr(row, column) for column in columns})
