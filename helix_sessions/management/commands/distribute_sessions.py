import json
from argparse import ArgumentParser
from typing import Any

from helix_sessions.management.jobs import JobCommand
from helix_sessions.models.databases import sessions_database
from helix_sessions.store.maintenance.distribution import COORDINATOR, distribute


class Command(JobCommand):
    """Distributes the tables over a Citus cluster."""

    help = (
        "Distribute every table of the app by session_id over the machines of a Citus cluster, colocated, so "
        "that all that belongs to a session lies on one machine. Tables with rows are moved, which locks "
        "them for as long as that takes. What is distributed already is left alone. The triggers that guard "
        "the event log are removed, because distributed tables take none. Where the Citus extension is not "
        "installed, the command says so and changes nothing."
    )
    examples = """
examples:
  manage.py distribute_sessions --dry-run   say what would be done
  manage.py distribute_sessions             do it
"""

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--dry-run", action="store_true", help="Change nothing.")

    def handle(self, *args: Any, **options: Any) -> None:
        done = distribute(sessions_database(options["database"]), dry_run=options["dry_run"])
        if options["json"]:
            self.stdout.write(json.dumps([placement._asdict() for placement in done]))
            return
        if not done:
            self.stdout.write("Every table is distributed already.")
        for name, column, beside in done:
            if beside == COORDINATOR:
                self.stdout.write(f"{name} on the coordinator")
                continue
            where = "in a group of its own" if beside == "none" else f"beside {beside}"
            self.stdout.write(f"{name} by {column}, {where}")
        if options["dry_run"]:
            self.stdout.write("Dry run: nothing was changed.")
