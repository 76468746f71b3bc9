"""Which of several queries find anything, asked in one statement."""

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import QuerySet

from helix_sessions.store.engine.connection import connect, errors_translated, fetch


def which_exist(using: str, queries: Mapping[str, QuerySet[Any]]) -> set[str]:
    """The names of the queries that find at least one row."""
    connection = connections[using]
    connect(connection)
    names: list[str] = []
    asked: list[str] = []
    params: list[Any] = []
    for name, query in queries.items():
        try:
            sql, given = query.using(using).query.exists().get_compiler(using).as_sql()
        except EmptyResultSet:  # Django knows without asking
            continue
        names.append(name)
        asked.append(f"EXISTS ({sql})")
        params += given
    if not names:
        return set()
    with errors_translated(connection):
        [found] = fetch(connection, f"SELECT {', '.join(asked)}", params, prepare=False)
    return {name for name, exists in zip(names, found, strict=True) if exists}
