"""The search of the list: tags, metadata, errors, and what was said in transcripts."""

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client

from helix_sessions.admin import searching
from helix_sessions.models import MessageWords, Session
from helix_sessions.store import SessionStore
from tests.admin.places import LIST, rows_of
from tests.rows import each

pytestmark = pytest.mark.django_db

ON = {"TRANSCRIPT_SEARCH": True}
KEYS = {"keys": {"k": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}, "active": "k"}


def found(client: Client, term: str, **filters: str) -> list[str]:
    return sorted(rows_of(client.get(LIST, {"q": term, **filters})))


def say(store: SessionStore, key: str, *texts: Any) -> None:
    store.append_messages(key, [{"role": "user", "content": text} for text in texts])


@pytest.fixture
def _searched(settings: Any) -> None:
    settings.HELIX_SESSIONS = ON


searched = pytest.mark.usefixtures("_searched")


@each(
    ("term", "keys"),
    [
        ("vip", ["tagged"]),
        ("tag:vip", ["tagged"]),
        ("tag:vi", []),
        ("plan=gold", ["described"]),
        ("plan = gold", ["described"]),
        ("seats=5", ["described"]),
        ("late=true", ["described"]),
        ("plan=silver", []),
        ("note=a=b", ["described"]),
        ("=", []),
        ("user:ann", ["of-ann"]),
        ("agent:clerk", ["of-ann"]),
        ("id:-ann", ["of-ann"]),
        ("error:Connection refused", ["broken"]),
        ("connection REFUSED", ["broken"]),
        ('host "db-1"', ["broken"]),
        ("error:out of money", ["poor"]),
        ("100%", []),
        ("error:", []),
        ("nonsense:x", []),
    ],
)
def test_finds(admin_client: Client, store: SessionStore, term: str, keys: list[str]):
    store.create_session("tagged", agent_type="a", tags=["vip", "eu"])
    metadata = {"plan": "gold", "seats": 5, "late": True, "note": "a=b"}
    store.create_session("described", agent_type="a", metadata=metadata)
    store.create_session("of-ann", agent_type="clerk", user_id="ann")
    store.create_session("broken", agent_type="a")
    error = {"code": "x", "message": 'connection refused by host "db-1"'}
    store.update_status("broken", "failed", failure_reason="x", error=error)
    store.create_session("poor", agent_type="a")
    store.update_status("poor", "failed", failure_reason="Out of money.")
    assert found(admin_client, term) == keys


@searched
class TestTranscripts:
    @each(
        ("term", "keys"),
        [
            ("refund", ["one", "two"]),
            ("text:refund", ["one", "two"]),
            ("REFUND parcel", ["one"]),
            ("refund, (parcel)!", ["one"]),
            ("text:refund jam", []),
            ("cafe", ["two"]),
            ("Café", ["two"]),
            ("東京", ["two"]),
            ("depot", ["tools"]),
            ("look_up", ["tools"]),
            ("hunter2", []),
            ('text:"', []),
            ("text:* OR NEAR", []),
        ],
    )
    def test_are_found_by_words(self, admin_client: Client, store: SessionStore, term: str, keys: list[str]):
        for key in ("one", "two", "tools"):
            store.create_session(key, agent_type="a")
        say(store, "one", "Where is my REFUND for the parcel?", "No jam today.")
        say(store, "two", [{"type": "text", "text": "A refund at the café in 東京."}])
        call = {"id": "c", "name": "look_up", "arguments": {"place": "depot", "password": "hunter2"}}
        store.append_messages("tools", [{"role": "assistant", "content": None, "tool_calls": [call]}])
        assert found(admin_client, term) == keys

    def test_within_filters(self, admin_client: Client, store: SessionStore):
        for key in ("one", "two"):
            store.create_session(key, agent_type="a")
            say(store, key, "refund")
        store.update_status("two", "failed")
        assert found(admin_client, "refund", status="failed") == ["two"]

    def test_follow_every_way_a_message_comes(self, admin_client: Client, store: SessionStore):
        store.begin_turn("s", message="apples", agent_type="a", run_id="r")
        store.emit_event("s", "assistant_message", {"content": "pears"})
        store.clone_session("s", "branch")
        say(store, "branch", "plums")
        for word, keys in {"apples": ["branch", "s"], "pears": ["branch", "s"], "plums": ["branch"]}.items():
            assert found(admin_client, f"text:{word}") == keys, word
        file = StringIO()
        store.export_sessions(file, session_ids=["branch"])
        store.delete_session("branch")
        assert found(admin_client, "text:plums") == []
        assert not MessageWords.objects.filter(session_id="branch").exists()
        store.import_sessions(file.getvalue().splitlines(keepends=True))
        assert found(admin_client, "text:plums") == ["branch"]

    def test_go_with_the_transaction(self, store: SessionStore, admin_client: Client):
        from django.db import transaction

        store.create_session("s", agent_type="a")
        with transaction.atomic():
            say(store, "s", "apples")
            transaction.set_rollback(True)
        assert found(admin_client, "text:apples") == []

    def test_a_long_message_is_indexed_as_far_as_it_is_read(self, store: SessionStore, admin_client: Client):
        store.create_session("s", agent_type="a")
        say(store, "s", "first " + "filler " * 5_000 + "last", "A" * 5_000, "z" * 300)
        assert found(admin_client, "text:first") == ["s"]
        assert found(admin_client, "text:last") == []
        assert max(len(row.searchable) for row in MessageWords.objects.all()) <= 20_000
        assert not MessageWords.objects.filter(searchable__contains="aaaa").exists()

    def test_use_an_index(self, store: SessionStore, engine: str):
        if engine != "postgresql":
            return
        store.create_session("s", agent_type="a")
        rows = [MessageWords(session_id="s", seq=n, searchable=f"word{n} filler text") for n in range(3_000)]
        MessageWords.objects.bulk_create(rows)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE helix_sessions_messagewords")
        plan = Session.objects.filter(session_id__says=["word77"]).explain()
        assert "helix_message_words_gin" in plan


class TestSetting:
    def test_without_it_no_word_is_kept_and_the_page_says_so(self, admin_client: Client, store: SessionStore):
        store.create_session("s", agent_type="a")
        say(store, "s", "apples")
        assert not MessageWords.objects.exists()
        assert "TRANSCRIPT_SEARCH is off" in admin_client.get(LIST).content.decode()
        assert found(admin_client, "apples") == []

    def test_the_command_adds_what_is_missing_and_removes_after_it_is_off(
        self, admin_client: Client, store: SessionStore, settings: Any, capsys: Any
    ):
        store.create_session("s", agent_type="a")
        say(store, "s", *(f"apples {n}" for n in range(450)), {"no": ["words", 1]}, 5)
        settings.HELIX_SESSIONS = ON
        say(store, "s", "pears")
        assert found(admin_client, "text:apples") == []
        call_command("index_transcripts")
        assert found(admin_client, "text:apples") == found(admin_client, "text:pears") == ["s"]
        assert MessageWords.objects.count() == 453
        call_command("index_transcripts", json=True)
        assert '"added": 0' in capsys.readouterr().out
        settings.HELIX_SESSIONS = {}
        call_command("index_transcripts")
        assert not MessageWords.objects.exists()

    def test_a_step_costs_as_many_statements_on_postgresql(
        self, store: SessionStore, settings: Any, engine: str
    ):
        from django.test.utils import CaptureQueriesContext

        store.create_session("s", agent_type="a")
        counts = []
        for value in ({}, ON):
            settings.HELIX_SESSIONS = value
            say(store, "s", "apples")
            with CaptureQueriesContext(connection) as queries:
                say(store, "s", "apples")
            counts.append(len(queries))
        assert counts[1] - counts[0] == (0 if engine == "postgresql" else 1)


class TestEncryption:
    def test_what_is_encrypted_has_no_words_and_the_page_says_so(
        self, admin_client: Client, store: SessionStore, settings: Any
    ):
        pytest.importorskip("cryptography")
        settings.HELIX_SESSIONS = ON
        store.create_session("s", agent_type="a")
        say(store, "s", "apples")
        settings.HELIX_SESSIONS = {**ON, "ENCRYPTION": KEYS}
        say(store, "s", "pears")
        assert [row.searchable for row in MessageWords.objects.all()] == ["apples"]
        assert "Encrypted errors and transcripts are not searched" in admin_client.get(LIST).content.decode()
        store.rotate_encryption()
        assert not MessageWords.objects.exists()
        call_command("index_transcripts")
        assert not MessageWords.objects.exists()
        settings.HELIX_SESSIONS = {**ON, "ENCRYPTION": {**KEYS, "active": None}}
        store.rotate_encryption()
        call_command("index_transcripts")
        assert found(admin_client, "text:pears") == ["s"]

    def test_why_is_decrypted_for_the_row(self, admin_client: Client, store: SessionStore, settings: Any):
        pytest.importorskip("cryptography")
        settings.HELIX_SESSIONS = {"ENCRYPTION": KEYS}
        store.create_session("s", agent_type="a")
        store.update_status("s", "failed", failure_reason="x", error={"message": "the pump broke"})
        assert "the pump broke" in admin_client.get(LIST).content.decode()
        other = {"keys": {"o": "OTg3NjU0MzIxMDk4NzY1NDMyMTA5ODc2NTQzMjEwOTg="}, "active": "o"}
        settings.HELIX_SESSIONS = {"ENCRYPTION": other}
        assert admin_client.get(LIST).status_code == 200


def test_words_of_archived_messages_that_are_gone_go_too(
    store: SessionStore, settings: Any, tmp_path: Any, admin_client: Client
):
    settings.HELIX_SESSIONS = {**ON, "ARCHIVE_STORAGE": "archive"}
    settings.STORAGES = {
        **settings.STORAGES,
        "archive": {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": str(tmp_path)},
        },
    }
    store.create_session("s", agent_type="a")
    say(store, "s", "apples")
    store.truncate_messages("s", 0)
    say(store, "s", "pears")
    assert found(admin_client, "text:apples") == ["s"]
    store.archive_events("s", keep=0)
    assert found(admin_client, "text:apples") == []
    assert found(admin_client, "text:pears") == ["s"]


def test_a_search_that_shows_a_part_says_so(
    store: SessionStore, viewer: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(searching, "FOUND_BY_EACH", 2)
    for number in range(3):
        store.create_session(f"s-{number}", agent_type="support", tags=["vip"] if number else [])
    for term, is_cut in (("tag:vip", False), ("agent:support", True), ("id:s-", True), ("", False)):
        page = viewer.get(LIST, {"q": term})
        assert ("More was found: the newest 2" in page.content.decode()) is is_cut, term
