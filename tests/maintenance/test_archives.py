"""Long logs: archived to a storage before they are removed, with the range noted; nothing else changes."""

import gzip
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import storages

from helix_sessions.exceptions import EventsArchived, NotConfigured, SessionNotFound
from helix_sessions.models import ArchivedRange, Event, Message, Session
from helix_sessions.store import SessionStore
from helix_sessions.store.engine.store import Store
from helix_sessions.store.maintenance import archives
from helix_sessions.store.transcript import archive_files
from helix_sessions.types import ArchiveSummary, EventRecord
from tests.invariants import assert_healthy
from tests.parallel import run_threads

WEIRD = {"text": "\u0000 ü \u2028 \U0001f40d", "big": 10**40, "order": {"b": 1, "a": [None, 1.5]}}


def talk(store: SessionStore, session_id: str, count: int) -> list[EventRecord]:
    """A session with messages, some truncated, and events; its log."""
    store.create_session(session_id, agent_type="writer")
    for number in range(count):
        store.append_messages(session_id, [{"role": "user", "content": f"m{number}", "data": WEIRD}])
        if number % 5 == 4:
            store.truncate_messages(session_id, number - number // 5 - 1)
    store.emit_event(session_id, "progress", WEIRD)
    return store.get_events(session_id)


@pytest.mark.django_db
class TestArchive:
    def test_moves_the_older_events_and_changes_nothing_else(
        self, store: SessionStore, archive_storage: Path
    ) -> None:
        log = talk(store, "s", 20)
        state, messages = store.load_state("s"), store.get_messages("s")
        summary = store.archive_events("s", keep=5)
        assert (summary.sessions, summary.events, summary.files, summary.errors) == (1, len(log) - 5, 1, 0)
        assert store.load_state("s") == state
        assert store.get_messages("s") == messages
        assert store.get_events("s") == log[-5:]
        assert Event.objects.filter(session_id="s").count() == 5
        assert not Message.objects.filter(session_id="s", truncated_seq__isnull=False, seq__lt=len(log) - 4)
        assert_healthy("s")
        store.append_messages("s", [{"role": "user", "content": "more"}])
        assert store.get_events("s")[-1].seq == len(log) + 1

    def test_what_is_archived_and_still_there_is_not_read(
        self, store: SessionStore, archive_storage: Path
    ) -> None:
        """Rows that somebody kept from being removed, from the first one on."""
        log = talk(store, "s", 20)
        left = list(Event.objects.filter(session_id="s", seq__lte=2))
        store.archive_events("s", keep=5)
        Event.objects.bulk_create(left)
        assert store.get_events("s") == log[-5:]
        with pytest.raises(EventsArchived):
            store.get_events("s", 2)
        with store.subscribe("s", after=0) as tail:
            assert list(islice(tail, 5)) == log[-5:]
        store.archive_events("s", keep=5)
        assert_healthy("s")

    def test_the_file_holds_the_events_exactly(self, store: SessionStore, archive_storage: Path) -> None:
        log = talk(store, "s", 12)
        store.archive_events("s", keep=1)
        [note] = ArchivedRange.objects.all()
        assert (note.first_seq, note.last_seq, note.storage) == (1, len(log) - 1, "archives")
        with gzip.open(archive_storage / note.name, "rt", encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        assert [archive_files.event_of("s", line) for line in lines] == log[:-1]
        assert [json.loads(line) for line in archive_files.read_file(note)] == lines

    def test_reading_what_was_archived_says_where_the_log_begins(
        self, store: SessionStore, archive_storage: Path
    ) -> None:
        log = talk(store, "s", 10)
        store.archive_events("s", keep=4)
        first = log[-4].seq
        for asked in ((1, None), (0, None), (first - 1, None), (1, first + 1), (None, first - 2)):
            with pytest.raises(EventsArchived) as caught:
                store.get_events("s", *asked)
            assert caught.value.first_available_seq == first
            assert caught.value.code == "events_archived"
        with pytest.raises(EventsArchived):
            store.get_events("s", 1, types=["nothing"])
        assert store.get_events("s", first) == log[-4:]
        assert store.get_events("s") == log[-4:]
        assert store.get_events("s", limit=2) == log[-4:-2]
        assert store.get_events("s", types=["progress"]) == log[-1:]
        assert store.get_events("s", to_seq=first + 1) == log[-4:-3]
        assert store.get_events("s", 2, 2) == []
        with pytest.raises(SessionNotFound):
            store.get_events("unknown")

    def test_a_range_that_is_archived_whole_and_one_that_begins_with_the_log(
        self, store: SessionStore, archive_storage: Path
    ) -> None:
        talk(store, "s", 6)
        assert store.get_events("s", 1, types=["nothing"]) == []
        store.archive_events("s", keep=3)
        begin = store.load_state("s").head_seq - 2
        with pytest.raises(EventsArchived):
            store.get_events("s", to_seq=begin)
        assert [event.seq for event in store.get_events("s", to_seq=begin + 1)] == [begin]
        assert store.get_events("s", begin, types=["nothing"]) == []

    def test_what_is_archived_while_it_is_read_is_not_read(
        self, store: SessionStore, archive_storage: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between the events and the look where the log begins."""
        log = talk(store, "s", 6)
        kinds = {event.type for event in log} - {log[0].type}
        read = Store._read
        archived: list[bool] = []

        def late(self: Store, *args: Any) -> Any:
            if not archived:
                archived.append(True)
                store.archive_events("s", keep=3)
            return read(self, *args)

        monkeypatch.setattr(Store, "_read", late)
        assert store.get_events("s", types=kinds) == [event for event in log[-3:] if event.type in kinds]

    def test_a_second_archive_continues_the_first(self, store: SessionStore, archive_storage: Path) -> None:
        log = talk(store, "s", 6)
        store.archive_events("s", keep=3)
        talk_on = [store.emit_event("s", "progress", {"n": n}) for n in range(10)]
        store.archive_events("s", keep=3)
        ranges = ArchivedRange.objects.order_by("first_seq").values_list("first_seq", "last_seq")
        assert list(ranges) == [(1, len(log) - 3), (len(log) - 2, len(log) + 7)]
        assert store.get_events("s") == talk_on[-3:]
        assert_healthy("s")
        assert store.archive_events("s", keep=3) == ArchiveSummary()

    def test_an_idempotency_key_still_answers_with_its_event(
        self, store: SessionStore, archive_storage: Path
    ) -> None:
        store.create_session("s", agent_type="writer")
        first = store.emit_event("s", "progress", WEIRD, turn_id="t", idempotency_key="k")
        message = store.emit_event("s", "user_message", {"content": "hello"}, idempotency_key="m")
        for number in range(5):
            store.emit_event("s", "progress", {"n": number})
        store.archive_events("s", keep=2)
        head = store.load_state("s").head_seq
        assert store.emit_event("s", "progress", {"other": 1}, idempotency_key="k") == first
        assert store.emit_event("s", "user_message", {"content": "?"}, idempotency_key="m") == message
        assert store.load_state("s").head_seq == head
        assert_healthy("s")

    def test_the_events_of_a_running_run_stay(self, store: SessionStore, archive_storage: Path) -> None:
        talk(store, "s", 5)
        run = store.create_run("s")
        store.emit_event("s", "tool_called", {"tool_call_id": "c"})
        store.archive_events("s", keep=0)
        assert [event.type for event in store.get_events("s")] == ["run_started", "tool_called"]
        store.update_run_status("s", run.run_id, "completed")
        store.archive_events("s", keep=0)
        assert store.get_events("s") == []
        assert store.load_state("s").head_seq == store.emit_event("s", "x").seq - 1
        assert_healthy("s")

    def test_without_a_storage_it_is_refused(self, store: SessionStore, settings: Any) -> None:
        settings.HELIX_SESSIONS = {}
        talk(store, "s", 3)
        with pytest.raises(NotConfigured):
            store.archive_events("s")
        settings.HELIX_SESSIONS = {"ARCHIVE_STORAGE": "nowhere"}
        with pytest.raises(NotConfigured):
            store.archive_events("s")

    def test_a_storage_that_fails_leaves_the_log_whole(
        self, store: SessionStore, archive_storage: Path
    ) -> None:
        log = talk(store, "s", 4)
        archive_storage.write_text("a file where the folder should be")
        with pytest.raises(OSError):  # noqa: PT011
            store.archive_events("s", keep=1)
        assert store.get_events("s") == log
        assert not ArchivedRange.objects.exists()

    def test_rows_left_by_a_crash_are_hidden_and_go_with_the_next(
        self, store: SessionStore, archive_storage: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = talk(store, "s", 8)
        with monkeypatch.context() as patched:
            patched.setattr(archives, "execute", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                store.archive_events("s", keep=3)
        assert Event.objects.count() == len(log)
        assert Session.objects.get().first_seq == len(log) - 2
        assert store.get_events("s", limit=2) in (log[:2], log[-3:-1])
        store.archive_events("s", keep=3)
        assert Event.objects.count() == 3
        assert_healthy("s")

    def test_dry_run_counts(self, store: SessionStore, archive_storage: Path) -> None:
        log = talk(store, "s", 4)
        assert store.archive_events("s", keep=2, dry_run=True).events == len(log) - 2
        assert store.get_events("s") == log

    def test_many_files_and_long_ones_only(
        self, store: SessionStore, archive_storage: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(archives, "EVENTS_PER_FILE", 7)
        monkeypatch.setattr(archive_files, "EVENTS_PER_PAGE", 3)
        monkeypatch.setattr(archives, "_EVENTS_PER_REMOVAL", 2)
        log = talk(store, "long", 20)
        short = talk(store, "short", 2)
        dry = store.archive_long_logs(longer_than=10, keep=4, dry_run=True)
        summary = store.archive_long_logs(longer_than=10, keep=4)
        assert (summary.sessions, summary.events, summary.errors) == (1, len(log) - 4, 0)
        assert (dry.sessions, dry.events) == (summary.sessions, summary.events)
        assert summary.files == -(-(len(log) - 4) // 7)
        assert summary.stored_bytes == sum(path.stat().st_size for path in archive_storage.rglob("*.gz"))
        lines = [
            line
            for note in archive_files.files_of("default", "long")
            for line in archive_files.read_file(note)
        ]
        assert [archive_files.event_of("long", json.loads(line)) for line in lines] == log[:-4]
        assert store.get_events("short") == short
        assert_healthy("long")

    def test_a_branch_of_an_archived_session_is_whole(
        self, store: SessionStore, archive_storage: Path
    ) -> None:
        talk(store, "s", 6)
        store.archive_events("s", keep=1)
        store.clone_session("s", "branch")
        assert store.get_messages("branch").messages == store.get_messages("s").messages
        assert_healthy("branch")


@pytest.mark.django_db(transaction=True)
def test_deleting_a_session_deletes_its_archives(store: SessionStore, archive_storage: Path) -> None:
    talk(store, "s", 6)
    talk(store, "t", 6)
    for key in "st":
        store.archive_events(key, keep=1)
    names = {note.session_id: note.name for note in ArchivedRange.objects.all()}
    store.delete_session("s")
    assert not storages["archives"].exists(names["s"])
    assert storages["archives"].exists(names["t"])


@pytest.mark.django_db(transaction=True)
def test_a_storage_that_fails_does_not_fail_the_deletion(
    store: SessionStore, archive_storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is gone by then, and a file that stays is logged."""
    talk(store, "s", 6)
    store.archive_events("s", keep=1)

    def unreachable(name: str) -> None:
        raise OSError("The storage is down.")

    monkeypatch.setattr(storages["archives"], "delete", unreachable)
    store.delete_session("s")

    assert not store.session_exists("s")


@pytest.mark.django_db(transaction=True)
def test_archiving_next_to_writers_and_another_archiver(store: SessionStore, archive_storage: Path) -> None:
    talk(store, "s", 10)
    before = store.load_state("s").head_seq

    def work(index: int) -> None:
        for number in range(10):
            if index < 2:
                store.archive_events("s", keep=5)
            else:
                store.append_messages("s", [{"role": "user", "content": number}])

    assert run_threads(4, work) == [None] * 4
    assert store.load_state("s").head_seq == before + 20
    notes = archive_files.files_of("default", "s")
    seqs = [json.loads(line)["seq"] for note in notes for line in archive_files.read_file(note)]
    assert seqs + [event.seq for event in store.get_events("s")] == list(range(1, before + 21))
    files = {str(path.relative_to(archive_storage)) for path in archive_storage.rglob("*.gz")}
    assert files == {note.name for note in notes}, "a file without a note was left"
    assert_healthy("s")
