"""Rotation: everything under the new key, nothing else changed, at any moment stopped and repeated."""

import io
import json
from typing import Any, ClassVar

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db import connection

from helix_sessions.exceptions import ContentUnreadable, IdempotencyKeyReused, NotConfigured
from helix_sessions.models import Event, Session
from helix_sessions.models.guard import is_guarded
from helix_sessions.store import SessionStore
from helix_sessions.types import Answer
from tests.encryption.test_at_rest import fill, said
from tests.invariants import assert_invariants, dump
from tests.parallel import run_threads

pytestmark = pytest.mark.django_db


def seen(store: SessionStore, session_id: str) -> list[Any]:
    """All that a caller can read of a session."""
    return [
        store.load_state(session_id),
        store.get_messages(session_id),
        store.get_events(session_id),
        store.list_checkpoints(session_id),
        store.list_runs(session_id),
        store.get_staged_changes(session_id),
        store.get_sub_session_refs(session_id),
    ]


def rows_under(mark: str) -> int:
    return sum(repr(row).count(mark) for rows in dump().values() for row in rows)


def test_everything_is_sealed_anew_and_reads_the_same(store, encrypted):
    for key in ("s", "t"):
        fill(store, key)
    before = seen(store, "s")
    rows = Session.objects.order_by("session_id")
    heads = list(rows.values_list("version", "head_seq", "first_seq", "updated_at"))
    encrypted("old", "new", active="new")
    dry = store.rotate_encryption(dry_run=True)
    assert rows_under('"1.new.') == 0
    done = store.rotate_encryption(page_size=3)
    assert (done.sessions, done.errors, done.last_session_id) == (2, 0, "t")
    assert done.rows == dry.rows > 40
    assert rows_under('"1.old.') == 0
    assert rows_under('"1.new.') > 40
    encrypted("new", active="new")
    assert seen(store, "s") == before
    assert list(rows.values_list("version", "head_seq", "first_seq", "updated_at")) == heads
    assert_invariants("s")
    assert is_guarded(connection)
    assert store.rotate_encryption().rows == 0


def test_events_that_are_archived_are_left_to_who_removes_them(store, encrypted, archive_storage):
    """Written again, they would be new rows, which a removal that is under way does not see."""
    fill(store)
    left = list(Event.objects.filter(session_id="s", seq__lte=2))
    store.archive_events("s", keep=5)
    Event.objects.bulk_create(left)
    marks = list(Event.objects.filter(session_id="s", seq__lte=2).values_list("data", flat=True))
    encrypted("old", "new", active="new")
    done = store.rotate_encryption()
    assert (done.errors, done.rows > 10) == (0, True)
    encrypted("old", active="old")
    assert list(Event.objects.filter(session_id="s", seq__lte=2).values_list("data", flat=True)) == marks


def test_the_log_is_guarded_during_and_after(store, encrypted):
    fill(store)
    encrypted("old", "new", active="new")
    store.rotate_encryption()
    with pytest.raises(Exception, match="cannot be changed"):
        Event.objects.filter(session_id="s", seq=1).update(type="forged")


def test_switching_encryption_on_and_off(store, encrypted):
    encrypted()
    fill(store)
    before = seen(store, "s")
    encrypted("old", active="old")
    assert store.rotate_encryption().rows > 20
    assert said("message") not in repr(dump())
    assert seen(store, "s") == before
    encrypted("old")
    assert store.rotate_encryption().rows > 20
    encrypted()
    assert seen(store, "s") == before
    assert_invariants("s")


def test_it_can_be_stopped_and_goes_on(store, encrypted):
    for number in range(4):
        fill(store, f"s{number}")
    encrypted("old", "new", active="new")
    asked = iter([False, False, True])
    first = store.rotate_encryption(should_stop=lambda: next(asked))
    assert (first.sessions, first.last_session_id) == (2, "s1")
    rest = store.rotate_encryption(after="s1")
    assert rest.sessions == 2
    assert store.rotate_encryption().rows == 0


def test_a_session_that_cannot_be_read_stops_no_other(store, encrypted):
    fill(store, "lost")
    encrypted("new", active="new")
    encrypted()
    fill(store, "plain")
    encrypted("new", active="new")
    done = store.rotate_encryption()
    assert (done.sessions, done.errors) == (2, 1)
    assert store.load_state("plain").output == said("output")
    with pytest.raises(ContentUnreadable):
        store.load_state("lost")


def test_archives_are_sealed_too(store, encrypted, archive_storage):
    fill(store)
    store.archive_events("s", keep=2)
    [file] = [path for path in archive_storage.rglob("*") if path.is_file()]
    encrypted("old", "new", active="new")
    assert store.rotate_encryption().files == 1
    assert store.rotate_encryption().files == 0
    encrypted("new", active="new")
    text = io.StringIO()
    store.export_sessions(text)
    assert said("event") in text.getvalue()
    assert_invariants_of_archive(store)
    assert file.suffix == ".gz"


def assert_invariants_of_archive(store: SessionStore) -> None:
    assert not [finding for finding in store.examine_sessions(deep=True) if finding.severity == "error"]


def test_kept_answers(store, encrypted):
    user = get_user_model().objects.create_user("u")
    answer = Answer(status=201, body=said("answer"))
    store.answer_once(user, "k", "0" * 32, lambda: answer)
    encrypted("old", "new", active="new")
    assert store.rotate_encryption().rows == 1
    encrypted("new", active="new")
    again = store.answer_once(user, "k", "0" * 32, lambda: pytest.fail("done twice"))
    assert (again.body, again.replayed) == (answer.body, True)
    with pytest.raises(IdempotencyKeyReused):
        store.answer_once(user, "k", "1" * 32, lambda: answer)


def test_without_keys_there_is_nothing_to_do(store, encrypted):
    encrypted()
    with pytest.raises(NotConfigured):
        store.rotate_encryption()


class TestTheCommand:
    def test_rotates_and_says_so(self, store, encrypted):
        fill(store)
        encrypted("old", "new", active="new")
        out = io.StringIO()
        call_command("rotate_encryption", "--json", stdout=out)
        said = json.loads(out.getvalue())
        assert (said["sessions"], said["errors"], said["last_session_id"]) == (1, 0, "s")
        out = io.StringIO()
        call_command("rotate_encryption", "--dry-run", stdout=out)
        assert "rows: 0" in out.getvalue()

    def test_fails_when_asked_to(self, store, encrypted):
        fill(store)
        encrypted("new", active="new")
        call_command("rotate_encryption", stdout=io.StringIO())
        with pytest.raises(CommandError):
            call_command("rotate_encryption", "--fail-on-error", stdout=io.StringIO())

    def test_makes_keys(self, settings):
        from helix_sessions.content.encryption import keyring

        out = io.StringIO()
        call_command("rotate_encryption", "--new-key", stdout=out)
        settings.HELIX_SESSIONS = {"ENCRYPTION": {"keys": {"a": out.getvalue().strip()}, "active": "a"}}
        assert keyring() is not None


@pytest.mark.django_db(transaction=True)
def test_an_export_finds_an_archive_that_is_sealed_anew_meanwhile(store, encrypted, archive_storage):
    """It sees the moment at which it began; the file of that moment is gone, and another holds its lines."""
    fill(store)
    store.archive_events("s", keep=5)
    before = io.StringIO()
    store.export_sessions(before, session_ids=["s"])
    encrypted("old", "new", active="new")

    class Interrupted(io.StringIO):
        rotated: ClassVar[list[Any]] = []

        def write(self, line: str) -> int:
            if line.startswith('{"kind":"archived_range"') and not self.rotated:
                self.rotated.extend(run_threads(1, lambda _: store.rotate_encryption().files))
            return super().write(line)

    during = Interrupted()
    store.export_sessions(during, session_ids=["s"])
    assert during.rotated == [1]
    assert during.getvalue() == before.getvalue()
