"""What settings name exists and fits; each check has its id and a hint."""

from typing import Any

from django.core.checks import run_checks
from django.test import override_settings

from helix_sessions.checks import check_routers
from tests.rows import each

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("E009", {"AGENTS": {"a": "no.such.agent"}}, "No module named 'no'"),
    ("E009", {"AGENTS": {"a": "helix_sessions.types.SESSION_STATUSES"}}, "is a tuple"),
    ("E009", {"AGENTS": {"a": "tests.agents_that_raise.agent"}}, "No module"),
    ("E009", {"WAKER": "helix_sessions.runtime.nothing"}, "cannot be imported"),
    ("E009", {"SUMMARIZER": "helix_sessions.types.SESSION_STATUSES"}, "is a tuple"),
    ("E009", {"EMBEDDER": "no.such.embedder"}, "EMBEDDER"),
    ("E009", {"API_POLICY": "helix_sessions.store.SessionStore"}, "API_POLICY"),
    ("E009", {"WORKSPACE_PROVIDERS": {"p": "no.such.Provider"}}, "WORKSPACE_PROVIDERS['p']"),
    ("E010", {"API_DATABASE": "elsewhere"}, "not in DATABASES"),
    ("E010", {"ARCHIVE_STORAGE": "elsewhere"}, "not in STORAGES"),
    ("E010", {"BLOB_STORAGE": "elsewhere"}, "not in STORAGES"),
    ("E011", {"API_THROTTLE_RATES": {"read": "often"}}, "'often'"),
    ("E011", {"API_THROTTLE_RATES": {"read": "3/fortnight"}}, "'3/fortnight'"),
    ("E011", {"API_THROTTLE_RATES": {"read": 3}}, "is 3"),
    ("E011", {"API_THROTTLE_RATES": {"reed": "3/min"}}, "'reed'"),
    ("E003", {"STREAM_POLL_SECONDS": -1}, "above zero"),
    ("E003", {"PARTICIPANT_AGENT_TYPES": "shop"}, "Literal['*']"),
    ("E012", {"RECOVERY": {"*": "hope"}}, "'hope'"),
    ("E016", {"CONCURRENCY": {"user": 4}}, "'user' is neither"),
    ("E016", {"CONCURRENCY": {"agent_type:": 4}}, "'agent_type:' is neither"),
    ("E016", {"CONCURRENCY": {"owner": 0}}, "should be a number of at least 1"),
    ("E016", {"CONCURRENCY": {"agent_type:research": "ten"}}, "should be a number"),
    ("E013", {"COMPACTION": {"context_windows": 1}}, "no compaction policy"),
]


@each(("id", "given", "said"), WRONG)
def test_what_cannot_work_is_said(id, given, said):
    with override_settings(HELIX_SESSIONS=given):
        [message] = [each for each in run_checks() if str(each.id).startswith("helix_sessions")]
    assert message.id == f"helix_sessions.{id}"
    assert said in message.msg
    assert message.hint


def test_what_works_is_silent():
    given = {
        "AGENTS": {"a": "tests.attack.agents.lenient", "b": "tests.test_setting_checks.made"},
        "API_THROTTLE_RATES": {"read": "50/s", "write": None},
        "PARTICIPANT_AGENT_TYPES": "*",
        "RECOVERY": {"*": "leave"},
        "CONCURRENCY": {"owner": 4, "agent_type:research": 10},
        "COMPACTION": {"context_window": 1000},
    }
    with override_settings(HELIX_SESSIONS=given):
        assert [each for each in run_checks() if str(each.id).startswith("helix_sessions")] == []


def made() -> None:
    """Makes an agent."""


class Elsewhere:
    """A router that writes sessions where it does not allow their tables."""

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "elsewhere"


def test_e014_sessions_are_written_to_a_database_without_their_tables(settings: Any) -> None:
    assert check_routers(None) == []
    settings.DATABASE_ROUTERS = [Elsewhere()]
    assert [(found.id, "'elsewhere'" in found.msg) for found in check_routers(None)] == [
        ("helix_sessions.E014", True)
    ]
