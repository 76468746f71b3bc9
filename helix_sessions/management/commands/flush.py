from typing import Any

from django.core.management.commands import flush
from django.db import connections

from helix_sessions.models.guard import is_guarded, lower_guard, raise_guard


class Command(flush.Command):
    """Django's flush, for which the guard of the event log steps aside.

    On SQLite flush deletes table by table, in any order, so the log may come before its sessions.
    PostgreSQL truncates, which no guard hinders.
    """

    def handle(self, **options: Any) -> None:
        connection = connections[options["database"]]
        if connection.vendor != "sqlite" or not is_guarded(connection):
            super().handle(**options)
            return
        lower_guard(connection)
        try:
            super().handle(**options)
        finally:
            raise_guard(connection)
