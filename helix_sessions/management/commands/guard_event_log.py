from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections

from helix_sessions.models.databases import sessions_database
from helix_sessions.models.guard import is_guarded, lower_guard, raise_guard


class Command(BaseCommand):
    """Switches the triggers that keep the event log append-only."""

    help = (
        "Show whether the database refuses changes to the event log, or switch that with --on and --off. "
        "Switch it off only where the tables are sharded, which takes no triggers."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--database", help="The database's alias.")
        switch = parser.add_mutually_exclusive_group()
        switch.add_argument("--on", action="store_true", help="Refuse changes from now on.")
        switch.add_argument("--off", action="store_true", help="Allow changes from now on.")

    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[sessions_database(options["database"])]
        if options["on"]:
            try:
                raise_guard(connection)
            except DatabaseError as error:  # a cluster
                raise CommandError(f"This database takes no such triggers: {error}") from error
        elif options["off"]:
            lower_guard(connection)
        self.stdout.write(f"The event log is {'guarded' if is_guarded(connection) else 'not guarded'}.")
