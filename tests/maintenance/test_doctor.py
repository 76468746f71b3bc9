"""The doctor: each invariant broken by hand is found, and put right where nothing has to be guessed."""

import io
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

from helix_sessions.models import Blob, BlobRef, Session
from helix_sessions.models.guard import is_guarded, lower_guard, raise_guard
from helix_sessions.runtime import ChangeModel, SessionRuntime
from helix_sessions.store import SessionStore
from helix_sessions.store.engine import dialect
from helix_sessions.store.engine.session_tables import child_tables, kind_of
from helix_sessions.store.maintenance import doctor
from helix_sessions.store.transcript import fragments
from helix_sessions.stream.fragment_writer import PendingBatch
from helix_sessions.types import CompactionPolicy, Finding
from tests.citus import WORKERS
from tests.contract.sources import Said
from tests.invariants import assert_invariants
from tests.parallel import run_threads
from tests.rows import each

P = "helix_sessions"
S = "WHERE session_id = 's'"

REPAIRABLE = {
    **{
        f"orphan_{kind_of(model)}": f"UPDATE {model._meta.db_table} SET session_id = 'ghost' {S}"
        for model in child_tables()
        if not WORKERS  # a cluster does not let rows change their session
    },
    "archived_events_left": f"UPDATE {P}_session SET first_seq = 3 {S}",
    "head_seq_behind": f"UPDATE {P}_session SET head_seq = head_seq - 2 {S}",
    "message_count": f"UPDATE {P}_session SET message_count = message_count + 1 {S}",
    "run_pointer": f"UPDATE {P}_session SET run_id = 'ghost' {S}",
    "turn_count": f"UPDATE {P}_session SET turn_count = 7 {S}",
    "state_pinned": f"UPDATE {P}_session SET state_pinned = 0 {S}",
    "state_left_over": f"INSERT INTO {P}_statesnapshot (session_id, number, base, document)"
    " VALUES ('s', 99, 99, '{}')",
    "checkpoint_pointer": f"UPDATE {P}_session SET checkpoint_id = 'ghost' {S}",
    "compaction_beyond_transcript": f"UPDATE {P}_compaction SET end_position = 99 {S}",
    "staged_count": f"UPDATE {P}_session SET staged_count = 0 {S}",
    "pending_inputs": f"UPDATE {P}_session SET pending_inputs = 7 {S}",
    "parent_missing": f"UPDATE {P}_session SET parent_session_id = 'ghost' WHERE session_id = 'child'",
    "root_mismatch": f"UPDATE {P}_session SET root_session_id = 'other' WHERE session_id = 'child'",
    "awaiting_client": f"UPDATE {P}_session SET awaiting_client = NOT awaiting_client {S}",
    "runnable_at": f"UPDATE {P}_session SET run_requested = TRUE WHERE session_id = 'child'",
}
FOR_A_PERSON = {
    "archive_gap": f"UPDATE {P}_session SET first_seq = 3 {S}",
    "head_seq_ahead": f"UPDATE {P}_session SET head_seq = head_seq + 1 {S}",
    "log_gap": f"DELETE FROM {P}_event {S} AND seq = 2",
    "log_start": f"UPDATE {P}_event SET type = 'other' {S} AND seq = 1",
    "version_without_event": f"UPDATE {P}_session SET version = 1000 {S}",
    "time_went_back": f"UPDATE {P}_event SET created_at = '2001-01-01' {S} AND seq = 3",
    "event_key_dangling": f"UPDATE {P}_eventkey SET seq = 999 {S}",
    "message_positions": f"UPDATE {P}_message SET position = 50 {S} AND position = 1",
    "message_without_event": f"UPDATE {P}_event SET message_position = NULL {S}",
    "event_without_message": f"DELETE FROM {P}_message {S} AND truncated_seq IS NOT NULL",
    "message_order": f"UPDATE {P}_message SET seq = 999 {S} AND position = 0",
    "truncation_without_event": f"UPDATE {P}_message SET truncated_seq = 999 {S} AND truncated_seq > 0",
    "several_running_runs": f"DROP INDEX helix_run_one_running; UPDATE {P}_run SET status = 'running' {S}",
    "run_end": f"UPDATE {P}_run SET end_sequence = 1 {S} AND status = 'running'",
    "run_without_event": f"UPDATE {P}_event SET type = 'other' {S} AND type = 'run_started'",
    "state_missing": f"DELETE FROM {P}_statesnapshot {S} AND number > 1",
    "checkpoint_state_missing": f"DELETE FROM {P}_statesnapshot {S}",
    "checkpoint_without_event": f"UPDATE {P}_checkpoint SET seq = seq + 500 {S}",
    "input_without_message": f"UPDATE {P}_input SET promoted_seq = 999 {S}",
    "ref_without_event": f"UPDATE {P}_subsessionref SET seq = 1 {S}",
    "ref_without_session": f"UPDATE {P}_subsessionref SET sub_session_id = 'ghost' {S}",
    "parent_cycle": f"UPDATE {P}_session SET parent_session_id = 'child' {S}",
    "ownership_dangling": f'UPDATE {P}_session SET client_tool_call_ownership = \'{{"c": "ghost"}}\' {S}',
    "state_digest": f"UPDATE {P}_session SET state_digest = 'other' {S}",
    "content_unreadable": f"UPDATE {P}_session SET output = ' \"1.lost.AAAA\"' {S}",
}
WARNINGS = {"archived_events_left", "run_without_event", "ref_without_session", "ownership_dangling"}


@pytest.fixture
def session(store: SessionStore) -> str:
    """A session with something in every table, and a child."""
    store.create_session("s", agent_type="writer", custom_state={"n": 0})
    for name in ("first", "second"):
        run = store.create_run("s", run_id=name)
        store.append_messages(
            "s", [{"role": "user", "content": name}, {"role": "assistant", "content": "ok"}]
        )
        state = store.load_state("s")
        store.save_state("s", replace(state, custom_state={"n": name}))
        if name == "first":
            store.update_run_status("s", run.run_id, "completed")
    store.reconcile_context("s", [Said("day", 1)])
    store.reconcile_context("s", [Said("day", 2)])
    store.compact("s", lambda request: "summary", CompactionPolicy(None, keep_recent=0))
    store.append_messages("s", [{"role": "user", "content": "forgotten"}])
    store.truncate_messages("s", 5)
    store.merge_custom_state("s", [{"op": "set", "path": ["m"], "value": 1}])
    store.stage_changes("s", "step", "call", [{"op": "set", "path": ["x"], "value": 1}])
    store.emit_event("s", "progress", {"n": 1}, idempotency_key="k")
    store.admit_input("s", "hello")
    said = PendingBatch("s", run.run_id, "turn", "m", 0, 1, ['{"text":"so far"}'])
    fragments.write(store.using, [said])
    store.create_session("child", agent_type="reader", parent_session_id="s")
    store.add_sub_session_refs("s", [{"sub_session_id": "child", "agent_type": "reader"}])
    return "s"


def break_rows(statements: str) -> None:
    """Change rows behind the store's back."""
    guarded = is_guarded(connection)
    if guarded:
        lower_guard(connection)
    with connection.cursor() as cursor:
        for sql in statements.split(";"):
            cursor.execute(sql)
    if guarded:
        raise_guard(connection)


def found(store: SessionStore, *, repair: bool = False) -> dict[str, Finding]:
    return {finding.code: finding for finding in store.examine_sessions(deep=True, repair=repair)}


@pytest.mark.django_db
@each("change", ["awaiting_children = NOT awaiting_children", "waiting_since = created_at"])
def test_whether_it_waits_is_put_right(session: str, store: SessionStore, change: str) -> None:
    break_rows(f"UPDATE {P}_session SET {change} {S}")
    assert found(store, repair=True)["awaiting_client"].repaired
    assert found(store) == {}


@pytest.mark.django_db
def test_every_cause_of_a_run_is_seen_and_put_right(store: SessionStore, settings: Any) -> None:
    """Rows of which a process of another release, or a restore, has not said when they want to run."""
    settings.HELIX_SESSIONS = {"RECOVERY": {"left": "leave"}}
    wrong, right = ["completed", "pending", "running", "two"], ["admitted", "left", "stopped"]
    for name in (*wrong, *right):
        store.create_session(name, agent_type="left" if name == "left" else "a")
    for name in ("pending", "completed", "stopped", "two"):
        store.admit_input(name, "hello")
    for name in ("running", "left"):
        store.create_run(name)
    store.admit_input("admitted", "hello", resume=False)
    store.admit_input("two", "hello", resume=False)
    store.update_status("completed", "completed")
    store.update_status("stopped", "failed")
    assert found(store) == {}
    Session.objects.update(runnable_at=None)
    findings = store.examine_sessions()
    assert {finding.code for finding in findings} == {"runnable_at"}
    assert sorted(str(finding.session_id) for finding in findings) == wrong
    assert all(finding.repaired for finding in store.examine_sessions(repair=True))
    assert sorted(one.session_id for one in store.list_runnable()) == wrong
    assert found(store) == {}


@pytest.mark.django_db
def test_the_migration_finds_the_same_causes(store: SessionStore) -> None:
    """What was there before sessions said when they want to run."""
    migration = import_module("helix_sessions.migrations.0017_runnable")
    for name in ("answered", "failed", "pending", "running", "waiting"):
        store.create_session(name, agent_type="a")
    for name in ("failed", "pending"):
        store.admit_input(name, "hello")
    store.update_status("failed", "failed")
    for name in ("answered", "running", "waiting"):
        run = store.create_run(name).run_id
        if name != "running":
            asked = {"tool_call_id": "c", "tool_name": "t", "arguments": {}}
            state = store.load_state(name)
            store.suspend(name, "client_tool", state=state, run_id=run, pending_calls=[asked])
    store.submit_tool_result("answered", "c", result=1)
    Session.objects.update(runnable_at=None)
    migration.note_runnable(apps, connection.schema_editor())
    assert sorted(one.session_id for one in store.list_runnable()) == ["answered", "pending", "running"]
    assert found(store) == {}


@pytest.mark.django_db
def test_a_child_that_was_deleted_leaves_a_tree_that_can_be_moved(store: SessionStore) -> None:
    """The root remembers whose a call was; that the owner is gone is no damage."""
    store.create_session("root", agent_type="a")
    store.create_session("child", agent_type="a", parent_session_id="root")
    run = store.create_run("child")
    asked = {"tool_call_id": "c", "tool_name": "t", "arguments": {}}
    state = store.load_state("child")
    store.suspend("child", "client_tool", state=state, run_id=run.run_id, pending_calls=[asked])
    store.delete_session("child")

    assert {finding.severity for finding in store.examine_sessions()} == {"warning"}
    file = io.StringIO()
    store.export_sessions(file)
    assert store.import_sessions(io.StringIO(file.getvalue()), on_collision="renew").sessions == 1


@pytest.mark.django_db
class TestDoctor:
    @pytest.mark.one_machine("a cluster does not let rows change their session")
    def test_every_check_is_tried_here(self) -> None:
        assert {check.code for check in doctor.checks(deep=True)} == REPAIRABLE.keys() | FOR_A_PERSON.keys()

    def test_finds_nothing_wrong_with_what_the_store_wrote(self, store: SessionStore, session: str) -> None:
        assert store.examine_sessions(deep=True) == []
        assert_invariants(session)

    @each("code", REPAIRABLE)
    def test_finds_and_repairs(self, store: SessionStore, session: str, code: str) -> None:
        if code == "orphan_archived_range":
            break_rows(
                f"INSERT INTO {P}_archivedrange (session_id, first_seq, last_seq, storage, name, created_at)"
                " VALUES ('s', 1, 2, 'x', 'y', '2020-01-01')"
            )
        if code == "orphan_note":
            store.put_notes("s", {"n": 1})
        if code == "orphan_feedback":
            store.append_messages("s", [{"role": "assistant", "content": "hi"}])
            store.give_feedback("s", store.get_message_count("s") - 1, "up")
        if code == "orphan_message_words":
            break_rows(f"INSERT INTO {P}_messagewords (session_id, seq, searchable) VALUES ('s', 1, 'x')")
        if code == "orphan_agent_record":
            SessionRuntime().execute("s", ChangeModel("m"))
        if code == "orphan_blob_ref":
            Blob.objects.create(sha256="b", name="n", size=1, media_type="text/plain")
            BlobRef.objects.create(session_id="s", blob_id="b")
        if code == "orphan_client_call":
            break_rows(
                f"INSERT INTO {P}_clientcall"
                " (session_id, tool_call_id, owner_session_id, requested_at, expired)"
                " VALUES ('s', 'c', 's', '2020-01-01', false)"
            )
        break_rows(REPAIRABLE[code])
        where = "child" if code in ("parent_missing", "root_mismatch", "runnable_at") else "s"
        finding = found(store)[code]
        assert finding.session_id == ("ghost" if code.startswith("orphan") else where)
        assert finding.repairable
        assert not finding.repaired
        assert finding.severity == ("warning" if code in WARNINGS else "error")
        version = Session.objects.get(session_id="s").version
        assert found(store, repair=True)[code].repaired
        assert code not in found(store)
        assert Session.objects.get(session_id="s").version == version

    @each("code", FOR_A_PERSON)
    def test_finds_and_leaves_to_a_person(self, store: SessionStore, session: str, code: str) -> None:
        break_rows(FOR_A_PERSON[code])
        finding = found(store)[code]
        assert finding.session_id in ("s", "child")
        assert finding.severity == ("warning" if code in WARNINGS else "error")
        assert not finding.repairable
        assert not found(store, repair=True)[code].repaired
        assert code in found(store)

    def test_repairs_make_the_session_whole_again(self, store: SessionStore, session: str) -> None:
        before = store.load_state("s")
        counts = ("head_seq_behind", "message_count", "run_pointer", "turn_count", "staged_count")
        break_rows(";".join(REPAIRABLE[code] for code in (*counts, "state_pinned", "awaiting_client")))
        store.examine_sessions(repair=True)
        assert store.load_state("s") == before
        assert_invariants("s")

    def test_a_count_is_not_repaired_when_messages_are_missing(
        self, store: SessionStore, session: str
    ) -> None:
        break_rows(f"DELETE FROM {P}_message {S} AND position = 1")
        assert not found(store, repair=True)["message_count"].repaired
        assert "message_positions" in found(store)

    def test_looks_at_chosen_sessions_only(self, store: SessionStore, session: str) -> None:
        break_rows(REPAIRABLE["staged_count"])
        assert store.examine_sessions(session_ids=["child"]) == []
        assert [f.code for f in store.examine_sessions(session_ids=["child", "s"])] == ["staged_count"]

    @each("size", [1, 2, 7])
    @pytest.mark.one_machine("a cluster does not let rows change their session")
    def test_pages_cover_every_session_and_what_lies_between(
        self, store: SessionStore, session: str, size: int
    ) -> None:
        for key in ("a", "b", "z", "\U0001f40d"):
            store.create_session(key, agent_type="writer")
        break_rows(f"UPDATE {P}_event SET session_id = 'between' WHERE session_id = 'b'")
        told: list[int] = []
        findings = store.examine_sessions(page_size=size, on_progress=told.append)
        assert {(f.code, f.session_id) for f in findings} == {
            ("orphan_event", "between"),
            ("head_seq_ahead", "b"),
        }
        assert told[-1] == 6
        store.examine_sessions(repair=True)  # else the database refuses what is left

    @pytest.mark.one_machine("a cluster takes no triggers")
    def test_says_when_the_log_is_not_guarded(self, store: SessionStore) -> None:
        lower_guard(connection)
        [finding] = store.examine_sessions()
        assert (finding.code, finding.severity, finding.session_id) == ("log_not_guarded", "warning", None)


@pytest.mark.django_db(transaction=True)
def test_of_a_cluster_no_guard_is_asked_for_by_a_connection_that_is_not_made_yet(
    store: SessionStore, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine != "postgresql":
        pytest.skip("about PostgreSQL")
    monkeypatch.setattr(dialect, "is_distributed", lambda connection: True)
    lower_guard(connection)
    dialect.choose_again()
    connection.close()
    try:
        assert store.examine_sessions() == []
    finally:
        monkeypatch.undo()
        dialect.choose_again()
        if dialect.dialect_of(connection).takes_triggers:
            raise_guard(connection)


@pytest.mark.django_db(transaction=True)
def test_writers_next_to_it_are_not_mistaken(store: SessionStore) -> None:
    for index in range(3):
        store.create_session(f"s{index}", agent_type="writer", custom_state={"n": 0})

    def work(index: int) -> list[Finding]:
        if index == 3:
            return [f for _ in range(12) for f in store.examine_sessions(deep=True)]
        key = f"s{index}"
        for number in range(25):
            run = store.create_run(key)
            store.stage_changes(key, "step", "call", [{"op": "set", "path": ["n"], "value": number}])
            state = store.load_state(key)
            store.save_state_and_promote_staging(key, state, [{"role": "user", "content": number}])
            store.update_run_status(key, run.run_id, "completed")
        return []

    assert run_threads(4, work) == [[]] * 4


@pytest.mark.django_db(transaction=True)
def test_a_session_that_is_deleted_while_it_is_looked_at_is_no_finding(store: SessionStore) -> None:
    store.create_session("s", agent_type="writer", custom_state={"n": 0})
    deleted: list[object] = []

    def delete_before_the_state_is_read(execute: Any, sql: str, *rest: Any) -> Any:
        if '"number" BETWEEN %s AND %s' in sql:
            deleted.extend(run_threads(1, lambda _: store.delete_session("s")))
        return execute(sql, *rest)

    with connection.execute_wrapper(delete_before_the_state_is_read):
        assert store.examine_sessions(deep=True) == []
    assert deleted == [None]


@pytest.mark.django_db(transaction=True)
def test_a_tree_that_is_deleted_while_it_is_looked_at_is_no_finding(store: SessionStore) -> None:
    for check in range(3):  # of references, of parents, of roots
        store.create_session("s", agent_type="writer")
        store.create_session("child", agent_type="reader", parent_session_id="s")
        store.add_sub_session_refs("s", [{"sub_session_id": "child", "agent_type": "reader"}])
        outcomes: list[object] = []

        def delete_before_the_named_are_read(
            execute: Any, sql: str, *rest: Any, check: int = check, outcomes: list[object] = outcomes
        ) -> Any:
            if '"helix_sessions_session"."root_session_id"' in sql:
                delete = len(outcomes) == check
                outcomes.extend(run_threads(1, lambda _: store.delete_session("s") if delete else "kept"))
            return execute(sql, *rest)

        with connection.execute_wrapper(delete_before_the_named_are_read):
            assert store.examine_sessions() == [], check
        assert outcomes.index(None) == check
