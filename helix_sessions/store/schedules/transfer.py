"""Schedules as lines of an export, and back. Their firings are not exported."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from helix_sessions import models
from helix_sessions.content import documents
from helix_sessions.exceptions import HelixSessionsError, InvalidExport
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import transaction_on
from helix_sessions.store.engine.ids import new_id
from helix_sessions.types import UNSET

KIND = "schedule"
_COLUMNS = (
    *("schedule_id", "name", "cron", "timezone", "agent_type", "prompt", "owner_id", "session"),
    *("overlap", "catch_up", "priority", "enabled", "created_at"),
)


def lines(using: str, owner: Any) -> Iterator[str]:
    """The schedules of an owner, or with `UNSET` all of them, each as a line of JSON."""
    rows = models.Schedule.objects.using(using).order_by("schedule_id")
    for row in (rows if owner is UNSET else rows.filter(owner_id=owner)).iterator(chunk_size=200):
        values = {name: getattr(row, name) for name in _COLUMNS}
        values["created_at"] = row.created_at.isoformat()
        values["owner_id"] = None if row.owner_id is None else str(row.owner_id)
        yield documents.write({"kind": KIND, **values})


class ScheduleImporter:
    """Schedules on their way into the database. They fire from now on."""

    def __init__(self, using: str, on_collision: str, owner: Any) -> None:
        self.using = using
        self.on_collision = on_collision
        self.owner = owner
        self.written = self.skipped = 0

    def add(self, found: Mapping[str, str]) -> None:
        """Take a record; `InvalidExport` if it cannot come in."""
        values = {name: json.loads(text) for name, text in found.items() if name != "kind"}
        if set(values) != set(_COLUMNS):
            raise InvalidExport("A schedule lacks a value, or has an unknown one.")
        try:
            values["schedule_id"] = inputs.identifier(values["schedule_id"], "schedule_id", limit=64)
            owner = values["owner_id"] if self.owner is UNSET else self.owner
            values["owner_id"] = inputs.owner_key(owner)
            moment = datetime.fromisoformat(values["created_at"])
            values["created_at"] = inputs.moment(moment, "created_at")
            self._write(models.Schedule(**values))
        except (HelixSessionsError, TypeError, ValueError) as error:
            raise InvalidExport(f"A schedule cannot come in: {error}") from None

    def _write(self, row: models.Schedule) -> None:
        with transaction_on(self.using):
            if models.Schedule.objects.using(self.using).filter(pk=row.pk).exists():
                if self.on_collision == "skip":
                    self.skipped += 1
                    return
                if self.on_collision == "fail":
                    raise InvalidExport(f"there is a schedule {row.pk!r} already")
                row.pk = new_id()
            row.save(using=self.using, force_insert=True)
        self.written += 1
