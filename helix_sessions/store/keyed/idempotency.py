"""Idempotent requests: the response is stored in the transaction of the work."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from helix_sessions.content import documents, encryption
from helix_sessions.exceptions import IdempotencyInProgress, IdempotencyKeyReused
from helix_sessions.models import IdempotentAnswer
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import execute, fetch, transaction_on
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.tables import table
from helix_sessions.store.keyed import sql
from helix_sessions.types import Answer

LIFETIME = timedelta(days=1)
"""For how long the response to a key is kept."""

WAIT_SECONDS = 2.0
"""How long a request waits for another one with the same key before it is refused (PostgreSQL)."""


def answer_once(store: Store, user: Any, key: str, digest: str, work: Callable[[], Answer]) -> Answer:
    """Do the work, unless this user's key has a response already: then return that.

    The claim of the key, the writes of `work` and its answer are one transaction: a process that
    dies leaves all of them or none. A request with the same key meanwhile waits a moment, then gets
    `IdempotencyInProgress`. `digest` stands for the request; another under the same key is refused
    with `IdempotencyKeyReused`. When `work` raises,
    nothing is kept and the key is free again.
    """
    owner = inputs.required_owner_key(user)
    inputs.identifier(key, "The idempotency key")
    with transaction_on(store.using) as connection:
        if not _claim(connection, owner, key, digest):
            return _given(connection, owner, key, digest)
        answer = work()
        rows = IdempotentAnswer.objects.using(store.using).filter(user_id=owner, key=key)
        body = encryption.seal_text(place_of_answer(owner, key), answer.body)
        rows.update(status=answer.status, headers=answer.headers, body=body)
        return answer


def prune_idempotency_keys(store: Store) -> int:
    """Remove the expired keys; return how many."""
    over = IdempotentAnswer.objects.using(store.using).filter(expires_at__lte=timezone.now())
    with transaction_on(store.using):
        return over.delete()[0]


def _claim(connection: BaseDatabaseWrapper, user_id: Any, key: str, digest: str) -> bool:
    """Claim the key, or an expired one again. Waits while another transaction holds it."""
    now = timezone.now()
    veiled = encryption.veil(user_id, digest)
    values = [user_id, key, veiled, "{}", "", now, now + LIFETIME]
    dialect = dialect_of(connection)
    encode = table(IdempotentAnswer).encoder(dialect, (*sql.ANSWER, "created_at"))
    try:
        dialect.wait_for_locks(connection, WAIT_SECONDS)
        return execute(connection, sql.CLAIM, encode([*values, now])) == 1
    except OperationalError as error:
        if dialect.is_busy(error):
            raise IdempotencyInProgress from error
        raise


def _given(connection: BaseDatabaseWrapper, user_id: Any, key: str, digest: str) -> Answer:
    dialect = dialect_of(connection)
    encode = table(IdempotentAnswer).encoder(dialect, ("user_id", "key"))
    rows = fetch(connection, sql.answer(dialect), encode([user_id, key]))
    if not rows or rows[0][1] is None:
        raise IdempotencyInProgress
    before, status, headers, body = rows[0]
    if encryption.unveil(user_id, before) != digest:
        raise IdempotencyKeyReused
    text = encryption.open_text(place_of_answer(user_id, key), body)
    return Answer(status=status, headers=documents.load(headers), body=text, replayed=True)


def place_of_answer(user_id: Any, key: str) -> encryption.Place:
    """The place of a response's body, for its encryption."""
    return ("idempotentanswer", "body", user_id, key)
