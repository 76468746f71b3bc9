"""`distribute_sessions`: every table by `session_id`, beside each other.

Citus itself is not needed here: functions in its place hold the command to Citus's documented rules for a
table that is distributed, and write down what they were asked for.
"""

import json
from collections.abc import Iterator
from io import StringIO

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connection

from helix_sessions.models.guard import is_guarded, raise_guard
from helix_sessions.store.engine.dialect import choose_again, dialect_of
from tests.invariants import dump

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.one_machine("it stands in for the functions of a cluster"),
]

STAND_IN = """
CREATE TABLE pg_dist_partition (logicalrelid regclass, partkey text, beside text);
CREATE TABLE pg_dist_node (isactive boolean, shouldhaveshards boolean);
INSERT INTO pg_dist_node VALUES (true, true);
CREATE FUNCTION create_distributed_table(place regclass, distribution_column text, colocate_with text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE found text;
BEGIN
    SELECT c.relname INTO found FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indrelid = place AND i.indisunique AND NOT EXISTS (
        SELECT 1 FROM pg_attribute a WHERE a.attrelid = place AND a.attnum = ANY (i.indkey)
        AND a.attname = distribution_column);
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'unique index % does not include the distribution column', found;
    END IF;
    SELECT tgname INTO found FROM pg_trigger WHERE tgrelid = place AND NOT tgisinternal;
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'triggers are not supported on distributed tables: %', found;
    END IF;
    SELECT conname INTO found FROM pg_constraint
    WHERE contype = 'f' AND (conrelid = place OR confrelid = place)
    AND NOT (conrelid::regclass::text LIKE 'helix%' AND confrelid::regclass::text LIKE 'helix%');
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'a foreign key to a table that is not distributed: %', found;
    END IF;
    SELECT atttypid::regtype::text INTO found FROM pg_attribute
    WHERE attrelid = place AND attname = distribution_column;
    IF found IS NULL THEN
        RAISE EXCEPTION 'column "%" of "%" does not exist', distribution_column, place;
    END IF;
    IF colocate_with <> 'none' AND NOT EXISTS (
        SELECT 1 FROM pg_dist_partition WHERE logicalrelid = colocate_with::regclass
        AND partkey = distribution_column) THEN
        RAISE EXCEPTION 'cannot colocate tables % and %', place, colocate_with;
    END IF;
    INSERT INTO pg_dist_partition VALUES (place, distribution_column, colocate_with);
END $$;
CREATE FUNCTION create_reference_table(place regclass) RETURNS void LANGUAGE sql AS $$
    INSERT INTO pg_dist_partition VALUES (place, NULL, NULL);
$$;
CREATE FUNCTION citus_add_local_table_to_metadata(place regclass) RETURNS void LANGUAGE sql AS $$
    INSERT INTO pg_dist_partition VALUES (place, NULL, 'local');
$$;
"""


@pytest.fixture
def citus(engine: str) -> Iterator[None]:
    """Something that is as strict as Citus."""
    if engine != "postgresql":
        pytest.skip("about PostgreSQL")
    with connection.cursor() as cursor:
        cursor.execute(STAND_IN)
    yield
    with connection.cursor() as cursor:
        cursor.execute(
            "DROP FUNCTION create_distributed_table, create_reference_table,"
            " citus_add_local_table_to_metadata"
        )
        cursor.execute("DROP TABLE pg_dist_partition, pg_dist_node CASCADE")
    choose_again()
    raise_guard(connection)


def run(*options: str) -> str:
    out = StringIO()
    call_command("distribute_sessions", *options, stdout=out)
    return out.getvalue()


def test_without_citus_it_says_so_and_changes_nothing():
    before = dump()

    with pytest.raises(CommandError, match="Citus extension is not installed"):
        run()

    assert dump() == before
    assert is_guarded(connection)


def test_every_table_is_distributed_beside_the_sessions(citus: None):
    done = {row["table"]: row for row in json.loads(run("--json"))}

    every = {model._meta.db_table for model in apps.get_app_config("helix_sessions").get_models()}
    few = (
        *("webhook", "webhookdelivery"),
        *("spendlimit", "spendentry", "spendtotal"),
        *("alert", "bulkaction", "movedowner", "movedsession", "runtally", "savedview", "worker"),
        *("instructions", "instructionsrevision", "toolrule"),
    )
    untouched = ("memory", "memoryvector", "schedule", "schedulefiring")
    assert every - set(done) == {f"helix_sessions_{name}" for name in untouched}
    assert set(done) <= every
    kept = {name for name, row in done.items() if row["beside"] == "coordinator"}
    assert kept == {f"helix_sessions_{name}" for name in few}
    done = {name: row for name, row in done.items() if name not in kept}
    apart = {name for name, row in done.items() if row["column"] != "session_id"}
    assert apart <= {
        "helix_sessions_auditentry",
        "helix_sessions_blob",
        "helix_sessions_idempotentanswer",
        "helix_sessions_inputclaim",
    }
    assert done.pop("helix_sessions_blob")["beside"] == "reference"
    for name, row in done.items():
        alone = name in apart or name == "helix_sessions_session"
        assert row["beside"] == ("none" if alone else "helix_sessions_session")
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_dist_partition")
        assert cursor.fetchone()[0] == len(every) - len(untouched)


def test_a_cluster_without_workers_is_told_in_a_dry_run_too(citus: None):
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM pg_dist_node")
    for options in ((), ("--dry-run",)):
        with pytest.raises(CommandError, match="no node that takes shards"):
            run(*options)
    assert is_guarded(connection)


def test_it_keeps_the_foreign_keys(citus: None):
    def keys() -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT conname FROM pg_constraint WHERE contype = 'f'"
                " AND conrelid::regclass::text LIKE 'helix%' ORDER BY 1"
            )
            return [name for (name,) in cursor.fetchall()]

    before = keys()
    run()
    assert keys() == before


def test_the_dialect_of_a_cluster_is_chosen(citus: None):
    assert type(dialect_of(connection)).__name__ == "PostgresDialect"
    run()
    assert type(dialect_of(connection)).__name__ == "CitusDialect"


def test_again_it_has_nothing_to_do(citus: None):
    run()

    assert run() == "Every table is distributed already.\n"


def test_a_dry_run_changes_nothing(citus: None):
    said = run("--dry-run")

    assert "helix_sessions_event by session_id, beside helix_sessions_session" in said
    assert said.endswith("Dry run: nothing was changed.\n")
    assert is_guarded(connection)
    assert "nothing was changed" not in run()


def test_what_cannot_be_distributed_leaves_everything_as_it_was(citus: None):
    with connection.cursor() as cursor:
        cursor.execute("CREATE UNIQUE INDEX not_by_session ON helix_sessions_message (role, seq)")
    try:
        with pytest.raises(Exception, match="not_by_session"):
            run()
        assert is_guarded(connection)
        assert run("--dry-run").count("session_id") > 5
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP INDEX not_by_session")
