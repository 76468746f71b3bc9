"""How PostgreSQL answers the pages of the console among many sessions: by indexes, and with few rows read."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client

from bench.admin_fill import insert
from tests.admin.places import LIST, WAITING

pytestmark = pytest.mark.django_db

SESSIONS = 20_000
MOST = 3_000
"""So many rows one scan may read for a page that looks at what needs somebody now. Full inboxes are counted
out of the index of all inputs that are pending; searches and counts of lists have bounds of their own."""
LARGE = {f"helix_sessions_{name}" for name in ("session", "run", "event", "message", "input", "messagewords")}
NOW = [f"{LIST}now/panels/?window={window}" for window in ("hour", "day", "fortnight")]
OTHERS = [
    LIST,
    f"{LIST}?status=failed",
    f"{LIST}?agent=agent-3&status=failed",
    f"{LIST}?is=stuck",
    f"{LIST}?is=expired",
    f"{LIST}?q=user-77",
    f"{LIST}?q=text:street 4711",
    f"{LIST}filled-00010000/change/",
    f"{LIST}original/timeline/?order=oldest",
    f"{LIST}original/runs/",
    "/admin/helix_sessions/",
]


@pytest.fixture(autouse=True)
def _only_postgresql(engine: str) -> None:
    if engine != "postgresql":
        pytest.skip("plans of PostgreSQL")


def statements_of(client: Client, address: str) -> list[tuple[str, Any]]:
    asked: list[tuple[str, Any]] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        asked.append((sql, params))
        return execute(sql, params, many, context)

    cache.clear()
    with connection.execute_wrapper(note):
        assert client.get(address).status_code == 200, address
    return [(sql, params) for sql, params in asked if sql.lstrip().startswith(("SELECT", "WITH"))]


def scans_of(sql: str, params: Any) -> Iterator[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params)
        [[document]] = cursor.fetchall()
    plan = json.loads(document) if isinstance(document, str) else document
    waiting = [plan[0]["Plan"]]
    while waiting:
        node = waiting.pop()
        waiting += node.get("Plans", [])
        if node.get("Relation Name") in LARGE:
            yield node


def test_pages_read_indexes_and_few_rows(admin_client: Client):
    insert(SESSIONS, 3 * SESSIONS)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
        # What has an index is to be read by it, also where a table this small would be read whole.
        cursor.execute("SET LOCAL enable_seqscan = off")
    for address in (*NOW, WAITING, f"{LIST}workers/", *OTHERS):
        for sql, params in statements_of(admin_client, address):
            for node in scans_of(sql, params):
                assert node["Node Type"] != "Seq Scan", (address, sql)
                if address not in OTHERS and node["Relation Name"] != "helix_sessions_input":
                    dropped = node.get("Rows Removed by Filter", 0)
                    read = (node["Actual Rows"] + dropped) * node["Actual Loops"]
                    assert read <= MOST, (address, node, sql)
