"""Distributes the tables over the nodes of a Citus cluster by `session_id`, co-located.

All rows of a session are then on one node, so a write is still one transaction there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from django.apps import apps
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.exceptions import NotConfigured
from helix_sessions.models import (
    Alert,
    Blob,
    BulkAction,
    Instructions,
    InstructionsRevision,
    Memory,
    MemoryVector,
    MovedOwner,
    MovedSession,
    RunTally,
    SavedView,
    Schedule,
    ScheduleFiring,
    Session,
    SpendEntry,
    SpendLimit,
    SpendTotal,
    ToolRule,
    Webhook,
    WebhookDelivery,
    Worker,
)
from helix_sessions.models.fields import key_of
from helix_sessions.models.guard import lower_guard
from helix_sessions.store.engine.citus import ONE_CONNECTION
from helix_sessions.store.engine.connection import execute, fetch, transaction_on
from helix_sessions.store.engine.dialect import choose_again, dialect_of
from helix_sessions.store.engine.session_tables import child_tables
from helix_sessions.store.engine.tables import table
from helix_sessions.store.maintenance import sql

_ON_THE_COORDINATOR = (
    Alert,
    BulkAction,
    MovedOwner,
    MovedSession,
    RunTally,
    SavedView,
    Worker,
    Webhook,
    WebhookDelivery,
    SpendLimit,
    SpendEntry,
    SpendTotal,
    Instructions,
    InstructionsRevision,
    ToolRule,
)
_UNKNOWN_TO_CITUS = (Memory, MemoryVector, Schedule, ScheduleFiring)
_REFERENCE = "reference"
COORDINATOR = "coordinator"
_WITHOUT_COLUMN = {_REFERENCE: sql.SPREAD_WHOLE_TABLE, COORDINATOR: sql.KEEP_TABLE}

_MISSING = (
    "The Citus extension is not installed in this database. Install it on every machine of the cluster, "
    "then: CREATE EXTENSION citus. Nothing was changed."
)
_ALONE = (
    "The cluster has no node that takes shards. Add its workers with citus_add_node(). Nothing was changed."
)


class Placement(NamedTuple):
    """How one table is distributed."""

    table: str
    column: str
    beside: str
    """The table it is co-located with; `none` for the first of a group, `reference` for one that every node
    has whole, `coordinator` for one that stays there."""


def placements() -> Iterator[Placement]:
    """Where each table goes. A table without a session is distributed by the first column of its primary key;
    what is few rows stays on the coordinator, but Citus is told of it: a transaction that writes there and on
    a node is then committed in two phases, so both or neither is done. Memories, which are
    searched as a whole, and schedules stay there too, and Citus is not told of them."""
    sessions = _name(Session)
    yield Placement(_name(Blob), "sha256", _REFERENCE)  # foreign keys of distributed tables need it there
    yield Placement(sessions, "session_id", "none")
    for model in child_tables():
        yield Placement(_name(model), "session_id", sessions)
    for model in apps.get_app_config("helix_sessions").get_models():
        if model not in (Session, Blob, *child_tables(), *_ON_THE_COORDINATOR, *_UNKNOWN_TO_CITUS):
            yield Placement(_name(model), key_of(model)[0], "none")
    for model in _ON_THE_COORDINATOR:
        yield Placement(_name(model), "", COORDINATOR)


def distribute(using: str, *, dry_run: bool = False) -> list[Placement]:
    """Distribute the tables that are not distributed yet, with their rows, in one transaction; return these.

    The guard of the event log is dropped, because distributed tables take no triggers.
    """
    with transaction_on(using) as connection:
        _check_citus(connection)
        distributed = {name for (name,) in fetch(connection, sql.SPREAD_TABLES, [], prepare=False)}
        missing = [placement for placement in placements() if placement.table not in distributed]
        if missing and not dry_run:
            lower_guard(connection)
            execute(connection, ONE_CONNECTION, [], prepare=False)
            with _without_foreign_keys(connection, [placement.table for placement in missing]):
                for placement in missing:
                    if placement.beside in _WITHOUT_COLUMN:
                        statement = _WITHOUT_COLUMN[placement.beside]
                        execute(connection, statement, [placement.table], prepare=False)
                    else:
                        execute(connection, sql.SPREAD_TABLE, list(placement), prepare=False)
            connection.on_commit(choose_again)
    return missing


@contextmanager
def _without_foreign_keys(connection: BaseDatabaseWrapper, tables: list[str]) -> Iterator[None]:
    """Drop the constraints of these tables, and add them again: both tables of one are distributed then."""
    every = [placement.table for placement in placements()]
    keys = fetch(connection, sql.FOREIGN_KEYS, [tables, every], prepare=False)
    for table_name, name, _ in keys:
        execute(connection, sql.drop_constraint(table_name, name), [], prepare=False)
    yield
    for table_name, name, definition in keys:
        execute(connection, sql.add_constraint(table_name, name, definition), [], prepare=False)


def _check_citus(connection: BaseDatabaseWrapper) -> None:
    if not dialect_of(connection).has_citus(connection):
        raise NotConfigured(_MISSING)
    [[nodes]] = fetch(connection, sql.CLUSTER_NODES, [], prepare=False)
    if not nodes:
        raise NotConfigured(_ALONE)


def _name(model: type[models.Model]) -> str:
    return table(model).name.strip('"')
