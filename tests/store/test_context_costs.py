"""What the context of a long session costs: one statement, and the rows that are seen."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from helix_sessions.models import Message
from helix_sessions.runtime import CompactionPolicy
from helix_sessions.store import SessionStore
from helix_sessions.store.context import sql as statements
from helix_sessions.store.context.context_reads import NOWHERE, parameters, read_context
from helix_sessions.store.engine.dialect import dialect_of
from tests.contract.sources import Said

pytestmark = pytest.mark.django_db(transaction=True)

LONG, VISIBLE = 3_000, 20
MESSAGE = {"role": "user", "content": "hello"}


@pytest.fixture
def long(store: SessionStore) -> str:
    """A long session of which the model sees the end, beside others."""
    for name in ("before", "long", "other"):
        store.create_session(name, agent_type="writer")
        store.reconcile_context(name, [Said("day", 1)])
        store.append_messages(name, [MESSAGE] * LONG)
    store.reconcile_context("long", [Said("day", 2)])
    store.compact("long", lambda request: "summary", CompactionPolicy(None, keep_recent=0))
    store.append_messages("long", [MESSAGE] * VISIBLE)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return "long"


def plan_nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(inner for below in node.get("Plans", []) for inner in plan_nodes(below))]


def test_one_statement(store: SessionStore, long: str) -> None:
    with CaptureQueriesContext(connection) as captured:
        context = store.get_context(long)
    assert len(captured.captured_queries) == 1
    assert len(context.messages) == VISIBLE + 2  # the compaction, and an update of the context


@pytest.mark.one_machine("it reads the plan of one server")
def test_only_what_is_seen_is_read(store: SessionStore, long: str, engine: str) -> None:
    dialect = dialect_of(connection)
    sql, given = statements.context(dialect), parameters(dialect, long, NOWHERE)
    with connection.cursor() as cursor:
        if engine == "postgresql":
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", given)
            [[[found]]] = cursor.fetchall()
            nodes = plan_nodes(found["Plan"])
            of_messages = [n for n in nodes if n.get("Relation Name") == Message._meta.db_table]
            read = sum(
                (n["Actual Rows"] + n.get("Rows Removed by Filter", 0)) * n["Actual Loops"]
                for n in of_messages
            )
            assert of_messages
            assert all("Seq Scan" not in n["Node Type"] for n in of_messages)
            assert read <= VISIBLE + 2
        else:
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}", given)
            steps = [row[3] for row in cursor.fetchall()]
            assert not [step for step in steps if step.startswith("SCAN m")]
            assert [step for step in steps if step.startswith("SEARCH m") and "position>" in step]


def test_a_session_without_a_context_reads_the_same_way(store: SessionStore) -> None:
    store.create_session("plain", agent_type="writer")
    store.append_messages("plain", [MESSAGE] * 3)
    with CaptureQueriesContext(connection) as captured:
        assert store.get_context("plain").messages == [MESSAGE] * 3
    assert len(captured.captured_queries) == 1


def test_reconciling_what_is_known_only_reads(store: SessionStore, long: str) -> None:
    store.reconcile_context(long, [Said("day", 2)])
    with CaptureQueriesContext(connection) as captured:
        assert store.reconcile_context(long, [Said("day", 2)]).kind == "unchanged"
    assert len(captured.captured_queries) == 2
    assert not [query for query in captured.captured_queries if query["sql"].startswith(("BEGIN", "UPDATE"))]


def test_going_on_reads_what_is_new(store: SessionStore, long: str, engine: str) -> None:
    seen = read_context(store, long)
    store.append_messages(long, [MESSAGE])
    with CaptureQueriesContext(connection) as captured:
        assert read_context(store, long, seen).context == store.get_context(long)
    assert len(captured.captured_queries) == 2
    if engine == "postgresql":
        dialect = dialect_of(connection)
        sql, given = statements.context(dialect), parameters(dialect, long, seen.place)
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", given)
            [[[found]]] = cursor.fetchall()
        of_messages = [
            n for n in plan_nodes(found["Plan"]) if n.get("Relation Name") == Message._meta.db_table
        ]
        read = sum(n["Actual Rows"] * n["Actual Loops"] for n in of_messages)
        assert read <= 2  # the last one seen, and the new one
