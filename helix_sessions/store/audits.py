"""The audit trail of the HTTP API, kept in the transaction of what it tells of."""

from dataclasses import dataclass
from uuid import UUID

from django.utils import timezone

from helix_sessions.models import AuditEntry
from helix_sessions.store.sessions import new_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What somebody did, or tried to."""

    actor: str | None
    """The key of the user, as text."""
    session_id: str | None
    action: str
    status: int
    code: str | None = None
    address: str | None = None
    request_id: str | None = None


def keep(using: str, deed: Deed) -> None:
    """Write it down."""
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
