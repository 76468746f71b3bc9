"""System checks: what would lose or split a write is an error, what would only surprise is a warning."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, get_origin

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections, router

from helix_sessions.conf import conf, known_settings
from helix_sessions.content import encryption
from helix_sessions.exceptions import NotConfigured

MIN_POSTGRESQL = 140000
MIN_SQLITE = (3, 35)


@register()
def check_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """`HELIX_SESSIONS` holds known keys with values of their types."""
    given = getattr(settings, "HELIX_SESSIONS", {})
    if not isinstance(given, dict):
        return [
            Error(
                "HELIX_SESSIONS must be a dict.",
                hint='HELIX_SESSIONS = {"LOCK_TIMEOUT": 10.0}',
                id="helix_sessions.E001",
            )
        ]
    known = known_settings()
    found: list[CheckMessage] = []
    for name, value in given.items():
        if name not in known:
            near = get_close_matches(str(name).upper(), known, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(sorted(known))}."
            found.append(
                Error(f"HELIX_SESSIONS has an unknown key {name!r}.", hint=hint, id="helix_sessions.E002")
            )
        elif not _fits(value, known[name]):
            wanted = getattr(known[name], "__name__", str(known[name]))
            found.append(
                Error(
                    f"HELIX_SESSIONS[{name!r}] must be of type {wanted}, not {type(value).__name__}.",
                    hint="See the settings reference for what it means.",
                    id="helix_sessions.E003",
                )
            )
    return found


def _fits(value: Any, wanted: Any) -> bool:
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool) and value > 0
    return isinstance(value, get_origin(wanted) or wanted)


@register()
def check_encryption(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """The keys of `ENCRYPTION` are keys, and what it needs is installed."""
    if not isinstance(conf.ENCRYPTION, dict):
        return []  # said by `check_settings`
    try:
        encryption.keyring()
    except NotConfigured as error:
        return [
            Error(
                str(error),
                hint="A key is 32 bytes in base64; manage.py rotate_encryption --new-key prints one.",
                id="helix_sessions.E008",
            )
        ]
    return []


@register(Tags.security, deploy=True)
def check_throttles(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """A deployment bounds what one user can ask for."""
    missing = [scope for scope in ("create", "write", "read") if not conf.API_THROTTLE_RATES.get(scope)]
    if not missing:
        return []
    return [
        Warning(
            f"The HTTP API does not limit how often a user may {', '.join(missing)}.",
            hint='HELIX_SESSIONS = {"API_THROTTLE_RATES": '
            '{"create": "60/min", "write": "1200/min", "read": "3000/min"}}',
            id="helix_sessions.W004",
        )
    ]


@register()
def check_time_zones(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Times are aware."""
    if settings.USE_TZ:
        return []
    return [Error("helix_sessions stores aware times.", hint="Set USE_TZ = True.", id="helix_sessions.E004")]


@register()
def check_databases(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Each database that holds sessions is configured so that the store can keep its promises."""
    found: list[CheckMessage] = []
    for alias in _with_sessions(connections):
        connection: Any = connections[alias]
        if connection.vendor == "sqlite":
            found.extend(_check_sqlite_options(connection))
        elif connection.vendor != "postgresql":
            found.append(
                Warning(
                    f"Database {alias!r} is {connection.display_name}, which is not supported.",
                    hint="Use PostgreSQL or SQLite for the sessions, with a database router if need be.",
                    id="helix_sessions.W001",
                )
            )
    return found


@register(Tags.database)
def check_connections(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """What only the database itself can tell; run by `migrate` and `check --database`."""
    found: list[CheckMessage] = []
    for alias in _with_sessions(databases or []):
        connection: Any = connections[alias]
        if connection.vendor == "sqlite":
            found.extend(_check_durability(connection))
        elif connection.vendor == "postgresql":
            found.extend(_check_server(connection))
    return found


def _with_sessions(aliases: Iterable[str]) -> list[str]:
    from helix_sessions.models import Session

    return [alias for alias in aliases if router.allow_migrate_model(alias, Session)]


def _check_sqlite_options(connection: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    if connection.Database.sqlite_version_info < MIN_SQLITE:
        found.append(
            Error(
                f"SQLite {connection.Database.sqlite_version} is too old.",
                hint="SQLite 3.35 or newer is needed.",
                id="helix_sessions.E005",
            )
        )
    options = connection.settings_dict.get("OPTIONS", {})
    if str(options.get("transaction_mode", "")).upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        found.append(
            Error(
                f"The SQLite database {connection.alias!r} begins transactions without a lock, "
                "so writes could be lost.",
                hint='Add "OPTIONS": {"transaction_mode": "IMMEDIATE"} to it.',
                id="helix_sessions.E006",
            )
        )
    if options.get("timeout", 5) < 10:
        found.append(
            Warning(
                f"Writers of the SQLite database {connection.alias!r} wait less than ten seconds "
                "for each other.",
                hint='Add "timeout": 30 to its OPTIONS.',
                id="helix_sessions.W002",
            )
        )
    return found


def _check_server(connection: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    if connection.pg_version < MIN_POSTGRESQL:
        found.append(
            Error(
                f"PostgreSQL {connection.pg_version // 10000} of database {connection.alias!r} is too old.",
                hint="PostgreSQL 14 or newer is needed.",
                id="helix_sessions.E007",
            )
        )
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [process] = cursor.fetchone()
    told = connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS")
    if process != connection.connection.info.backend_pid and not told:
        found.append(
            Warning(
                f"A pooler is between the application and the database {connection.alias!r}, and Django was"
                " not told.",
                hint='Add "DISABLE_SERVER_SIDE_CURSORS": True to it.',
                id="helix_sessions.W005",
            )
        )
    return found


def _check_durability(connection: Any) -> list[CheckMessage]:
    with connection.cursor() as cursor:
        [synchronous] = cursor.execute("PRAGMA synchronous").fetchone()
    if synchronous >= 2:
        return []
    return [
        Warning(
            f"The SQLite database {connection.alias!r} can lose committed writes when the power fails.",
            hint='Add "init_command": "PRAGMA synchronous=FULL;" to its OPTIONS.',
            id="helix_sessions.W003",
        )
    ]
