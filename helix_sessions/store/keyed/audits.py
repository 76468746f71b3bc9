"""The audit trail of the HTTP API, written in the transaction of the change."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from django.utils import timezone

from helix_sessions.models import AuditEntry
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import transaction_on
from helix_sessions.store.engine.ids import new_id
from helix_sessions.store.engine.store import Store
from helix_sessions.types import AuditSummary

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """A request for the audit trail."""

    actor: str | None
    """The key of the user, as text."""
    session_id: str | None
    action: str
    status: int
    code: str | None = None
    address: str | None = None
    request_id: str | None = None


def keep(using: str, deed: Deed) -> None:
    """Write an entry."""
    AuditEntry.objects.using(using).create(
        entry_id=UUID(new_id()),
        at=timezone.now(),
        actor=deed.actor,
        session_id=deed.session_id,
        action=deed.action[:255],
        status=deed.status,
        code=deed.code,
        address=deed.address,
        request_id=deed.request_id,
    )


class _Refused(Exception):
    """Rolls back a refused request."""


def audited(using: str, answer: Callable[[], T], deed_of: Callable[[T], Deed]) -> T:
    """Handle a request and write its entry, both or neither. The entry of a refusal, a status of 400 or more,
    is written after the rollback."""
    answered: list[T] = []
    try:
        with transaction_on(using):
            answered.append(answer())
            deed = deed_of(answered[0])
            if deed.status >= 400:
                raise _Refused
            keep(using, deed)
    except _Refused:
        keep(using, deed)
    return answered[0]


def prune_audit_trail(
    store: Store,
    older_than: timedelta,
    *,
    page_size: int = 1_000,
    limit: int | None = None,
    dry_run: bool = False,
    on_progress: Callable[[AuditSummary], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> AuditSummary:
    """Delete older entries, the oldest first, `page_size` per transaction. Without this call they are
    kept forever. `limit` counts deletions."""
    size = inputs.integer(page_size, "page_size", minimum=1)
    most = inputs.optional_integer(limit, "limit")
    before = timezone.now() - inputs.period(older_than, "older_than")
    rows = AuditEntry.objects.using(store.using).before(before).order_by("at")
    if dry_run:
        return AuditSummary(entries=rows[:most].count())
    entries = 0
    while most is None or entries < most:
        if should_stop is not None and should_stop():
            break
        page = rows[: size if most is None else min(size, most - entries)]
        with transaction_on(store.using):
            gone, _ = AuditEntry.objects.using(store.using).filter(pk__in=page.values("pk")).delete()
        if not gone:
            break
        entries += gone
        if on_progress is not None:
            on_progress(AuditSummary(entries=entries))
    return AuditSummary(entries=entries)
