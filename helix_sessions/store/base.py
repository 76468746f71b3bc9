"""What every noun of the store shares."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.store import inputs, unit
from helix_sessions.store.unit import LIGHT_COLUMNS, SessionRow, Work

T = TypeVar("T")


class StoreBase:
    """The alias a store works on, and its two ways to a session: reading, and writing under the lock."""

    def __init__(self, using: str = DEFAULT_DB_ALIAS) -> None:
        self.using = using

    @property
    def _connection(self) -> BaseDatabaseWrapper:
        return connections[self.using]

    def _read(self, session_id: str, columns: tuple[str, ...] = LIGHT_COLUMNS) -> SessionRow:
        return unit.read_row(self._connection, session_key(session_id), columns)

    def _write(
        self, session_id: str, expected_version: Any = None, *, columns: tuple[str, ...] = LIGHT_COLUMNS
    ) -> AbstractContextManager[Work]:
        version = inputs.expected_version(expected_version)
        return unit.write(self.using, session_key(session_id), version, columns=columns)

    def _decide(
        self, session_id: str, decision: Callable[[Work], T], expected_version: Any = None
    ) -> tuple[Work, T]:
        version = inputs.expected_version(expected_version)
        return unit.decide(self.using, session_key(session_id), decision, version)


def session_key(session_id: Any) -> str:
    return inputs.identifier(session_id, "The session id")
