"""What the database itself refuses, and what it is spared."""

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import IntegrityError, connection, models, transaction
from django.utils import timezone

from helix_sessions.exceptions import NotMigrated
from helix_sessions.models import (
    AgentRecord,
    ArchivedRange,
    Blob,
    BlobRef,
    Checkpoint,
    ClientCall,
    Event,
    EventKey,
    Feedback,
    FragmentBatch,
    Input,
    Message,
    MessageWords,
    Run,
    Session,
    StagedChange,
    StateSnapshot,
    SubSessionRef,
)
from helix_sessions.models.guard import is_guarded
from helix_sessions.store import SessionStore
from helix_sessions.types import CompactionPolicy
from tests.contract.calls import ASSISTANT, REF, USER, WRITES
from tests.contract.sources import Said
from tests.invariants import dump
from tests.rows import each

pytestmark = pytest.mark.django_db

MODELS = list(apps.get_app_config("helix_sessions").get_models())
CHILDREN = [
    model for model in MODELS if any(f.name == "session" and f.is_relation for f in model._meta.fields)
]
WITH_A_KEY = [model for model in CHILDREN if model is not FragmentBatch]


@pytest.fixture
def session(store: SessionStore) -> str:
    """A session with a row in every table."""
    store.create_session("s", agent_type="writer", custom_state={"a": 1})
    store.append_messages("s", [USER, ASSISTANT])
    store.create_run("s", run_id="r")
    store.create_checkpoint("s")
    store.stage_changes("s", "step", "call", WRITES)
    store.add_sub_session_refs("s", [REF])
    store.emit_event("s", "note", idempotency_key="k")
    store.admit_input("s", "hello", input_id="i")
    store.put_notes("s", {"n": 1})
    store.reconcile_context("s", [Said("day", 1)])
    store.reconcile_context("s", [Said("day", 2)])
    store.compact("s", lambda request: "summary", CompactionPolicy(None, keep_recent=0))
    ClientCall.objects.create(
        session_id="s", tool_call_id="call", owner_session_id="s", requested_at=timezone.now()
    )
    ArchivedRange.objects.create(
        session_id="s", first_seq=1, last_seq=2, storage="x", name="y", created_at=timezone.now()
    )
    AgentRecord.objects.create(session_id="s", definition={}, system_prompt="")
    Blob.objects.create(sha256="b", name="n", size=1, media_type="text/plain")
    BlobRef.objects.create(session_id="s", blob_id="b")
    MessageWords.objects.create(session_id="s", seq=1, searchable="x")
    Feedback.objects.create(session_id="s", message_seq=1, position=1, rating="up", created_at=timezone.now())
    return "s"


def refused(write: Callable[[], Any]) -> None:
    def attempt() -> None:
        with transaction.atomic():
            write()
            connection.check_constraints()  # those that the database puts off until the commit

    with pytest.raises(IntegrityError):
        attempt()


def test_every_table_of_a_session_is_known_here() -> None:
    assert set(MODELS) >= {Session, *CHILDREN}
    assert {
        Checkpoint,
        ClientCall,
        Event,
        EventKey,
        Input,
        Message,
        Run,
        StagedChange,
        StateSnapshot,
        SubSessionRef,
    } <= set(CHILDREN)


class TestChecks:
    @each(
        ("model", "column", "value"),
        [
            (Session, "status", "sleeping"),
            (Session, "status", ""),
            (Session, "version", 0),
            (Session, "head_seq", -1),
            (Session, "first_seq", 0),
            (Session, "message_count", -1),
            (Session, "step_count", -1),
            (Session, "resume_count", -1),
            (Session, "turn_count", -1),
            (Session, "staged_count", -1),
            (Session, "pending_inputs", -1),
            (Session, "attempts", -1),
            (Session, "retry_attempt", -1),
            (Session, "fence", -1),
            (Input, "delivery", "later"),
            (Input, "admitted_seq", -1),
            (Session, "state_number", -1),
            (Run, "status", "sleeping"),
            (Run, "turn", -1),
            (Run, "step_count", -1),
            (Run, "start_sequence", -1),
            (Checkpoint, "status", "running"),
            (Checkpoint, "step_count", -1),
            (Checkpoint, "message_count", -1),
            (StagedChange, "place", -1),
            (StateSnapshot, "base", 0),
            (StateSnapshot, "base", 2),
            (SubSessionRef, "status", "running"),
            (SubSessionRef, "mode", "standard"),
            (SubSessionRef, "location", "moon"),
            (Message, "role", "robot"),
            (Message, "position", -1),
            (Event, "seq", 0),
        ],
    )
    def test_a_value_that_cannot_be(
        self, session: str, model: type[models.Model], column: str, value: Any
    ) -> None:
        if model in (Event, Message):  # their rows do not change at all, so it is tried with a new one
            row = model._default_manager.filter(session_id=session).order_by("seq").last()
            assert row is not None
            values = {field.attname: getattr(row, field.attname) for field in model._meta.fields}
            refused(lambda: model._default_manager.create(**{**values, "seq": 99, column: value}))
        else:
            refused(lambda: model._default_manager.update(**{column: value}))

    def test_one_running_run(self, store: SessionStore, session: str) -> None:
        store.update_run_status(session, "r", "completed")
        store.create_run(session, run_id="second")
        refused(lambda: Run.objects.update(status="running"))
        store.update_run_status(session, "second", "completed")
        assert Run.objects.filter(run_id="r").update(status="running") == 1

    @each("model", WITH_A_KEY, ids=lambda model: model.__name__)
    def test_no_row_without_its_session(self, session: str, model: type[models.Model]) -> None:
        row = model._default_manager.filter(session_id=session).first()
        assert row is not None
        values = {field.attname: getattr(row, field.attname) for field in model._meta.fields}
        refused(lambda: model._default_manager.create(**{**values, "session_id": "nobody's"}))

    @each(
        "model",
        [
            ArchivedRange,
            Checkpoint,
            ClientCall,
            Event,
            EventKey,
            Run,
            StagedChange,
            StateSnapshot,
            SubSessionRef,
        ],
    )
    def test_no_row_twice(self, session: str, model: type[models.Model]) -> None:
        row = model._default_manager.filter(session_id=session).first()
        assert row is not None
        values = {field.attname: getattr(row, field.attname) for field in model._meta.fields}
        refused(lambda: model._default_manager.create(**values))


class TestGuard:
    @each(
        "sql",
        [
            "UPDATE helix_sessions_event SET type = 'other'",
            "UPDATE helix_sessions_event SET data = '1' WHERE seq = 2",
            "UPDATE helix_sessions_event SET session_id = 'other'",
            "UPDATE helix_sessions_event SET created_at = created_at",
            "DELETE FROM helix_sessions_event",
            "DELETE FROM helix_sessions_event WHERE session_id = 's' AND seq = 1",
            "UPDATE helix_sessions_message SET content = '{}'",
            "UPDATE helix_sessions_message SET role = 'system' WHERE position = 0",
            "UPDATE helix_sessions_message SET position = position + 10",
            "DELETE FROM helix_sessions_message",
            "DELETE FROM helix_sessions_message WHERE position = 1",
        ],
    )
    def test_the_log_of_a_living_session_cannot_be_changed(self, session: str, sql: str) -> None:
        before = dump()
        with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql)
        assert dump() == before

    def test_nor_with_the_orm(self, session: str) -> None:
        before = dump()
        events, messages = Event.objects.filter(seq=2), Message.objects.filter(position=0)
        event, message = events.get(), messages.get()
        event.type = "other"
        message.content = {"role": "user", "content": "other"}
        for write in (
            lambda: events.update(type="other"),
            lambda: events.delete(),
            lambda: event.save(),
            lambda: event.delete(),
            lambda: Event.objects.bulk_update([event], ["type"]),
            lambda: messages.update(content={}),
            lambda: messages.delete(),
            lambda: message.save(),
            lambda: message.delete(),
        ):
            refused(write)
        assert dump() == before

    def test_a_statement_that_touches_no_row_is_harmless(self, session: str) -> None:
        assert Event.objects.filter(seq=1000).update(type="other") == 0
        assert Message.objects.filter(position=1000).delete()[0] == 0

    def test_a_session_cannot_be_taken_from_under_its_log(self, session: str) -> None:
        refused(lambda: Session.objects.filter(session_id=session).delete())

    def test_deleting_the_session_works(self, store: SessionStore, session: str) -> None:
        store.create_session("other", agent_type="writer")
        store.append_messages("other", [USER])
        store.delete_session(session)
        assert Event.objects.values_list("session_id", flat=True).distinct().get() == "other"
        refused(lambda: Event.objects.all().delete())

    @pytest.mark.django_db(transaction=True)
    def test_flush_works_and_leaves_the_guard(self, session: str) -> None:
        call_command("flush", interactive=False, verbosity=0)
        assert not any(dump().values())
        assert is_guarded(connection)

    @pytest.mark.django_db(transaction=True)
    def test_truncate_works(self, session: str, engine: str) -> None:
        if engine != "postgresql":
            pytest.skip("SQLite has no TRUNCATE")
        tables = ", ".join(model._meta.db_table for model in MODELS)
        with connection.cursor() as cursor:
            cursor.execute(f"TRUNCATE {tables}")
        assert not any(dump().values())

    def test_it_can_be_switched(self, session: str) -> None:
        def told(*arguments: str) -> str:
            output = StringIO()
            call_command("guard_event_log", *arguments, stdout=output)
            return output.getvalue().strip()

        assert told() == "The event log is guarded."
        assert told("--off") == "The event log is not guarded."
        assert Event.objects.filter(seq=2).update(turn_id="t") == 1
        assert told("--on") == told("--on") == "The event log is guarded."
        refused(lambda: Event.objects.filter(seq=2).update(turn_id="t"))

    def test_switching_it_off_twice_is_no_error(self, session: str) -> None:
        call_command("guard_event_log", "--off", stdout=StringIO())
        call_command("guard_event_log", "--off", stdout=StringIO())
        assert not is_guarded(connection)


class TestKeys:
    @each("model", CHILDREN, ids=lambda model: model.__name__)
    def test_keys_begin_with_the_session(self, model: type[models.Model]) -> None:
        keys = [columns for _, columns, unique, _ in indexes(model) if unique]
        assert keys
        assert all(columns[0] == "session_id" for columns in keys)

    @each("model", MODELS, ids=lambda model: model.__name__)
    def test_no_index_is_the_beginning_of_another(self, model: type[models.Model]) -> None:
        """What begins with the columns of a smaller index serves in its stead."""
        found = indexes(model)
        needless = [
            (name, other)
            for name, columns, unique, condition in found
            for other, longer, _, other_condition in found
            if name != other
            and condition == other_condition
            and longer[: len(columns)] == columns
            and (not unique or longer == columns)
        ]
        assert needless == []

    def test_there_is_no_index_for_like(self, engine: str) -> None:
        if engine != "postgresql":
            pytest.skip("only PostgreSQL has them")
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT indexname FROM pg_indexes WHERE tablename LIKE 'helix%%'"
                " AND indexdef LIKE '%%pattern_ops%%'"
            )
            assert cursor.fetchall() == []


def test_the_migrations_say_what_the_models_say() -> None:
    call_command("makemigrations", "helix_sessions", check=True, dry_run=True, verbosity=0)


def test_the_migrations_can_be_taken_back(engine: str) -> None:
    """Each has a way back, so a deployment has one too."""
    from django.db.migrations.loader import MigrationLoader

    loader = MigrationLoader(connection)
    for (app, _), migration in loader.disk_migrations.items():
        if app == "helix_sessions":
            assert all(operation.reversible for operation in migration.operations), migration.name


def test_a_read_of_a_database_without_a_table_asks_for_migrate(store: SessionStore, session: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE helix_sessions_run RENAME TO gone")
    try:
        with pytest.raises(NotMigrated), transaction.atomic():
            store.list_runs(session)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE gone RENAME TO helix_sessions_run")


def indexes(model: type[models.Model]) -> list[tuple[str, list[str], bool, str]]:
    """Every index of a table, those of keys included: name, columns, whether unique, condition."""
    table = model._meta.db_table
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                """
                SELECT c.relname,
                       ARRAY(SELECT pg_get_indexdef(i.indexrelid, n, true)
                                    || CASE WHEN i.indoption[n - 1] & 1 = 1 THEN ' DESC' ELSE '' END
                             FROM generate_series(1, i.indnkeyatts) n),
                       i.indisunique,
                       COALESCE(pg_get_expr(i.indpred, i.indrelid), '')
                FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
                WHERE i.indrelid = %s::regclass
                """,
                [table],
            )
            return [(name, list(columns), unique, condition) for name, columns, unique, condition in cursor]
        cursor.execute(
            "SELECT l.name, l.\"unique\", COALESCE(m.sql, '') FROM pragma_index_list(%s) l"
            " LEFT JOIN sqlite_master m ON m.type = 'index' AND m.name = l.name",
            [table],
        )
        found = []
        for name, unique, sql in cursor.fetchall():
            cursor.execute(
                'SELECT name, "desc" FROM pragma_index_xinfo(%s) WHERE key = 1 ORDER BY seqno', [name]
            )
            columns = [f"{column} DESC" if descending else column for column, descending in cursor.fetchall()]
            found.append((name, columns, bool(unique), sql.partition(" WHERE ")[2]))
        return found
