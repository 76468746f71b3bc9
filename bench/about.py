"""What a run was made on, so that it is not compared with another machine's."""

import os
import platform
import sqlite3
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bench.place import Place

_PACKAGES = (
    "Django",
    "psycopg",
    "langgraph-checkpoint-postgres",
    "openai-agents",
    "google-adk",
    "SQLAlchemy",
    "asyncpg",
    "procrastinate",
    "celery",
    "dbos",
)
_SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "shared_buffers")


def about(place: Place) -> dict[str, Any]:
    """Versions, settings and the machine's size."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processors": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "postgresql": place.execute("SHOW server_version")[0][0].split()[0],
        "postgresql_settings": {name: place.execute(f"SHOW {name}")[0][0] for name in _SETTINGS},
        "sqlite": sqlite3.sqlite_version,
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
