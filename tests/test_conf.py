"""Settings: typed, with defaults, read live."""

import inspect
from typing import Any

import pytest
from django.test import override_settings

from helix_sessions import conf as module
from helix_sessions.checks import _fits
from helix_sessions.conf import Conf, conf, known_settings
from helix_sessions.exceptions import InvalidDocument
from helix_sessions.store import SessionStore
from helix_sessions.store.engine.dialect import table_by_table
from tests.rows import each


def test_a_default_counts_until_something_is_set(settings: Any) -> None:
    if hasattr(settings, "HELIX_SESSIONS"):
        del settings.HELIX_SESSIONS
    assert conf.LOCK_TIMEOUT == 10.0
    settings.HELIX_SESSIONS = {"LOCK_TIMEOUT": 3.0}
    assert conf.LOCK_TIMEOUT == 3.0
    assert conf.MAX_DOCUMENT_BYTES == 32 * 1024 * 1024
    settings.HELIX_SESSIONS = {}
    assert conf.LOCK_TIMEOUT == 10.0


def test_settings_are_read_live() -> None:
    with override_settings(HELIX_SESSIONS={"LOCK_TIMEOUT": 1.0}):
        assert conf.LOCK_TIMEOUT == 1.0
        with override_settings(HELIX_SESSIONS={"LOCK_TIMEOUT": 2.0}):
            assert conf.LOCK_TIMEOUT == 2.0
        assert conf.LOCK_TIMEOUT == 1.0


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError):
        conf.NONSENSE  # noqa: B018


@each("name", known_settings())
def test_every_setting_has_a_type_a_default_and_a_description(name: str) -> None:
    assert name == name.upper()
    default = vars(Conf)[name]
    wanted = known_settings()[name]
    assert _fits(default, wanted) or default in (False, 0, "")
    following = inspect.getsource(module).partition(f"    {name}: ")[2].splitlines()[1]
    assert following.strip().startswith('"""'), "a line under it says what it means"


@pytest.mark.django_db
def test_the_limits_of_documents_are_those_of_the_moment(store: SessionStore, settings: Any) -> None:
    store.create_session("s", agent_type="writer")
    settings.HELIX_SESSIONS = {"MAX_DOCUMENT_BYTES": 100}
    with pytest.raises(InvalidDocument, match="bytes"):
        store.emit_event("s", "note", "x" * 100)
    with pytest.raises(InvalidDocument, match="bytes"):
        store.emit_event("s", "note", "é" * 50)
    assert store.emit_event("s", "note", "é" * 49).data == "é" * 49
    settings.HELIX_SESSIONS = {}
    assert store.emit_event("s", "note", "x" * 100).data == "x" * 100


@pytest.mark.django_db
@each("portable", [True, False])
def test_the_other_ways_of_writing_write_the_same(store: SessionStore, settings: Any, portable: bool) -> None:
    settings.HELIX_SESSIONS = {"PREPARED_STATEMENTS": portable}
    with table_by_table(portable):
        _write_and_read(store)


def _write_and_read(store: SessionStore) -> None:
    state = store.create_session("s", agent_type="writer", custom_state={"a": [1, "é\x00"]})
    store.stage_changes("s", "step", "call", [{"op": "append", "path": ["a"], "values": [2]}])
    store.save_state_and_promote_staging("s", state, [{"role": "user", "content": "%s $1 ?"}])
    assert store.load_state("s").custom_state == {"a": [1, "é\x00", 2]}
    assert store.get_messages("s").messages == [{"role": "user", "content": "%s $1 ?"}]
    store.truncate_messages("s", 0)
    store.clone_session("s", "branch")
    store.delete_session("s")
    assert store.load_state("branch").custom_state == {"a": [1, "é\x00", 2]}
