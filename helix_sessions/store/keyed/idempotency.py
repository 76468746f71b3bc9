"""Requests that must take effect once: the answer is kept in the transaction that did the work."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from helix_sessions.conf import conf
from helix_sessions.content import documents, encryption
from helix_sessions.exceptions import IdempotencyInProgress, IdempotencyKeyReused
from helix_sessions.models import IdempotentAnswer
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import execute, fetch, is_busy, transaction_on
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.tables import insert_sql, table
from helix_sessions.types import Answer

_COLUMNS = ("user_id", "key", "digest", "headers", "body", "created_at", "expires_at")


def answer_once(store: Store, user: Any, key: str, digest: str, work: Callable[[], Answer]) -> Answer:
    """Do the work, unless this user's key was answered before: then give that answer again.

    The claim of the key, whatever `work` writes and its answer are one transaction: a process that
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
    """Remove the answers whose time is over; how many."""
    over = IdempotentAnswer.objects.using(store.using).filter(expires_at__lte=timezone.now())
    with transaction_on(store.using):
        return over.delete()[0]


def _claim(connection: BaseDatabaseWrapper, user_id: Any, key: str, digest: str) -> bool:
    """Take the key, or take it over when its time is over. Waits while another transaction holds it."""
    now = timezone.now()
    veiled = encryption.veil(user_id, digest)
    values = [user_id, key, veiled, "{}", "", now, now + timedelta(seconds=conf.IDEMPOTENCY_LIFETIME)]
    encode = table(IdempotentAnswer).encoder(connection.vendor, (*_COLUMNS, "created_at"))
    sql = (
        f"{insert_sql(IdempotentAnswer, _COLUMNS, 1)}"
        ' ON CONFLICT ("user_id", "key") DO UPDATE SET "digest" = excluded."digest", "status" = NULL,'
        ' "created_at" = excluded."created_at", "expires_at" = excluded."expires_at"'
        f' WHERE {table(IdempotentAnswer).name}."expires_at" <= %s'
    )
    wait = f"{max(1, round(conf.IDEMPOTENCY_WAIT * 1000))}ms"
    try:
        if connection.vendor == "postgresql":
            execute(connection, "SELECT set_config('lock_timeout', %s, true)", [wait])
        return execute(connection, sql, encode([*values, now])) == 1
    except OperationalError as error:
        if is_busy(error):
            raise IdempotencyInProgress from error
        raise


def _given(connection: BaseDatabaseWrapper, user_id: Any, key: str, digest: str) -> Answer:
    columns = ("digest", "status", "headers", "body")
    rows = fetch(
        connection,
        f"SELECT {table(IdempotentAnswer).selection(connection.vendor, columns)}"  # noqa: S608
        f' FROM {table(IdempotentAnswer).name} WHERE "user_id" = %s AND "key" = %s',
        table(IdempotentAnswer).encoder(connection.vendor, ("user_id", "key"))([user_id, key]),
    )
    if not rows or rows[0][1] is None:
        raise IdempotencyInProgress
    before, status, headers, body = rows[0]
    if encryption.unveil(user_id, before) != digest:
        raise IdempotencyKeyReused
    text = encryption.open_text(place_of_answer(user_id, key), body)
    return Answer(status=status, headers=documents.load(headers), body=text, replayed=True)


def place_of_answer(user_id: Any, key: str) -> encryption.Place:
    """Where an answer's body is, for who seals it and who opens it."""
    return ("idempotentanswer", "body", user_id, key)
