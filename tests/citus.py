"""The suite on a Citus cluster: `HELIX_TEST_CITUS=host:port,host:port` names the workers, `DATABASE_URL` the
coordinator. The extension must be loaded by every server (`shared_preload_libraries`)."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import psycopg
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connection

from helix_sessions.store.engine import dialect

WORKERS = [worker for worker in os.environ.get("HELIX_TEST_CITUS", "").split(",") if worker]


def drop_test_database(settings: dict[str, Any]) -> None:
    """That of the run before, which the extension's own process holds open on the coordinator."""
    if WORKERS:
        name = f"DROP DATABASE IF EXISTS test_{settings['NAME']} WITH (FORCE)"
        _run(settings, settings["HOST"], settings["PORT"], settings["NAME"], name)


def distribute_test_database() -> None:
    """Give each worker a database of the same name, join them, and distribute the tables."""
    settings = connection.settings_dict
    with connection.cursor() as cursor:
        cursor.execute("CREATE EXTENSION IF NOT EXISTS citus")
    for worker in WORKERS:
        host, _, port = worker.rpartition(":")
        _run(settings, host, port, "postgres", f"DROP DATABASE IF EXISTS {settings['NAME']} WITH (FORCE)")
        _run(settings, host, port, "postgres", f"CREATE DATABASE {settings['NAME']}")
        _run(settings, host, port, settings["NAME"], "CREATE EXTENSION citus")
    with connection.cursor() as cursor:
        cursor.execute("SELECT citus_set_coordinator_host(%s, %s)", [settings["HOST"], int(settings["PORT"])])
        for worker in WORKERS:
            host, _, port = worker.rpartition(":")
            cursor.execute("SELECT citus_add_node(%s, %s)", [host, int(port)])
        cursor.execute(
            "SELECT citus_set_node_property(%s, %s, 'shouldhaveshards', false)",
            [settings["HOST"], int(settings["PORT"])],
        )
    call_command("distribute_sessions", verbosity=0, stdout=StringIO())


@contextmanager
def spoken() -> Iterator[None]:
    """Let the store speak to the one server there is as to a cluster."""
    from helix_sessions.store.engine.citus import CitusDialect

    dialect._chosen[DEFAULT_DB_ALIAS] = CitusDialect()
    try:
        yield
    finally:
        dialect.choose_again()


def _run(settings: dict[str, Any], host: str, port: str, database: str, statement: str) -> None:
    given = {"user": settings["USER"], "password": settings["PASSWORD"] or None}
    with psycopg.connect(host=host, port=port, dbname=database, autocommit=True, **given) as server:
        server.execute(statement)  # type: ignore[arg-type]
