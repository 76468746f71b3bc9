"""System checks: a setting that could lose or split a write is an error, one with a lesser effect is a
warning."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections, router
from django.utils.module_loading import import_string

from helix_sessions.conf import FORMER, conf, known_settings
from helix_sessions.content import encryption
from helix_sessions.exceptions import NotConfigured
from helix_sessions.models.databases import sessions_database

if TYPE_CHECKING:
    from helix_sessions.store.engine.dialect import Dialect

MIN_POSTGRESQL = 140000
MIN_SQLITE = (3, 35)


@register()
def check_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """`HELIX_SESSIONS` has known keys with values of the right type."""
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
        if name in FORMER:
            found.append(
                Warning(
                    f"HELIX_SESSIONS[{name!r}] has no effect.",
                    hint="It is no longer a setting. Remove it.",
                    id="helix_sessions.W006",
                )
            )
        elif name not in known:
            near = get_close_matches(str(name).upper(), known, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(sorted(known))}."
            found.append(
                Error(f"HELIX_SESSIONS has an unknown key {name!r}.", hint=hint, id="helix_sessions.E002")
            )
        elif not _fits(value, known[name]):
            found.append(
                Error(
                    f"HELIX_SESSIONS[{name!r}] must be {_wanted(known[name])}, not {_given(value)}.",
                    hint="See the settings reference for what it means.",
                    id="helix_sessions.E003",
                )
            )
    return found


def _wanted(kind: Any) -> str:
    if kind in (int, float):
        return f"of type {kind.__name__} and above zero"
    return f"of type {kind.__name__ if isinstance(kind, type) else str(kind).replace('typing.', '')}"


def _given(value: Any) -> str:
    """A number as it is, of other values only the type: they may be secrets."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return repr(value) if is_number else type(value).__name__


def _fits(value: Any, wanted: Any) -> bool:
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool) and value > 0
    if get_origin(wanted) in (UnionType, Union):
        return any(_fits(value, kind) for kind in get_args(wanted))
    if get_origin(wanted) is Literal:
        return value in get_args(wanted)
    return isinstance(value, get_origin(wanted) or wanted)


@register()
def check_encryption(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """The keys of `ENCRYPTION` are valid, and the extra it needs is installed."""
    if not isinstance(conf.ENCRYPTION, dict):
        return []  # reported by `check_settings`
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


@register()
def check_context_sources(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Each entry of `CONTEXT_SOURCES` names something that can be imported."""
    entries = conf.CONTEXT_SOURCES if isinstance(conf.CONTEXT_SOURCES, list) else []
    return [
        Error(
            f"The context source {entry!r:.200} cannot be made: {problem}",
            hint="An entry is a dotted path, or a dotted path and a dict of arguments.",
            id="helix_sessions.E009",
        )
        for entry in entries
        if (problem := _source_problem(entry)) is not None
    ]


def _source_problem(entry: Any) -> str | None:
    path, options = entry if isinstance(entry, list | tuple) and len(entry) == 2 else (entry, {})
    if not isinstance(path, str) or not isinstance(options, dict):
        return "it is no dotted path with a dict of arguments."
    try:
        made = import_string(path)
    except ImportError as error:
        return str(error)
    return None if callable(made) else "it is neither a class nor a function."


@register()
def check_time_zones(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Datetimes are aware."""
    if settings.USE_TZ:
        return []
    return [Error("helix_sessions stores aware times.", hint="Set USE_TZ = True.", id="helix_sessions.E004")]


@register()
def check_databases(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Each database with sessions is configured so that no write can be lost."""
    found: list[CheckMessage] = []
    for alias in _with_sessions(connections):
        connection: Any = connections[alias]
        database = _supported(connection)
        if database is None:
            found.append(
                Warning(
                    f"Database {alias!r} is {connection.display_name}, which is not supported.",
                    hint="Use PostgreSQL or SQLite for the sessions, with a database router if need be.",
                    id="helix_sessions.W001",
                )
            )
        elif database.name == "sqlite":
            found.extend(_check_sqlite_options(connection))
    return found


@register()
def check_routers(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Sessions are written to a database that has their tables."""
    alias = sessions_database()
    if alias in connections and alias in _with_sessions(connections):
        return []
    return [
        Error(
            f"The database routers write sessions to {alias!r}, which does not have their tables.",
            hint="Let db_for_write and allow_migrate of the router agree on the app helix_sessions.",
            id="helix_sessions.E014",
        )
    ]


@register(Tags.database)
def check_connections(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Checks that query the database; run by `migrate` and `check --database`."""
    found: list[CheckMessage] = []
    for alias in _with_sessions(databases or []):
        connection: Any = connections[alias]
        database = _supported(connection)
        if database is not None:
            found.extend(_check_server(connection, database))
    return found


def _supported(connection: Any) -> "Dialect | None":
    from helix_sessions.store.engine.dialect import dialect_of

    try:
        return dialect_of(connection)
    except NotConfigured:
        return None


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


def _check_server(connection: Any, database: "Dialect") -> list[CheckMessage]:
    found: list[CheckMessage] = []
    if database.name == "postgresql" and connection.pg_version < MIN_POSTGRESQL:
        found.append(
            Error(
                f"PostgreSQL {connection.pg_version // 10000} of database {connection.alias!r} is too old.",
                hint="PostgreSQL 14 or newer is needed.",
                id="helix_sessions.E007",
            )
        )
    is_configured = connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS")
    if not is_configured and not database.is_direct(connection):
        found.append(
            Warning(
                f"A pooler is between the application and the database {connection.alias!r}, and Django does"
                " not know.",
                hint='Add "DISABLE_SERVER_SIDE_CURSORS": True to it.',
                id="helix_sessions.W005",
            )
        )
    if not database.is_durable(connection):
        found.append(
            Warning(
                f"The SQLite database {connection.alias!r} can lose committed writes when the power fails.",
                hint='Add "init_command": "PRAGMA synchronous=FULL;" to its OPTIONS.',
                id="helix_sessions.W003",
            )
        )
    return found
