"""What the jobs do with memories: remove what has expired, erase a person's, encrypt content again."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from helix_sessions.content import encryption
from helix_sessions.content.encryption import Keyring
from helix_sessions.models import Memory
from helix_sessions.store.engine.connection import execute, fetch, transaction_on
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.memory import names, rows, sql
from helix_sessions.store.memory.databases import database_of

_PAGE = 500


def remove_expired(using: str, now: datetime | None = None, *, dry_run: bool = False) -> int:
    """Delete what has expired, a page in a transaction; how many that was, or in a dry run would be."""
    moment = timezone.now() if now is None else now
    if dry_run:
        return Memory._default_manager.using(using).filter(expires_at__lte=moment).count()
    count = 0
    while True:
        with transaction_on(using) as connection:
            gone = database_of(connection).remove_expired(connection, rows.moment(connection, moment), _PAGE)
        count += gone
        if gone < _PAGE:
            return count


def erase_owner(using: str, owner: Any, *, dry_run: bool = False) -> int:
    """Delete the memories of a user; how many there were."""
    first, end = names.bounds(names.owner_namespace(owner)) or ("", "")
    found = Memory._default_manager.using(using).filter(namespace__gte=first, namespace__lt=end)
    if dry_run:
        return found.count()
    count = 0
    while page := list(found.values_list("memory_id", flat=True)[:_PAGE]):
        with transaction_on(using) as connection:
            count += rows.remove(connection, page)
    return count


class Stored(NamedTuple):
    """The content of a memory as the database has it."""

    memory_id: str
    value: str
    searchable: str


def stale(using: str, ring: Keyring) -> Iterator[Stored]:
    """The memories whose content is not sealed as the ring would seal it now."""
    for stored in _all(using):
        with transaction_on(using) as connection:
            is_current = _is_current(connection, ring, stored)
        if not is_current:
            yield stored


def _all(using: str) -> Iterator[Stored]:
    last = ""
    while True:
        with transaction_on(using) as connection:
            text = sql.page_of_columns(dialect_of(connection), Stored._fields)
            page = [Stored(*row) for row in fetch(connection, text, [last, _PAGE])]
        yield from page
        if len(page) < _PAGE:
            return
        last = page[-1].memory_id


def _is_current(connection: BaseDatabaseWrapper, ring: Keyring, stored: Stored) -> bool:
    texts = [stored.value, *([stored.searchable] if stored.searchable else [])]
    if not all(map(ring.is_current, texts)):
        return False
    return all(
        ring.is_current(sealed) if is_sealed else ring.active is None
        for is_sealed, sealed in fetch(connection, sql.SEALS_OF_VECTORS, [stored.memory_id])
    )


def encrypt_again(using: str, ring: Keyring, stored: Stored) -> None:
    """Write a memory's content again, unless a caller has put another one meanwhile."""
    memory_id = stored.memory_id
    fresh = []
    for column, text in (("value", stored.value), ("searchable", stored.searchable)):
        place = rows.place(memory_id, column)
        opened = encryption.open_text(place, text)
        fresh.append(ring.seal(place, opened) if opened else "")
    with locking_transaction(using) as connection:
        found = rows.vectors_of(connection, [memory_id])
        change = sql.change_content(dialect_of(connection))
        changed = execute(connection, change, [*fresh, memory_id, stored.value])
        if changed:
            rows.write_vectors(connection, [(memory_id, found.get(memory_id, []))])
