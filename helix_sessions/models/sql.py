"""The statements of querysets."""

from collections.abc import Sequence
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

_CITUS = "SELECT to_regclass('pg_dist_partition') IS NOT NULL"
_SESSIONS_ARE_DISTRIBUTED = (
    "SELECT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = to_regclass('helix_sessions_session'))"
)
_distributed: dict[str, bool] = {}
"""By alias: what was asked once."""


def is_distributed(connection: BaseDatabaseWrapper) -> bool:
    """Whether Citus has the sessions. Asked once for a database in a process."""
    if connection.alias not in _distributed:
        _distributed[connection.alias] = connection.vendor == "postgresql" and _has_sessions(connection)
    return _distributed[connection.alias]


def _has_sessions(connection: BaseDatabaseWrapper) -> bool:
    with connection.cursor() as cursor:
        for question in (_CITUS, _SESSIONS_ARE_DISTRIBUTED):
            cursor.execute(question)
            if not cursor.fetchone()[0]:
                return False
    return True


def ask_again() -> None:
    """The tables have moved."""
    _distributed.clear()


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

_NEXT_AGENT_TYPE = "SELECT min(agent_type) FROM helix_sessions_session WHERE agent_type > %s"


def agent_types(connection: BaseDatabaseWrapper, limit: int) -> list[str]:
    """The same, one statement for each kind where a cluster has the sessions, which takes no recursion."""
    with connection.cursor() as cursor:
        if not is_distributed(connection):
            cursor.execute(AGENT_TYPES, [limit])
            return [row[0] for row in cursor.fetchall()]
        found = [""]
        while len(found) <= limit:
            cursor.execute(_NEXT_AGENT_TYPE, found[-1:])
            [following] = cursor.fetchone()
            if following is None:
                break
            found.append(following)
        return found[1:]


IDS_WITH = """
SELECT session_id FROM (
    SELECT session_id FROM helix_sessions_session ORDER BY created_at DESC, session_id DESC LIMIT %s
) newest WHERE lower(session_id) LIKE %s ESCAPE '\\' LIMIT %s
"""
"""The ids with a part, of some of the newest sessions: a scan of one index that ends."""
