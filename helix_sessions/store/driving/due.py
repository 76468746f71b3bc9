"""What comes due without anybody asking for it. A worker that has nothing to do asks for all of it in one
statement, so that being idle costs the same however much it watches over."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Literal

from django.db.models import QuerySet
from django.utils import timezone

from helix_sessions import models
from helix_sessions.store.engine.questions import which_exist
from helix_sessions.store.engine.store import Store
from helix_sessions.store.outbox import deliveries
from helix_sessions.store.schedules import firing

Duty = Literal["deadlines", "schedules", "spend", "webhooks", "alerts", "bulk actions"]

_QUESTIONS: dict[Duty, Callable[[Store, datetime], QuerySet[Any]]] = {
    "deadlines": lambda store, now: models.Session.objects.past_deadline(now),
    "schedules": firing.due,
    "spend": lambda store, now: models.SpendEntry.objects.all(),
    "webhooks": lambda store, now: deliveries.due(store.using, now),
    "alerts": lambda store, now: models.Alert.objects.due(now),
    "bulk actions": lambda store, now: models.BulkAction.objects.free(now),
}


def what_is_due(store: Store, duties: Iterable[Duty]) -> set[str]:
    """Those of the duties for which there is something to do."""
    now = timezone.now()
    return which_exist(store.using, {duty: _QUESTIONS[duty](store, now) for duty in duties})
