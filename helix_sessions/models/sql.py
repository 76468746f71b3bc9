"""The statements of querysets."""

from collections.abc import Sequence
from typing import Any

from django.db import connections
from django.db.models import QuerySet


def bounded_counts(rows: Sequence[QuerySet[Any]], limit: int) -> list[int]:
    """How many rows each of these has, or `limit + 1` if there are more; in one statement."""
    if not rows:
        return []
    counts, params = [], list[Any]()
    for each in rows:
        text, more = each.order_by().values("pk")[: limit + 1].query.get_compiler(each.db).as_sql()
        counts.append(f"(SELECT count(*) FROM ({text}) AS counted)")  # noqa: S608
        params += more
    with connections[rows[0].db].cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(counts)}", params)
        return [int(count) for count in cursor.fetchone()]


AGENT_TYPES = """
WITH RECURSIVE kinds (agent_type) AS (
    SELECT min(agent_type) FROM helix_sessions_session
    UNION ALL
    SELECT (SELECT min(s.agent_type) FROM helix_sessions_session s WHERE s.agent_type > kinds.agent_type)
    FROM kinds WHERE kinds.agent_type IS NOT NULL
)
SELECT agent_type FROM kinds WHERE agent_type IS NOT NULL LIMIT %s
"""
"""The first kinds of agents by name: each costs one probe of the index, however many sessions there are."""

IDS_WITH = """
SELECT session_id FROM (
    SELECT session_id FROM helix_sessions_session ORDER BY created_at DESC, session_id DESC LIMIT %s
) newest WHERE lower(session_id) LIKE %s ESCAPE '\\' LIMIT %s
"""
"""The ids with a part, of some of the newest sessions: a scan of one index that ends."""
