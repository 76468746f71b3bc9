"""Spreading the tables over the machines of a Citus cluster: every one by `session_id`, side by side.

All that belongs to a session then lies on one machine, so a write is still one transaction there.
"""

from collections.abc import Iterator
from typing import NamedTuple

from django.apps import apps
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.exceptions import NotConfigured
from helix_sessions.models import Session
from helix_sessions.models.fields import key_of
from helix_sessions.models.guard import lower_guard
from helix_sessions.store.engine.connection import execute, fetch, transaction_on
from helix_sessions.store.engine.session_tables import belongings
from helix_sessions.store.engine.tables import table

_MISSING = (
    "The Citus extension is not installed in this database. Install it on every machine of the cluster, "
    "then: CREATE EXTENSION citus. Nothing was changed."
)


class Placement(NamedTuple):
    """How one table is spread."""

    table: str
    column: str
    beside: str
    """The table it lies beside; `none` for one that begins a group of its own."""


def placements() -> Iterator[Placement]:
    """Every table. What belongs to no session is spread by the column its primary key begins with."""
    sessions = _name(Session)
    yield Placement(sessions, "session_id", "none")
    for model in belongings():
        yield Placement(_name(model), "session_id", sessions)
    for model in apps.get_app_config("helix_sessions").get_models():
        if model is not Session and model not in belongings():
            yield Placement(_name(model), key_of(model)[0], "none")


def distribute(using: str, *, dry_run: bool = False) -> list[Placement]:
    """Spread what is not spread yet, with its rows, in one transaction; what that was.

    The guard of the event log goes, because tables that are spread take no triggers.
    """
    with transaction_on(using) as connection:
        _check_citus(connection)
        known = {name for (name,) in fetch(connection, _SPREAD, [], prepare=False)}
        missing = [placement for placement in placements() if placement.table not in known]
        if missing and not dry_run:
            lower_guard(connection)
            for placement in missing:
                execute(connection, _SPREAD_ONE, list(placement), prepare=False)
    return missing


_SPREAD = "SELECT logicalrelid::regclass::text FROM pg_dist_partition"
_SPREAD_ONE = "SELECT create_distributed_table(%s::regclass, %s, colocate_with => %s)"


def _check_citus(connection: BaseDatabaseWrapper) -> None:
    there = connection.vendor == "postgresql" and fetch(
        connection, "SELECT 1 FROM pg_proc WHERE proname = 'create_distributed_table'", [], prepare=False
    )
    if not there:
        raise NotConfigured(_MISSING)


def _name(model: type[models.Model]) -> str:
    return table(model).name.strip('"')
