"""`DATABASE_URL` as a Django database configuration."""

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

SQLITE_OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 30,
    "init_command": "PRAGMA synchronous=FULL;",
}


def database_from_url(url: str) -> dict[str, Any]:
    """Return the `DATABASES` entry for a `postgres://`, `postgresql://` or `sqlite:///` address.

    Query parameters of a PostgreSQL address become connection options (`sslmode=require`), but
    `host` names a socket directory. `sqlite:///name` is relative, `sqlite:////name` absolute.
    """
    parts = urlsplit(url)
    name = unquote(parts.path.removeprefix("/"))
    if not name:
        raise ValueError("A database address ends with the name of the database.")
    if parts.scheme == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": name, "OPTIONS": SQLITE_OPTIONS.copy()}
    if parts.scheme not in ("postgres", "postgresql"):
        raise ValueError(f"{parts.scheme!r} is no database here; use postgresql:// or sqlite:///.")
    options = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", "") or unquote(parts.hostname or ""),
        "PORT": str(parts.port or options.pop("port", "")),
        "OPTIONS": options,
    }
