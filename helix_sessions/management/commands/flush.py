from typing import Any

from django.core.management.commands import flush
from django.db import connections

from helix_sessions.models.guard import hinders_flush, lower_guard, raise_guard


class Command(flush.Command):
    """Django's flush, for which the guard of the event log steps aside."""

    def handle(self, **options: Any) -> None:
        connection = connections[options["database"]]
        if not hinders_flush(connection):
            super().handle(**options)
            return
        lower_guard(connection)
        try:
            super().handle(**options)
        finally:
            raise_guard(connection)
