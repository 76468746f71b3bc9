"""How many statements each hot path takes, and what it leaves alone. A number that rises is a decision."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from helix_sessions.exceptions import SessionNotFound
from helix_sessions.store import SessionStore
from helix_sessions.store.engine import remembered_rows
from helix_sessions.types import SessionState
from tests.rows import each
from tests.store.statements import needs_memory

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.one_machine("it counts the statements of one server"),
]

USER = {"role": "user", "content": "hello"}
MESSAGES = [USER, {"role": "assistant", "content": "hi"}]


@pytest.fixture
def state(store: SessionStore) -> SessionState:
    """The state of a session with some history, whose row this connection wrote last."""
    state = store.create_session("s", agent_type="writer", custom_state={"a": 1}, metadata={"m": 1})
    store.create_run("s", run_id="r")
    store.save_state_and_promote_staging("s", state, MESSAGES)
    return store.load_state("s")


def statements(call: Callable[[], Any]) -> list[str]:
    """What the call sends to the database, the beginning and the end of a transaction included."""
    for _ in range(2):  # what is asked once in a process, or once by a connection that remembers, has been
        call()
    with CaptureQueriesContext(connection) as captured:
        call()
    return [str(query["sql"]) for query in captured.captured_queries]


WRITES: dict[str, tuple[Callable[[SessionStore, SessionState], Any], int, int, int]] = {
    "step commit": (
        lambda store, state: store.save_state_and_promote_staging("s", state, MESSAGES),
        *(8, 2, 1),
    ),
    "append": (lambda store, state: store.append_messages("s", MESSAGES), 6, 2, 1),
    "emit_event": (lambda store, state: store.emit_event("s", "note", {"a": 1}), 5, 2, 1),
    "compare-and-set": (
        lambda store, state: store.compare_and_set_status("s", ["active"], "active"),
        *(5, 2, 1),
    ),
    "compare-and-set, mismatch": (
        lambda store, state: store.compare_and_set_status("s", ["failed"], "active"),
        *(3, 4, 4),
    ),
    "save_state": (lambda store, state: store.save_state("s", state), 7, 4, 4),
    "increment_step_count": (lambda store, state: store.increment_step_count("s"), 5, 2, 1),
    "patch_metadata": (lambda store, state: store.patch_metadata("s", {"m": 2}), 5, 4, 4),
    "acquire_lease": (lambda store, state: store.acquire_lease("s", "worker", 30), 4, 5, 5),
    "set_interrupt_flag": (lambda store, state: store.set_interrupt_flag("s"), 5, 4, 4),
}
"""Each with its number on SQLite, on PostgreSQL, and there on a row the connection wrote last."""


def counted(store: SessionStore, state: SessionState, name: str, *, known: bool) -> list[str]:
    act = WRITES[name][0]
    numbers = iter(range(10))

    def call() -> None:
        if not known:
            remembered_rows.forget(connections["default"], "s")
        act(store, replace(state, custom_state={"changed": next(numbers)}))

    return statements(call)


@each("name", WRITES)
def test_a_write(store: SessionStore, state: SessionState, engine: str, name: str) -> None:
    _, on_sqlite, on_postgresql, _ = WRITES[name]
    sent = counted(store, state, name, known=False)
    assert len(sent) == (on_sqlite if engine == "sqlite" else on_postgresql), "\n".join(sent)
    if engine == "postgresql" and len(sent) == 2:
        assert [sql.split()[0] for sql in sent] == ["SELECT", "WITH"]
        return
    looked = engine == "postgresql" and sent[0].startswith("SELECT xmin")  # before the lock, which refuses
    assert sent[looked].startswith("BEGIN")
    assert sent[-1] == "COMMIT"


@each("name", WRITES)
def test_a_write_to_a_row_this_connection_wrote_last(
    store: SessionStore, state: SessionState, engine: str, name: str
) -> None:
    if engine != "postgresql":
        pytest.skip("about PostgreSQL")
    needs_memory()
    sent = counted(store, state, name, known=True)
    assert len(sent) == WRITES[name][3], "\n".join(sent)


def test_a_step_that_says_what_it_follows_after_one_of_another_connection(
    store: SessionStore, state: SessionState, engine: str
) -> None:
    """Two processes that drive a session in turn, each with the version that it was told."""
    here, versions, numbers = connections["default"], [store.load_state("s").version], iter(range(10))

    def step() -> None:
        changed = replace(state, custom_state={"changed": next(numbers)})
        commit = store.save_state_and_promote_staging
        versions.append(commit("s", changed, MESSAGES, expected_version=versions[-1]).version)

    def step_after_another() -> None:
        before = remembered_rows.recall(here, "s")
        step()
        if before is not None:  # as if another connection had made that step
            remembered_rows.remember(here, "s", before)
        step()

    step()
    alone = len(statements(step))
    sent = statements(step_after_another)[alone:]
    if engine == "postgresql":
        assert [sql.split()[0] for sql in sent] == ["SELECT", "WITH"], "\n".join(sent)
    assert versions == sorted(set(versions))


@each("known", [True, False])
def test_an_admission(store: SessionStore, state: SessionState, engine: str, known: bool) -> None:
    if known:
        needs_memory()

    def admit() -> None:
        if not known:
            remembered_rows.forget(connections["default"], "s")
        store.admit_input("s", "hello")

    sent = statements(admit)
    assert len(sent) == (7 if engine == "sqlite" else 1 if known else 2), "\n".join(sent)


def test_a_promotion(store: SessionStore, state: SessionState, engine: str) -> None:
    def promote() -> None:
        store.promote_inputs("s", "queue")

    for name in ("a", "b", "c"):
        store.admit_input("s", "hello", input_id=name, delivery="queue")
    sent = statements(promote)
    assert len(sent) == (10 if engine == "sqlite" else 7), "\n".join(sent)


READS: dict[str, tuple[Callable[[SessionStore], Any], int]] = {
    "load_state": (lambda store: store.load_state("s"), 1),
    "message page": (lambda store: store.get_messages("s", offset=1, limit=10), 1),
    "newest messages": (lambda store: store.get_messages("s", limit=10, newest_first=True), 1),
    "message count": (lambda store: store.get_message_count("s"), 1),
    "list_sessions": (lambda store: store.list_sessions(), 1),
    "list_sessions, filtered": (lambda store: store.list_sessions(status="active", tag="x"), 1),
    "events": (lambda store: store.get_events("s"), 1),
    "polling no flag": (lambda store: store.check_interrupt_flag("s"), 1),
    "latest checkpoint": (lambda store: store.get_latest_checkpoint("s"), 3),
    "checkpoint": (lambda store: store.get_checkpoint("s", "c"), 3),
    "checkpoints": (lambda store: store.list_checkpoints("s"), 3),
    "current run": (lambda store: store.get_current_run("s"), 2),
    "session_exists": (lambda store: store.session_exists("s"), 1),
    "attach": (lambda store: store.attach("s"), 1),
}


@each("name", READS)
def test_a_read(store: SessionStore, state: SessionState, name: str) -> None:
    store.create_checkpoint("s", {"checkpoint_id": "c"})
    act, expected = READS[name]
    sent = statements(lambda: act(store))
    assert len(sent) == expected, "\n".join(sent)
    assert all(statement.startswith("SELECT") for statement in sent)


def test_why_a_session_is_absent_takes_one_query(store: SessionStore) -> None:
    def load() -> None:
        with suppress(SessionNotFound):
            store.load_state("gone")

    assert len(statements(load)) == 2


@each("length", [10, 200])
def test_the_length_of_the_history_does_not_matter(
    store: SessionStore, state: SessionState, engine: str, length: int
) -> None:
    store.append_messages("s", [USER] * length)
    for _ in range(length // 10):
        store.create_checkpoint("s")
    name = "step commit"
    assert len(counted(store, state, name, known=False)) == WRITES[name][1 if engine == "sqlite" else 2]


def test_many_messages_take_few_statements(store: SessionStore, state: SessionState) -> None:
    assert len(statements(lambda: store.append_messages("s", [USER] * 1000))) <= 8


def test_listing_leaves_documents_and_messages_alone(store: SessionStore, state: SessionState) -> None:
    [sent] = statements(lambda: store.list_sessions(status="active", agent_type="writer", limit=5))
    for untouched in ('message"', "statesnapshot", "output", "metadata", "context", "pending"):
        assert untouched not in sent


def test_a_commit_reads_no_message_and_no_state(store: SessionStore, state: SessionState) -> None:
    sent = counted(store, state, "step commit", known=False)
    for statement in sent:
        if statement.startswith("SELECT"):
            assert "helix_sessions_message" not in statement
            assert "helix_sessions_statesnapshot" not in statement


def test_a_creation(store: SessionStore, engine: str) -> None:
    keys = iter("abc")
    sent = statements(lambda: store.create_session(next(keys), agent_type="a", custom_state={"a": 1}))
    assert len(sent) == (5 if engine == "sqlite" else 1), "\n".join(sent)


def test_what_follows_a_creation(store: SessionStore, engine: str) -> None:
    """The connection that has created a session knows its row."""
    if engine == "postgresql":
        needs_memory()
    keys = iter("abc")

    def create_and_append() -> None:
        key = next(keys)
        store.create_session(key, agent_type="a")
        store.append_messages(key, MESSAGES)

    sent = statements(create_and_append)
    assert len(sent) == (10 if engine == "sqlite" else 2), "\n".join(sent)


def test_what_was_sent_is_shown_where_queries_are_logged(store: SessionStore, state: SessionState) -> None:
    sent = statements(lambda: store.append_messages("s", [USER]))
    assert any("helix_sessions_message" in statement for statement in sent)


TURN: dict[str, tuple[Callable[[SessionStore, SessionState, str], Any], int, int]] = {
    "begin_turn": (lambda store, state, n: store.begin_turn("s", message="hi", run_id=f"r{n}"), 9, 6),
    "suspend": (
        lambda store, state, n: store.suspend(
            "s",
            "client_tool",
            state=state,
            run_id=f"r{n}",
            pending_calls=[{"tool_call_id": n, "tool_name": "t", "arguments": {}}],
        ),
        *(12, 7),  # on SQLite one for the webhooks, of which there are none
    ),
    "submit_tool_result": (lambda store, state, n: store.submit_tool_result("s", n, result=1), 6, 5),
    "submit_tool_result, again": (lambda store, state, n: store.submit_tool_result("s", n, result=1), 4, 4),
    "resume": (lambda store, state, n: store.resume("s", run_id=f"again{n}"), 12, 8),
}
"""The calls of a turn in their order, each with its number on SQLite and on PostgreSQL."""


@each("length", [10, 200])
def test_a_turn(store: SessionStore, state: SessionState, engine: str, length: int) -> None:
    store.append_messages("s", [USER] * length)
    store.update_run_status("s", "r", "completed")
    for number in ("1", "2"):
        sent = {}
        for name, (act, _, _) in TURN.items():
            remembered_rows.forget(connections["default"], "s")
            with CaptureQueriesContext(connection) as captured:
                act(store, state, number)
            sent[name] = len(captured)
        store.update_run_status("s", f"again{number}", "completed")
        store.update_status("s", "completed")
    place = 1 if engine == "sqlite" else 2
    assert sent == {name: numbers[place] for name, numbers in TURN.items()}
