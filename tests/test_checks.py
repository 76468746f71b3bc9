"""System checks: each with its id and its hint."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core import checks
from django.core.checks import CheckMessage, Error, Warning
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connections
from django.test import override_settings

from helix_sessions import checks as ours
from helix_sessions.checks import check_connections, check_databases, check_settings, check_time_zones
from helix_sessions.conf import FORMER, known_settings
from project.database import SQLITE_OPTIONS
from tests.pgbouncer import MISSING, find_pgbouncer, pgbouncer
from tests.rows import each


def found(messages: list[CheckMessage]) -> list[tuple[type[CheckMessage], str | None, str | None]]:
    return [(type(message), message.id, message.hint) for message in messages]


@contextmanager
def database(alias: str, **settings: Any) -> Iterator[None]:
    """Another database beside the tests' own; it is not connected to before a query."""
    configured = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", **settings}
    connections.databases[alias] = connections.configure_settings({"default": {}, alias: configured})[alias]
    try:
        yield
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.databases[alias]


@pytest.mark.django_db
def test_this_project_has_nothing_to_report(engine: str) -> None:
    """But that a power cut may take what the tests commit; see `test_commits_that_a_power_cut_keeps`."""
    ids = [message.id for message in checks.run_checks(databases=["default"])]
    expected = ["helix_sessions.W003"] if engine == "sqlite" else []
    assert [key for key in ids if str(key).startswith("helix_sessions")] == expected


class TestSettings:
    def test_no_settings_at_all(self, settings: Any) -> None:
        if hasattr(settings, "HELIX_SESSIONS"):
            del settings.HELIX_SESSIONS
        assert check_settings(None) == []

    @each("given", [None, [], "LOCK_TIMEOUT", 1])
    def test_e001_not_a_dict(self, settings: Any, given: Any) -> None:
        settings.HELIX_SESSIONS = given
        assert found(check_settings(None)) == [
            (Error, "helix_sessions.E001", 'HELIX_SESSIONS = {"LOCK_TIMEOUT": 10.0}')
        ]

    def test_e002_an_unknown_key_with_a_known_one_near(self, settings: Any) -> None:
        settings.HELIX_SESSIONS = {"LOCK_TIMEOUTS": 1}
        [message] = check_settings(None)
        assert found([message]) == [(Error, "helix_sessions.E002", "Did you mean LOCK_TIMEOUT?")]
        assert "'LOCK_TIMEOUTS'" in message.msg

    def test_e002_lower_case_is_unknown_too(self, settings: Any) -> None:
        settings.HELIX_SESSIONS = {"lock_timeout": 1}
        assert found(check_settings(None)) == [(Error, "helix_sessions.E002", "Did you mean LOCK_TIMEOUT?")]

    @each("key", ["SOMETHING_ELSE", 5, None])
    def test_e002_an_unknown_key_far_from_all(self, settings: Any, key: Any) -> None:
        settings.HELIX_SESSIONS = {key: 1}
        [message] = check_settings(None)
        assert message.id == "helix_sessions.E002"
        assert message.hint is not None
        assert message.hint.startswith("Known keys: ")
        assert "LOCK_TIMEOUT" in message.hint

    @each(
        ("key", "value"),
        [
            ("LOCK_TIMEOUT", "10"),
            ("LOCK_TIMEOUT", None),
            ("LOCK_TIMEOUT", True),
            ("LOCK_TIMEOUT", 0),
            ("LOCK_TIMEOUT", -1),
            ("LOCK_TIMEOUT", float("nan")),
            ("MAX_DOCUMENT_BYTES", 1.5),
            ("MAX_DOCUMENT_BYTES", True),
            ("MAX_DOCUMENT_BYTES", 0),
            ("PREPARED_STATEMENTS", 1),
        ],
    )
    def test_e003_a_value_of_another_type(self, settings: Any, key: str, value: Any) -> None:
        settings.HELIX_SESSIONS = {key: value}
        [message] = check_settings(None)
        assert found([message]) == [
            (Error, "helix_sessions.E003", "See the settings reference for what it means.")
        ]
        assert repr(key) in message.msg

    def test_good_values(self, settings: Any) -> None:
        settings.HELIX_SESSIONS = {
            "LOCK_TIMEOUT": 5,
            "MAX_DOCUMENT_BYTES": 1000,
            "PREPARED_STATEMENTS": False,
        }
        assert check_settings(None) == []

    def test_w006_a_key_that_was_a_setting_once(self, settings: Any) -> None:
        settings.HELIX_SESSIONS = {"API_PAGE_SIZE": 20, "MAX_DOCUMENT_DEPTH": "any"}
        warning = (Warning, "helix_sessions.W006", "It is no longer a setting. Remove it.")
        assert found(check_settings(None)) == [warning, warning]
        assert FORMER.isdisjoint(known_settings())

    def test_every_mistake_is_reported(self, settings: Any) -> None:
        settings.HELIX_SESSIONS = {"NONSENSE": 1, "LOCK_TIMEOUT": "x", "PREPARED_STATEMENTS": True}
        assert [message.id for message in check_settings(None)] == [
            "helix_sessions.E002",
            "helix_sessions.E003",
        ]

    def test_the_check_command_refuses(self, settings: Any) -> None:
        settings.HELIX_SESSIONS = {"NONSENSE": 1}
        with pytest.raises(SystemCheckError, match=r"helix_sessions\.E002"):
            call_command("check")


class TestTimeZones:
    def test_e004_naive_times(self) -> None:
        with override_settings(USE_TZ=False):
            assert found(check_time_zones(None)) == [(Error, "helix_sessions.E004", "Set USE_TZ = True.")]

    def test_aware_times(self) -> None:
        assert check_time_zones(None) == []


class TestSqlite:
    def test_e006_without_a_lock_from_the_beginning(self) -> None:
        with database("loose", OPTIONS={"timeout": 30}):
            messages = check_databases(None)
        assert found(messages) == [
            (
                Error,
                "helix_sessions.E006",
                'Add "OPTIONS": {"transaction_mode": "IMMEDIATE"} to it.',
            )
        ]
        assert "'loose'" in messages[0].msg

    @each("mode", ["DEFERRED", "deferred", None])
    def test_e006_with_another_mode(self, mode: str | None) -> None:
        with database("loose", OPTIONS={**SQLITE_OPTIONS, "transaction_mode": mode}):
            assert [message.id for message in check_databases(None)] == ["helix_sessions.E006"]

    @each("mode", ["IMMEDIATE", "immediate", "EXCLUSIVE"])
    def test_modes_that_lock(self, mode: str) -> None:
        with database("tight", OPTIONS={**SQLITE_OPTIONS, "transaction_mode": mode}):
            assert check_databases(None) == []

    def test_e006_stops_every_command_without_a_connection(self) -> None:
        with database("loose", OPTIONS={"timeout": 30}):
            ids = [message.id for message in checks.run_checks()]
        assert "helix_sessions.E006" in ids

    @each("options", [{}, {"timeout": 5}])
    def test_w002_a_short_wait(self, options: dict[str, Any]) -> None:
        with database("hasty", OPTIONS={"transaction_mode": "IMMEDIATE", **options}):
            assert found(check_databases(None)) == [
                (Warning, "helix_sessions.W002", 'Add "timeout": 30 to its OPTIONS.')
            ]

    def test_e005_too_old(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ours, "MIN_SQLITE", (99, 0))
        with database("old", OPTIONS=SQLITE_OPTIONS):
            messages = [message for message in check_databases(None) if "default" not in message.msg]
        assert (Error, "helix_sessions.E005", "SQLite 3.35 or newer is needed.") in found(messages)

    def test_w003_commits_that_a_power_cut_loses(self, django_db_blocker: Any) -> None:
        options = {**SQLITE_OPTIONS, "init_command": "PRAGMA synchronous=NORMAL;"}
        with django_db_blocker.unblock(), database("careless", OPTIONS=options):
            messages = check_connections(None, ["careless"])
        assert found(messages) == [
            (
                Warning,
                "helix_sessions.W003",
                'Add "init_command": "PRAGMA synchronous=FULL;" to its OPTIONS.',
            )
        ]

    def test_commits_that_a_power_cut_keeps(self, django_db_blocker: Any) -> None:
        with django_db_blocker.unblock(), database("careful", OPTIONS=SQLITE_OPTIONS):
            assert check_connections(None, ["careful"]) == []

    def test_a_database_without_sessions_may_be_as_it_likes(self, settings: Any) -> None:
        settings.DATABASE_ROUTERS = [f"{__name__}.NoSessionsInLoose"]
        with database("loose"):
            assert check_databases(None) == []
            assert check_connections(None, ["loose"]) == []


class TestPostgresql:
    @pytest.mark.django_db
    def test_e007_too_old(self, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
        if engine != "postgresql":
            pytest.skip("needs PostgreSQL")
        assert check_connections(None, ["default"]) == []
        monkeypatch.setattr(ours, "MIN_POSTGRESQL", 990000)
        assert found(check_connections(None, ["default"])) == [
            (Error, "helix_sessions.E007", "PostgreSQL 14 or newer is needed.")
        ]

    def test_w005_a_pooler_that_django_does_not_know_of(self, django_db_blocker: Any, engine: str) -> None:
        if engine != "postgresql":
            pytest.skip("needs PostgreSQL")
        if find_pgbouncer() is None:
            pytest.skip(MISSING)
        known = connections["default"].settings_dict
        given = {name: known[name] for name in ("ENGINE", "NAME", "USER", "PASSWORD")}
        server = "postgresql://{USER}:{PASSWORD}@{HOST}:{PORT}/{NAME}".format(**known)
        hint = 'Add "DISABLE_SERVER_SIDE_CURSORS": True to it.'
        for told, expected in ((False, [(Warning, "helix_sessions.W005", hint)]), (True, [])):
            given["DISABLE_SERVER_SIDE_CURSORS"] = told
            with (
                pgbouncer(server) as pooler,
                django_db_blocker.unblock(),
                database("behind", **given, HOST="127.0.0.1", PORT=str(pooler.port)),
            ):
                assert found(check_connections(None, ["behind"])) == expected, told


class TestOthers:
    def test_w001_another_engine(self) -> None:
        with database("other", ENGINE="django.db.backends.dummy"):
            messages = check_databases(None)
        assert found(messages) == [
            (
                Warning,
                "helix_sessions.W001",
                "Use PostgreSQL or SQLite for the sessions, with a database router if need be.",
            )
        ]
        assert "'other'" in messages[0].msg

    def test_databases_are_reached_only_when_asked_for(self) -> None:
        assert check_connections(None, None) == []
        assert check_connections(None, []) == []


class NoSessionsInLoose:
    """A router."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if (db, app_label) == ("loose", "helix_sessions") else None


def test_context_sources_can_be_imported(settings: Any) -> None:
    today = ("helix_sessions.runtime.Today", {"time_zone": "UTC"})
    settings.HELIX_SESSIONS = {"CONTEXT_SOURCES": ["helix_sessions.runtime.StoredInstructions", today]}
    assert ours.check_context_sources(None) == []
    bad: list[Any] = ["nowhere.Source", "helix_sessions.runtime.Nothing", 5, "sys.path", (today[0], "UTC")]
    settings.HELIX_SESSIONS = {"CONTEXT_SOURCES": bad}
    hint = "An entry is a dotted path, or a dotted path and a dict of arguments."
    assert found(ours.check_context_sources(None)) == [(Error, "helix_sessions.E009", hint)] * len(bad)
    settings.HELIX_SESSIONS = {"CONTEXT_SOURCES": "said by another check"}
    assert ours.check_context_sources(None) == []
