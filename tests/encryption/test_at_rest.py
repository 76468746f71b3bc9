"""What somebody with a copy of the database sees: no word of what was said, and no way to move it."""

import io
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection, transaction

from helix_sessions.exceptions import ContentUnreadable
from helix_sessions.models import Event, Message, Session
from helix_sessions.models.guard import lower_guard, raise_guard
from helix_sessions.store import SessionStore
from helix_sessions.store.sessions import branch
from helix_sessions.types import Answer, PendingCall
from tests.invariants import assert_healthy
from tests.postgres import find_binaries

CANARY = "canary-4f1c"
PLACES = (
    "state message tool input staged event output error result checkpoint sub failure waiting"
    " pending argument context prompt note"
)


def said(place: str) -> str:
    return f"{CANARY} {place} zażółć"


def fill(store: SessionStore, session_id: str = "s") -> str:
    """A session with content in every column that takes any; only ids, tags and metadata are harmless."""
    store.create_session(
        session_id,
        agent_type="writer",
        custom_state={"secret": said("state")},
        tags=["shown"],
        metadata={"tier": "gold"},
        tracing_context={"trace": said("trace")},
    )
    turn = store.begin_turn(session_id, message=said("message"))
    store.admit_input(session_id, said("prompt"), input_id=f"{session_id}-input")
    for _ in range(2):  # put, then replaced
        store.put_notes(session_id, {"note": {"text": said("note")}})
    call = {"id": "c", "name": said("tool"), "input": {"x": said("input")}, "type": "tool_use"}
    store.append_messages(session_id, [{"role": "assistant", "content": [call]}])
    store.stage_changes(session_id, "step", "c", [{"op": "set", "path": ["k"], "value": said("staged")}])
    store.emit_event(session_id, "llm_responded", {"text": said("event")}, idempotency_key="k")
    store.set_interrupt_flag(session_id, said("interrupt"))
    state = store.load_state(session_id)
    store.save_state_and_promote_staging(
        session_id,
        replace(state, output=said("output"), error=said("error"), interrupt_context={"why": said("why")}),
        [{"role": "tool", "tool_call_id": "c", "content": said("result")}],
        {"checkpoint_id": "cp", "metadata": {"note": said("checkpoint")}},
    )
    store.add_sub_session_refs(session_id, [{"sub_session_id": f"{session_id}-sub", "agent_type": "a"}])
    store.update_sub_session_ref(session_id, f"{session_id}-sub", status="completed", result=said("sub"))
    store.suspend(
        session_id,
        "client_tool",
        state=store.load_state(session_id),
        run_id=turn.run.run_id,
        pending_calls=[
            PendingCall(tool_call_id="p", tool_name=said("pending"), arguments={"a": said("argument")})
        ],
        suspension_context={"c": said("context")},
    )
    store.update_status(session_id, "failed", error=said("failure"))
    store.stage_changes(session_id, "later", "d", [{"op": "set", "path": ["k"], "value": said("waiting")}])
    return session_id


def everything_stored(folder: Path) -> bytes:
    """The whole database as its files or its dump have it."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        path = Path(connection.settings_dict["NAME"])
        # By another process: one that uses the database loses its locks when it closes these files, and then
        # the next that comes truncates the shared memory under it.
        command = ["cat", *path.parent.glob(f"{path.name}*")]
        return subprocess.run(command, check=True, capture_output=True).stdout
    binaries = find_binaries()
    assert binaries is not None
    settings = connection.settings_dict
    address = (
        f"host={settings['HOST']} port={settings['PORT']} dbname={settings['NAME']} user={settings['USER']}"
    )
    target = folder / "dump.sql"
    subprocess.run(
        [binaries / "pg_dump", "--file", target, address],
        env={"PGPASSWORD": settings["PASSWORD"] or ""},
        check=True,
        capture_output=True,
    )
    return target.read_bytes()


@pytest.mark.django_db(transaction=True)
class TestADump:
    def test_holds_no_plain_text(self, store, encrypted, tmp_path):
        user = get_user_model().objects.create_user("u")
        fill(store)
        store.clone_session("s", "branch")
        store.answer_once(user, "key", "0" * 32, lambda: Answer(status=201, body=said("answer")))
        assert_healthy("s", "branch")
        stored = everything_stored(tmp_path)
        assert b"shown" in stored
        assert CANARY.encode() not in stored
        assert CANARY.encode().hex().encode() not in stored

    def test_would_hold_it_without_encryption(self, store, encrypted, tmp_path):
        encrypted()
        fill(store)
        stored = everything_stored(tmp_path).decode(errors="replace")
        for place in PLACES.split():
            assert f"{CANARY} {place}" in stored, place

    def test_does_not_confirm_a_guess(self, store, tmp_path):
        """A digest of a state with few possible values would give it away."""
        from helix_sessions.content import documents

        store.create_session("s", agent_type="a", custom_state={"diagnosis": "flu"})
        guess = documents.digest('{"diagnosis":"flu"}')
        assert guess.encode() not in everything_stored(tmp_path)


@pytest.mark.django_db
class TestReadingBack:
    def test_all_of_it(self, store):
        fill(store)
        state = store.load_state("s")
        assert state.custom_state == {"secret": said("state"), "k": said("staged")}
        assert state.error == said("failure")
        assert state.output == said("output")
        assert store.get_messages("s").messages[0]["content"] == said("message")
        assert store.get_checkpoint("s", "cp").metadata == {"note": said("checkpoint")}
        assert store.get_staged_changes("s")[0].writes[0]["value"] == said("waiting")
        assert store.get_notes("s")[0].document == {"text": said("note")}
        assert store.list_inputs("s", pending=False)[0].prompt == said("prompt")
        assert store.get_sub_session_refs("s")[0].result == said("sub")
        assert [e.data for e in store.get_events("s", types=["llm_responded"])] == [{"text": said("event")}]
        assert_healthy("s")

    def test_filters_and_counts(self, store):
        fill(store)
        found = store.list_sessions(tag="shown", status="failed", agent_type="writer")
        assert [item.session_id for item in found.items] == ["s"]
        assert found.items[0].message_count == store.get_message_count("s") == 3
        assert list(Session.objects.filter(metadata__has_items={"tier": "gold"})) != []
        assert Event.objects.filter(session_id="s", type="llm_responded").count() == 1

    def test_what_was_stored_before_encryption(self, store, encrypted):
        encrypted()
        fill(store, "before")
        encrypted("old", active="old")
        assert store.load_state("before").error == said("failure")
        store.append_messages("before", [{"role": "user", "content": "now sealed"}])
        assert len(store.get_messages("before").messages) == 4
        assert len(store.clone_session("before", "branch").custom_state) == 2
        assert store.get_messages("branch").messages == store.get_messages("before").messages

    def test_a_document_that_looks_sealed(self, store):
        mean = ' "1.old.AAAA"'
        store.create_session("s", agent_type="a", custom_state={"x": mean})
        store.update_status("s", "completed", output=mean)
        assert store.load_state("s").output == mean

    def test_a_repeated_commit_is_known(self, store, encrypted, session):
        state = store.load_state(session)
        first = store.save_state_and_promote_staging(session, state, (), {"checkpoint_id": "c"})
        encrypted("old", "new", active="new")
        again = store.save_state_and_promote_staging(session, state, (), {"checkpoint_id": "c"})
        assert again == replace(first, replayed=True)

    def test_an_export_is_plain_and_comes_back_sealed(self, store, encrypted):
        fill(store)
        before = store.load_state("s")
        file = io.StringIO()
        store.export_sessions(file)
        assert said("message") in file.getvalue()
        store.delete_session("s")
        encrypted("new", active="new")
        store.import_sessions(io.StringIO(file.getvalue()))
        assert store.load_state("s") == before
        assert _raw(Message, "content").startswith(' "1.new.')
        assert_healthy("s")


def _raw(model: Any, column: str, **where: Any) -> str:
    cast = "::text" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {column}{cast} FROM {model._meta.db_table} ORDER BY 1 LIMIT 1")
        return str(cursor.fetchone()[0])


def _behind_our_back(sql: str, *params: Any) -> None:
    """What somebody does who can write to the database, guard or not."""
    lower_guard(connection)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql, params)
        assert cursor.rowcount > 0
    raise_guard(connection)


@pytest.mark.django_db(transaction=True)
class TestSwappedRows:
    @pytest.fixture(autouse=True)
    def two_sessions(self, store):
        for key in ("mine", "yours"):
            store.create_session(key, agent_type="a", custom_state={"of": key})
            store.append_messages(key, [{"role": "user", "content": f"{key} {n}"} for n in range(2)])
            store.emit_event(key, "noted", {"of": key})
            store.update_status(key, "active", error=f"error of {key}")

    def test_a_message_of_another_session(self, store):
        _behind_our_back(
            "UPDATE helix_sessions_message SET content = (SELECT content FROM helix_sessions_message"
            " WHERE session_id = 'yours' AND position = 0) WHERE session_id = 'mine' AND position = 0"
        )
        with pytest.raises(ContentUnreadable):
            store.get_messages("mine")
        with pytest.raises(ContentUnreadable):
            store.get_events("mine")
        assert store.get_messages("yours").total == 2

    def test_two_messages_of_one_session(self, store):
        _behind_our_back(
            "UPDATE helix_sessions_message SET content = (SELECT content FROM helix_sessions_message"
            " WHERE session_id = 'mine' AND position = 0) WHERE session_id = 'mine' AND position = 1"
        )
        with pytest.raises(ContentUnreadable):
            store.get_messages("mine")

    def test_a_message_moved_to_another_position(self, store):
        _behind_our_back(
            "UPDATE helix_sessions_message SET position = 7 WHERE session_id = 'mine' AND position = 1"
        )
        _behind_our_back("UPDATE helix_sessions_session SET message_count = 8 WHERE session_id = 'mine'")
        with pytest.raises(ContentUnreadable):
            store.get_messages("mine")

    def test_the_state(self, store):
        _behind_our_back(
            "UPDATE helix_sessions_statesnapshot SET document = (SELECT document FROM"
            " helix_sessions_statesnapshot WHERE session_id = 'yours') WHERE session_id = 'mine'"
        )
        with pytest.raises(ContentUnreadable):
            store.load_state("mine")
        found = store.examine_sessions(deep=True)
        assert {finding.code for finding in found} >= {"content_unreadable"}

    def test_an_event(self, store):
        _behind_our_back(
            "UPDATE helix_sessions_event SET data = (SELECT data FROM helix_sessions_event"
            " WHERE session_id = 'yours' AND type = 'noted') WHERE session_id = 'mine' AND type = 'noted'"
        )
        with pytest.raises(ContentUnreadable):
            store.get_events("mine", types=["noted"])
        with pytest.raises(ContentUnreadable):
            next(iter(store.subscribe("mine", after=1)))

    def test_a_column_of_the_session(self, store):
        _behind_our_back(
            "UPDATE helix_sessions_session SET error = (SELECT error FROM helix_sessions_session"
            " WHERE session_id = 'yours') WHERE session_id = 'mine'"
        )
        with pytest.raises(ContentUnreadable):
            store.load_state("mine")
        store.update_status("mine", "failed", error="a new one")
        assert store.load_state("mine").error == "a new one"


@pytest.mark.django_db
class TestALostKey:
    @pytest.fixture(autouse=True)
    def lost(self, store, encrypted):
        fill(store)
        encrypted("new", active="new")

    def test_content_says_which_key(self, store):
        for read in (
            store.load_state,
            store.get_messages,
            store.get_events,
            store.get_latest_checkpoint,
            store.get_staged_changes,
            store.get_sub_session_refs,
        ):
            with pytest.raises(ContentUnreadable, match="'old'") as caught:
                read("s")
            assert caught.value.key_id == "old"
            assert CANARY not in str(caught.value)

    def test_the_rest_is_usable(self, store):
        [summary] = store.list_sessions(status="failed").items
        assert summary.message_count == store.get_message_count("s") == 3
        assert store.get_metadata("s")[0] == {"tier": "gold"}
        store.patch_metadata("s", {"tier": "lost"})
        store.set_expiry("s", None)
        assert store.increment_step_count("s") == 1
        assert store.compare_and_set_status("s", ["failed"], "completed")
        store.emit_event("s", "noted", {"new": True})
        assert store.get_events("s", types=["noted"])[0].data == {"new": True}
        store.update_status("s", "failed", error="readable")
        store.delete_session("s")
        assert not store.session_exists("s")

    def test_other_sessions_are_not_affected(self, store):
        fill(store, "t")
        assert store.load_state("t").output == said("output")
        assert_healthy("t")

    def test_the_doctor_says_so_and_repairs_nothing(self, store):
        found = [f for f in store.examine_sessions(deep=True, repair=True) if f.severity == "error"]
        assert {finding.code for finding in found} <= {"content_unreadable", "state_digest"}
        assert all(not finding.repaired for finding in found)

    def test_the_key_returned_everything_is_there(self, store, encrypted):
        with pytest.raises(ContentUnreadable):
            store.load_state("s")
        encrypted("old", active="old")
        assert store.load_state("s").output == said("output")
        assert_healthy("s")


@pytest.mark.django_db
def test_a_branch_has_every_message_however_many_are_copied_at_once(
    store: SessionStore, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branch, "_COPIED_AT_ONCE", 2)
    store.append_messages(session, [{"role": "user", "content": n} for n in range(7)])
    store.clone_session(session, "branch")

    assert store.get_messages("branch") == store.get_messages(session)
