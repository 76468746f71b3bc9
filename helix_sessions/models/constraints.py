"""Constraints that several tables share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models.functions import Least
from django.db.models.lookups import GreaterThanOrEqual

if TYPE_CHECKING:
    from helix_sessions.models.sessions import Session

    SessionKey = models.ForeignKey[Session, Session]
else:
    SessionKey = models.ForeignKey


def one_of(column: str, values: Sequence[str], name: str) -> models.CheckConstraint:
    return models.CheckConstraint(condition=models.Q(**{f"{column}__in": list(values)}), name=name)


def non_negative(name: str, *columns: str) -> models.CheckConstraint:
    return at_least(0, name, *columns)


def at_least(minimum: int, name: str, *columns: str) -> models.CheckConstraint:
    """One constraint on the least of several columns: PostgreSQL prepares every constraint for every
    statement."""
    least = Least(*columns) if len(columns) > 1 else models.F(columns[0])
    condition = GreaterThanOrEqual(least, minimum)
    return models.CheckConstraint(condition=condition, name=name)


def session_key(**options: Any) -> "SessionKey":
    """The foreign key to the session, with which the primary key of each of its rows begins.

    The primary key is its index. Rows are removed by the store, which takes the session first.
    """
    return models.ForeignKey(
        "helix_sessions.Session", on_delete=models.DO_NOTHING, db_index=False, related_name="+", **options
    )
