"""Databases for the frameworks' own stores, beside ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import connection

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

SCHEMA = "theirs"


@contextmanager
def their_schema() -> Iterator[dict[str, Any]]:
    """A schema of the test's PostgreSQL database: what libpq is to be given to work in it."""
    settings = connection.settings_dict
    given = {name: settings[name.upper()] for name in ("user", "password", "host", "port")}
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA {SCHEMA}")
    try:
        yield {
            **{name: str(value) for name, value in given.items() if value},
            "dbname": settings["NAME"],
            "options": f"-c search_path={SCHEMA}",
        }
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


@contextmanager
def their_engines(path: Path) -> Iterator[tuple["AsyncEngine", "Engine"]]:
    """Engines of SQLAlchemy on a file, or on PostgreSQL if that is what is tested: one that is awaited, and
    one that is not."""
    from sqlalchemy import NullPool, create_engine
    from sqlalchemy.ext.asyncio import create_async_engine

    if connection.vendor == "sqlite":
        awaited = create_async_engine(f"sqlite+aiosqlite:///{path}", poolclass=NullPool)
        yield awaited, create_engine(f"sqlite:///{path}", poolclass=NullPool)
        return
    with their_schema() as place:
        options: Any = {"connect_args": place, "poolclass": NullPool}
        url = "postgresql+psycopg://"
        yield create_async_engine(url, **options), create_engine(url, **options)
