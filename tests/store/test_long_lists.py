"""A statement does not grow with the list a caller passes: databases bound its parameters and its depth."""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from helix_sessions import models
from helix_sessions.conf import Conf
from helix_sessions.exceptions import InvalidInput
from helix_sessions.store import SessionStore
from helix_sessions.store.calls import children
from helix_sessions.store.maintenance import exports
from helix_sessions.store.sessions import delete
from helix_sessions.store.state import agent_records
from helix_sessions.types import RetentionPolicy, SubSessionRef
from tests.contract.calls import USER

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 10_000
MOST_PARAMETERS = 6_000
"""SQLite takes 32,766 and PostgreSQL 65,535, or fewer where they were built or configured so."""
LONGEST_STATEMENT = 100_000


class Widest:
    """The most parameters, characters and changes that a statement had."""

    parameters = characters = changes = statements = 0


@contextmanager
def widest() -> Iterator[Widest]:
    seen = Widest()

    def look(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        seen.statements += 1
        seen.parameters = max(seen.parameters, len(params or ()))
        seen.characters = max(seen.characters, len(sql))
        seen.changes = max(seen.changes, sql.count("UPDATE "))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(look):
        yield seen


def names(count: int = MANY) -> list[str]:
    return [f"k{number:06}" for number in range(count)]


def test_forty_thousand_notes_are_removed_at_once(store: SessionStore) -> None:
    store.create_session("s", agent_type="writer")
    keys = names(40_000)
    store.put_notes("s", dict.fromkeys(keys, 1))
    store.put_notes("s", {"kept": 1})
    version = store.load_state("s").version

    assert store.remove_notes("s", [*keys, "unknown"], expected_version=version) == 40_000

    assert [note.key for note in store.get_notes("s")] == ["kept"]
    assert store.load_state("s").version == version + 1
    assert [event.data for event in store.get_events("s", types=["notes_removed"])] == [{"count": 40_000}]


def test_no_call_makes_a_statement_as_long_as_its_list(store: SessionStore) -> None:
    keys = names()
    store.create_session("s", agent_type="writer")
    store.create_session("waits", agent_type="writer")
    run = store.create_run("waits", run_id="r")
    asked = [{"tool_call_id": key, "tool_name": "t", "arguments": {}} for key in keys]
    refs = [SubSessionRef(sub_session_id=key, agent_type="a") for key in keys]
    failed = [SubSessionRef(sub_session_id=key, agent_type="a", status="failed") for key in keys]
    calls = {
        "append_messages": lambda: store.append_messages("s", [USER] * MANY),
        "put_notes": lambda: store.put_notes("s", dict.fromkeys(keys, 1)),
        "get_notes": lambda: store.get_notes("s", keys=keys),
        "remove_notes": lambda: store.remove_notes("s", keys),
        "add_sub_session_refs": lambda: store.add_sub_session_refs("s", refs),
        "suspend": lambda: store.suspend(
            "waits", "client_tool", state=store.load_state("waits"), run_id=run.run_id, pending_calls=asked
        ),
        "list_abandoned": lambda: store.list_abandoned(agent_types=keys),
        "list_unattended": lambda: store.list_unattended(agent_types=keys),
        "examine_sessions": lambda: store.examine_sessions(session_ids=keys, page_size=MANY),
        "prune_sessions": lambda: store.prune_sessions(
            RetentionPolicy(terminal_for=timedelta(0), agent_types=tuple(keys), keep_tags=tuple(keys))
        ),
        "the labels of a page": lambda: agent_records.labels(store.using, keys),
        "the next level of a tree": lambda: delete.children_of(store.using, keys),
        "a tree": lambda: exports.tree_of(store.using, "s"),
        "children to respawn": lambda: children.to_respawn(store.using, failed),
        "metadata": lambda: list(store.query_sessions().filter(metadata__has_items=dict.fromkeys(keys, 1))),
    }
    for name, call in calls.items():
        with widest() as seen:
            call()
        assert seen.statements, name
        assert seen.parameters <= MOST_PARAMETERS, (name, seen.parameters)
        assert seen.characters <= LONGEST_STATEMENT, (name, seen.characters)


def test_many_answers_are_consumed_at_once(store: SessionStore) -> None:
    store.create_session("s", agent_type="writer")
    run = store.create_run("s", run_id="r")
    asked = [{"tool_call_id": key, "tool_name": "t", "arguments": {}} for key in names(2_000)]
    store.suspend("s", "client_tool", state=store.load_state("s"), run_id=run.run_id, pending_calls=asked)
    state = store.load_state("s")
    entries = state.pending_client_tool_calls or {}
    answered = {
        key: {**entry, "response": {"result": 1}, "submitted_at": entry["requested_at"]}
        for key, entry in entries.items()
    }
    models.Session.objects.filter(session_id="s").update(pending_client_tool_calls=answered)

    with widest() as seen:
        resumed = store.resume("s", expected_version=state.version)

    assert len(resumed.tool_messages) == 2_000
    assert seen.parameters <= MOST_PARAMETERS
    assert models.ClientCall.objects.filter(completed_at__isnull=False).count() == 2_000
    assert store.submit_tool_result("s", "k000000", result=2).outcome == "already_completed"


def test_many_running_children_fail_with_their_parent(store: SessionStore) -> None:
    store.create_session("s", agent_type="writer")
    run = store.create_run("s", run_id="r")
    keys = names(60)
    for key in keys:
        store.create_session(key, agent_type="a", parent_session_id="s")
        store.create_run(key)
    store.add_sub_session_refs("s", [{"sub_session_id": key, "agent_type": "a"} for key in keys])

    with widest() as seen:
        store.suspend("s", "step_partial", state=store.load_state("s"), run_id=run.run_id)

    assert {ref.status for ref in store.get_sub_session_refs("s")} == {"failed"}
    assert seen.changes <= 30
    assert len(store.resume("s").respawn) == len(keys)


def test_agent_types_are_checked(store: SessionStore) -> None:
    for wrong in ("writer", [None], ["\x00"], ["\ud800"], 5, [""]):
        for call in (store.list_abandoned, store.list_unattended):
            with pytest.raises(InvalidInput):
                call(agent_types=wrong)  # type: ignore[arg-type]
    assert store.list_abandoned(agent_types=[]) == store.list_unattended(agent_types=()) == []


def test_a_rotation_takes_pages_of_any_size(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {name: b64encode(name.encode().ljust(32, b"k")).decode() for name in ("old", "new")}
    monkeypatch.setattr(Conf, "ENCRYPTION", {"keys": keys, "active": "old"})
    store.create_session("s", agent_type="writer")
    store.append_messages("s", [USER] * 1_500)
    monkeypatch.setattr(Conf, "ENCRYPTION", {"keys": keys, "active": "new"})

    with widest() as seen:
        rotated = store.rotate_encryption(page_size=100_000)

    assert (rotated.rows >= 1_500, rotated.errors) == (True, 0)
    assert seen.parameters <= MOST_PARAMETERS
    assert store.get_messages("s", limit=1).messages == [USER]
