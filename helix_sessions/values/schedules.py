"""Schedules, and what became of their firings."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

MAX_CATCH_UP = 100

ScheduleSession = Literal["new", "keep"]
SCHEDULE_SESSIONS: tuple[ScheduleSession, ...] = get_args(ScheduleSession)

Overlap = Literal["skip", "queue"]
OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)

FiringState = Literal["fired", "queued", "skipped", "failed"]
FIRING_STATES: tuple[FiringState, ...] = get_args(FiringState)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Work that starts by the clock."""

    schedule_id: str
    name: str
    cron: str
    """Five fields: minute, hour, day of the month, month, day of the week."""
    timezone: str
    """Whose wall clock `cron` goes by."""
    agent_type: str
    prompt: str = field(repr=False)
    owner_id: Any
    """Whose sessions it makes."""
    session: ScheduleSession
    """Whether each firing has a `new` session, or all `keep` to one."""
    overlap: Overlap
    """What becomes of a firing while the one before is pending, running or waiting."""
    catch_up: int
    """How many missed firings are made good."""
    priority: int
    enabled: bool
    created_at: datetime
    last_firing_at: datetime | None
    """The time of the last firing."""
    last_error: str | None
    """Why the last firing failed; `None` if it did not."""
    next_firings: tuple[datetime, ...]
    """The next five; none while it is not enabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFiring:
    """One firing of a schedule."""

    schedule_id: str
    firing_at: datetime
    """The time it is for."""
    made_at: datetime
    """When it was made: later than its time if it was missed."""
    state: FiringState
    """`fired`; `queued` until the firing before has ended; `skipped`, because it had not; `failed`."""
    session_id: str | None
    input_id: str | None
    error: str | None
