"""Export and import: everything of a session, whole trees, exactly; ids kept, or renewed everywhere."""

import io
import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models.expressions import RawSQL
from django.utils import timezone

from helix_sessions.exceptions import InvalidExport, NotConfigured, SessionExists, SessionNotFound
from helix_sessions.models import ArchivedRange, Session, SpendEntry, SpendTotal
from helix_sessions.store import SessionStore
from helix_sessions.store.maintenance import imports
from helix_sessions.store.transcript import archive_files
from helix_sessions.types import TransferSummary
from project.sample import load
from tests.contract.suspended import asked, calling
from tests.invariants import assert_healthy, dump
from tests.maintenance.test_archives import WEIRD, talk
from tests.parallel import run_threads
from tests.rows import each


def exported(store: SessionStore, **chosen: Any) -> str:
    file = io.StringIO()
    store.export_sessions(file, **chosen)
    return file.getvalue()


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.split("\n") if line]


def wipe() -> None:
    store = SessionStore()
    for key in Session.objects.values_list("session_id", flat=True):
        store.delete_session(key)
    for model in (SpendEntry, SpendTotal):  # what was spent outlives sessions
        model.objects.all().delete()
    assert not any(dump().values())


def dumped() -> dict[str, list[Any]]:
    """All but what was spent, which comes back added up; see `tests/limits`."""
    return {name: rows for name, rows in dump().items() if "_spend" not in name}


def imported(store: SessionStore, text: str, **options: Any) -> TransferSummary:
    return store.import_sessions(io.StringIO(text), **options)


@pytest.fixture
def tree(store: SessionStore) -> str:
    """A root with a child, a grandchild, and a session that only a reference makes part of the tree."""
    owner = get_user_model().objects.create_user("alice")
    store.create_session(
        "root",
        agent_type="boss",
        custom_state=WEIRD,
        owner=owner,
        user_id="u-1",
        tags=["a", "ü"],
        metadata={"k": [1, {"z": None}]},
        expires_at=timezone.now() + timedelta(days=1),
        workspace_ref={"provider_id": "x"},
    )
    store.create_session("child", agent_type="worker", parent_session_id="root")
    store.create_session("grandchild", agent_type="worker", parent_session_id="child")
    store.create_session("adopted", agent_type="worker")
    store.add_sub_session_refs(
        "root",
        [
            {"sub_session_id": "child", "agent_type": "worker", "result": WEIRD},
            {"sub_session_id": "adopted", "agent_type": "worker"},
            {"sub_session_id": "elsewhere", "agent_type": "worker", "location": "remote"},
        ],
    )
    state = store.load_state("root")
    store.save_state(
        "root",
        replace(
            state,
            client_tool_call_ownership={"call": "grandchild"},
            suspended_awaiting_children={"t": {"sub_session_id": "child"}},
            output=None,
            custom_state={"child": "child"},
        ),
    )
    store.stage_changes("child", "step", "call", [{"op": "set", "path": ["x"], "value": WEIRD}])
    store.emit_event("child", "progress", WEIRD, idempotency_key="k")
    store.append_messages("grandchild", [{"role": "user", "content": "child"}, {"role": "tool", "c": WEIRD}])
    store.truncate_messages("grandchild", 1)
    store.create_run("grandchild", metadata=WEIRD)
    return "root"


@pytest.mark.django_db
class TestRoundTrip:
    def test_the_sample(self, store: SessionStore) -> None:
        load(store)
        text, rows = exported(store), dumped()
        wipe()
        summary = imported(store, text)
        assert summary.sessions == Session.objects.count() > 5
        assert summary.records == sum(map(len, rows.values()))
        assert dumped() == rows
        assert exported(store) == text

    def test_a_tree(self, store: SessionStore, tree: str) -> None:
        text, rows = exported(store), dump()
        before = {key: store.load_state(key) for key in ("root", "child", "grandchild", "adopted")}
        wipe()
        assert imported(store, text) == TransferSummary(trees=1, sessions=4, records=len(records(text)) - 4)
        assert dump() == rows
        assert exported(store) == text
        assert {key: store.load_state(key) for key in before} == before
        store.append_messages("root", [{"role": "user", "content": "it goes on"}])
        assert_healthy(*before)

    def test_archives_travel_along(self, store: SessionStore, archive_storage: Path) -> None:
        log = talk(store, "s", 12)
        store.archive_events("s", keep=3)
        text = exported(store)
        first = [
            line for note in archive_files.files_of("default", "s") for line in archive_files.read_file(note)
        ]
        wipe()
        imported(store, text)
        notes = archive_files.files_of("default", "s")
        assert [line for note in notes for line in archive_files.read_file(note)] == first
        assert store.get_events("s") == log[-3:]
        assert exported(store) == text
        assert_healthy("s")

    def test_an_export_that_does_not_say_who_wants_to_run(self, store: SessionStore) -> None:
        """Those of releases before 0017 lack these columns; the causes are there."""
        for name in ("answered", "idle", "paused", "pending", "running", "waiting"):
            store.create_session(name, agent_type="a")
        for name in ("paused", "pending"):
            store.admit_input(name, "hello")
        store.update_status("paused", "paused")
        for name in ("answered", "running", "waiting"):
            run = store.create_run(name).run_id
            if name != "running":
                store.append_messages(name, [calling("c")])
                state = store.load_state(name)
                store.suspend(name, "client_tool", state=state, run_id=run, pending_calls=[asked("c")])
        store.submit_tool_result("answered", "c", result=1)
        text = re.sub(
            r',"(runnable_at|run_requested(_at)?|last_agent_activity_at)":[^,}]*', "", exported(store)
        )
        wipe()
        imported(store, text)
        due = [one.session_id for one in store.list_runnable()]
        assert sorted(due) == ["answered", "pending", "running"]
        assert store.examine_sessions() == []

    def test_a_long_session_goes_in_pages(self, store: SessionStore) -> None:
        store.create_session("s", agent_type="writer")
        store.append_messages("s", [{"role": "user", "content": n} for n in range(1234)])
        text, rows = exported(store), dump()
        wipe()
        imported(store, text)
        assert dump() == rows
        assert exported(store) == text

    def test_a_document_written_with_line_breaks(self, store: SessionStore) -> None:
        store.create_session("s", agent_type="writer")
        Session.objects.filter(session_id="s").update(metadata=RawSQL("%s", ['{\n "a": 1.0,\n "b": "\\n"}']))
        text = exported(store)
        wipe()
        imported(store, text)
        assert store.load_state("s").metadata == {"a": 1.0, "b": "\n"}
        assert exported(store) == text

    def test_nothing(self, store: SessionStore) -> None:
        text = exported(store)
        assert [sorted(record) for record in records(text)] == [["format", "layout"], ["kind", "trees"]]
        assert imported(store, text) == TransferSummary()


@pytest.mark.django_db
class TestChoice:
    @each("chosen", ["root", "child", "grandchild", "adopted"])
    def test_a_session_comes_with_its_whole_tree(self, store: SessionStore, tree: str, chosen: str) -> None:
        store.create_session("other", agent_type="worker")
        found = records(exported(store, session_ids=[chosen]))
        assert found[1] == {"kind": "tree", "sessions": ["root", "adopted", "child", "grandchild"]}
        assert not [record for record in found if record.get("session_id") == "other"]

    def test_by_owner_user_and_agent_type(self, store: SessionStore, tree: str) -> None:
        store.create_session("other", agent_type="loner", user_id="u-2")
        owner = get_user_model().objects.get()
        for chosen in ({"owner": owner}, {"user_id": "u-1"}, {"agent_type": "worker"}):
            assert '"other"' not in exported(store, **chosen)
            assert '"grandchild"' in exported(store, **chosen)
        assert '"grandchild"' not in exported(store, user_id="u-2")

    def test_an_unknown_session(self, store: SessionStore) -> None:
        with pytest.raises(SessionNotFound):
            exported(store, session_ids=["unknown"])

    def test_a_circle_of_references_is_exported_once(self, store: SessionStore) -> None:
        for key in "abc":
            store.create_session(key, agent_type="x")
        for key, other in ("ab", "bc", "ca"):
            store.add_sub_session_refs(key, [{"sub_session_id": other, "agent_type": "x"}])
        for text in (exported(store), exported(store, session_ids=["b", "a"])):
            assert sorted(r["session_id"] for r in records(text) if r.get("kind") == "session") == list("abc")


@pytest.mark.django_db
class TestCollision:
    def test_fail_writes_nothing_of_the_tree(self, store: SessionStore, tree: str) -> None:
        text = exported(store)
        store.delete_session("child")
        rows = dump()
        with pytest.raises(SessionExists, match="adopted"):
            imported(store, text)
        assert dump() == rows

    def test_skip_leaves_the_tree_out_and_goes_on(self, store: SessionStore, tree: str) -> None:
        store.create_session("alone", agent_type="x")
        text, rows = exported(store), dump()
        store.delete_session("alone")
        summary = imported(store, text, on_collision="skip")
        assert (summary.sessions, summary.skipped) == (1, 4)
        assert dump() == rows

    def test_renew_gives_new_ids_wherever_they_are_named(
        self, store: SessionStore, tree: str, archive_storage: Path
    ) -> None:
        store.archive_events("grandchild", keep=1)
        text = exported(store)
        before = {key: store.load_state(key) for key in ("root", "child", "grandchild", "adopted")}
        summary = imported(store, text, on_collision="renew")
        assert (summary.renewed, summary.sessions) == (4, 4)
        assert {key: store.load_state(key) for key in before} == before, "the originals are untouched"
        [new] = Session.objects.filter(agent_type="boss").exclude(session_id="root")
        root = store.load_state(new.session_id)
        refs = {ref.agent_type + ref.location: ref for ref in store.get_sub_session_refs(new.session_id)}
        child = Session.objects.get(parent_session_id=new.session_id)
        grandchild = Session.objects.get(parent_session_id=child.session_id)
        named = [ref.sub_session_id for ref in store.get_sub_session_refs(new.session_id)]
        assert named[0] == child.session_id
        assert named[2] == "elsewhere"
        assert not {*named[:2], grandchild.session_id} & before.keys()
        assert refs["workerremote"].sub_session_id == "elsewhere"
        assert grandchild.root_session_id == child.root_session_id == new.session_id
        assert root.client_tool_call_ownership == {"call": grandchild.session_id}
        assert root.suspended_awaiting_children == {"t": {"sub_session_id": child.session_id}}
        assert root.custom_state == {"child": "child"}, "what an agent wrote is left as it is"
        checkpoint = store.get_latest_checkpoint(new.session_id)
        assert checkpoint is not None
        assert checkpoint.state.client_tool_call_ownership == {"call": grandchild.session_id}
        spawned = [
            e.data["sub_session_id"] for e in store.get_events(new.session_id, types="subagent_spawned")
        ]
        assert spawned == named
        started = store.get_events(child.session_id)[0]
        assert started.data["parent_session_id"] == new.session_id
        assert store.get_messages(grandchild.session_id) == store.get_messages("grandchild")
        assert ArchivedRange.objects.values("name").distinct().count() == 2
        assert_healthy(*Session.objects.values_list("session_id", flat=True))

    def test_owners_can_be_replaced(self, store: SessionStore, tree: str) -> None:
        text = exported(store)
        wipe()
        imported(store, text, owner=None)
        assert store.load_state("root").owner_id is None
        latest = store.get_latest_checkpoint("root")
        assert latest is not None
        assert latest.state.owner_id is None
        wipe()
        bob = get_user_model().objects.create_user("bob")
        imported(store, text, owner=bob)
        assert {session.owner_id for session in Session.objects.all()} == {bob.pk}


def changed(text: str, line: int, old: str, new: str) -> str:
    lines = text.splitlines(keepends=True)
    assert old in lines[line]
    lines[line] = lines[line].replace(old, new, 1)
    return "".join(lines)


@pytest.mark.django_db
class TestBrokenFiles:
    @pytest.fixture
    def text(self, store: SessionStore) -> str:
        store.create_session("s", agent_type="writer")
        store.append_messages("s", [{"role": "user", "content": "hello"}])
        text = exported(store)
        wipe()
        return text

    @each(
        ("line", "old", "new", "said"),
        [
            (0, "helix_sessions.export", "something.else", "not an export"),
            (0, '"layout":1', '"layout":2', "layout 2"),
            (1, '"tree"', '"forest"', "tree of sessions"),
            (2, '"agent_type":"writer"', '"agent_type":7', "agent_type"),
            (2, '"agent_type":"writer"', '"shoe_size":7', "shoe_size"),
            (2, '"agent_type":"writer",', "", "agent_type"),
            (2, '"version":2', '"version":-1', "database refuses"),
            (2, '"head_seq":2', '"head_seq":3', "head_seq_ahead"),
            (2, '"message_count":1', '"message_count":2', "message_count"),
            (3, '"kind":"event"', '"kind":"secret"', "secret"),
            (3, '"session_id":"s"', '"session_id":"t"', "another session"),
            (3, '"seq":1', '"seq":NaN', "not a record"),
            (3, "{", "[", "not a record"),
        ],
    )
    def test_are_refused_with_the_place_and_leave_nothing(
        self, store: SessionStore, text: str, line: int, old: str, new: str, said: str
    ) -> None:
        with pytest.raises(InvalidExport, match=said) as caught:
            imported(store, changed(text, line, old, new))
        assert str(caught.value).startswith("Line ")
        assert not any(dump().values())

    def test_a_file_that_was_cut_off(self, store: SessionStore, text: str) -> None:
        lines = text.splitlines(keepends=True)
        for count in range(len(lines) - 1):
            with pytest.raises(InvalidExport):
                imported(store, "".join(lines[:count]))
            assert not any(dump().values())

    def test_a_tree_that_lacks_a_line(self, store: SessionStore, text: str) -> None:
        lines = text.splitlines(keepends=True)
        for missing in range(2, len(lines) - 2):
            with pytest.raises(InvalidExport):
                imported(store, "".join(lines[:missing] + lines[missing + 1 :]))
            assert not any(dump().values())

    def test_without_the_check_a_broken_session_comes_in(self, store: SessionStore, text: str) -> None:
        imported(store, changed(text, 2, '"message_count":1', '"message_count":2'), check=False)
        assert [f.code for f in store.examine_sessions()] == ["message_count"]

    def test_archives_need_a_storage(self, store: SessionStore, archive_storage: Path, settings: Any) -> None:
        talk(store, "s", 5)
        store.archive_events("s", keep=1)
        text = exported(store)
        settings.HELIX_SESSIONS = {}
        with pytest.raises(NotConfigured):
            imported(store, text, on_collision="renew")

    def test_a_failed_import_leaves_no_archives(self, store: SessionStore, archive_storage: Path) -> None:
        talk(store, "s", 5)
        store.archive_events("s", keep=1)
        text = exported(store)
        files = set(archive_storage.rglob("*.gz"))
        cut = text[: text.rindex('{"kind":"end_tree"')]
        with pytest.raises(InvalidExport):
            imported(store, cut, on_collision="renew")
        assert set(archive_storage.rglob("*.gz")) == files


@pytest.mark.django_db(transaction=True)
def test_each_session_is_exported_as_of_one_moment(store: SessionStore) -> None:
    """Outside a transaction of the caller's: writers go on meanwhile, and every export is consistent."""
    store.create_session("s", agent_type="writer", custom_state={"n": 0})
    texts: list[str] = []

    def work(index: int) -> None:
        for number in range(30):
            if index == 0:
                texts.append(exported(store))
            else:
                state = store.load_state("s")
                store.save_state_and_promote_staging("s", state, [{"role": "user", "content": number}])

    assert run_threads(2, work) == [None, None]
    for text in texts[::5]:
        wipe()
        imported(store, text)  # checks every invariant


@pytest.mark.django_db(transaction=True)
def test_an_export_locks_nothing(store: SessionStore) -> None:
    store.create_session("s", agent_type="writer")

    class Writing(io.StringIO):
        def write(self, text: str) -> int:
            if '"kind":"session"' in text:
                assert run_threads(1, lambda index: store.increment_step_count("s")) == [1]
            return super().write(text)

    file = Writing()
    store.export_sessions(file)
    assert '"head_seq":1' in file.getvalue()
    assert store.load_state("s").step_count == 1
    assert not connection.in_atomic_block


def test_rows_are_inserted_a_few_at_a_time() -> None:
    assert imports._ROWS_AT_ONCE * 60 < 32_766, "SQLite takes so many parameters in a statement"
