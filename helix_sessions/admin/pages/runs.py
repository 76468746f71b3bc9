"""The runs of a session."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from helix_sessions.admin import decryption
from helix_sessions.admin.base import stored
from helix_sessions.admin.documents import CHARACTERS_SHOWN, Preview, shown, shown_beginning
from helix_sessions.admin.presentation import Chip, run_chip
from helix_sessions.messages.usage import Usage, usage_of
from helix_sessions.models import Run, Session
from helix_sessions.models.fields import beginning_of, size_of

PAGE_SIZE = 50
BAR = 160
"""The width of the longest bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """A run as a line of a table."""

    run_id: str
    turn: int
    chip: Chip
    step_count: int
    first_seq: int
    started_at: datetime
    ended_at: datetime | None
    took: timedelta
    bar: int
    usage: Usage
    report: Preview | None
    error: str
    output: Preview | None


def runs(session: Session, before: int | None = None) -> tuple[list[RunLine], int | None]:
    """Runs, newest first, and the turn at which the next page starts. One query, which cuts large outputs."""
    rows = stored(Run).filter(session_id=session.session_id).newest_first()
    if before is not None:
        rows = rows.filter(turn__lt=before)
    found: list[Any] = list(
        rows.values(
            "run_id",
            "turn",
            "status",
            "step_count",
            "start_sequence",
            "started_at",
            "ended_at",
            "usage",
            error_text=beginning_of("error", 2_000),
            error_size=size_of("error"),
            output_text=beginning_of("output", CHARACTERS_SHOWN),
            output_size=size_of("output"),
        )[: PAGE_SIZE + 1]
    )
    for column, most in (("error", 2_000), ("output", CHARACTERS_SHOWN)):
        names = {"text": f"{column}_text", "size": f"{column}_size"}
        decryption.open_beginnings(Run, session.session_id, found, column, most, **names)
    lines, now = found[:PAGE_SIZE], timezone.now()
    longest = max((_took(row, now) for row in lines), default=timedelta())
    return [_line(row, longest, now) for row in lines], lines[-1]["turn"] if len(found) > PAGE_SIZE else None


def _took(row: dict[str, Any], now: datetime) -> timedelta:
    span: timedelta = (row["ended_at"] or now) - row["started_at"]
    return span


def _line(row: dict[str, Any], longest: timedelta, now: datetime) -> RunLine:
    took = _took(row, now)
    error = shown_beginning(row["error_text"], row["error_size"]).value if row["error_text"] else ""
    output = shown_beginning(row["output_text"], row["output_size"]) if row["output_text"] else None
    return RunLine(
        run_id=row["run_id"],
        turn=row["turn"],
        chip=run_chip(row["status"]),
        step_count=row["step_count"],
        first_seq=row["start_sequence"] + 1,
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        took=took,
        bar=max(2, round(BAR * (took / longest))) if longest else 2,
        usage=usage_of(row["usage"]),
        report=None if row["usage"] is None else shown(row["usage"]),
        error=str(error),
        output=output,
    )
