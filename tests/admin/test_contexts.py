"""What the model sees, in the console; and the instructions that operators write."""

import json
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from helix_sessions.runtime import FixedText, StoredInstructions
from helix_sessions.store import SessionStore
from helix_sessions.types import CompactionPolicy, SummaryRequest
from tests.admin.places import APP, action, make_busy_session, page_of

pytestmark = pytest.mark.django_db

INSTRUCTIONS = f"{APP}instructions/"


@pytest.fixture(autouse=True)
def _configured(settings: Any) -> None:
    settings.HELIX_SESSIONS = {
        "SUMMARIZER": f"{__name__}.summarize",
        "COMPACTION": {"context_window": None, "keep_recent": 0},
    }


def summarize(request: SummaryRequest) -> str:
    return f"summary of <i>{len(request.messages)}</i>"


def fail(request: SummaryRequest) -> str:
    raise RuntimeError("the secret of the provider")


class TestPage:
    def test_the_epoch_and_each_change_as_a_difference(self, admin_client: Client, store: SessionStore):
        make_busy_session(store)
        response = admin_client.get(page_of("busy", "context"))
        page = response.context["page"]
        assert (page.baseline, page.context.estimated_tokens > 0) == ("Be brief.\n\nt-2", True)
        told, first = page.history
        assert [name for name, _ in told.parts] == ["rules", "token"]
        assert [(line.kind, line.text) for line in told.parts[0][1] if line.kind != "place"] == [
            ("drop", "Be brief."),
            ("add", "Be kind."),
            ("add", "Be <b>brief</b>."),
        ]
        assert [line.kind for line in first.parts[0][1]] == ["add"] * 3
        html = response.content.decode()
        assert "Be &lt;b&gt;brief&lt;/b&gt;." in html
        assert "<b>brief" not in html
        assert "t-2" not in json.dumps([line.text for _, lines in told.parts for line in lines])

    def test_a_baseline_is_compared_with_the_one_before(self, admin_client: Client, store: SessionStore):
        make_busy_session(store)
        store.append_messages("busy", [{"role": "user", "content": "and now?"}])
        store.compact("busy", summarize, CompactionPolicy(None, keep_recent=0))
        store.reconcile_context("busy", [FixedText("rules", "Be brief.\nBe kind.")])
        told = admin_client.get(page_of("busy", "context")).context["page"].history[0]
        lines = [(line.kind, line.text) for line in told.parts[0][1] if line.kind != "place"]
        assert ("keep", "Be brief.") in lines
        assert ("add", "Be kind.") in lines

    def test_compactions_and_what_they_replaced(self, admin_client: Client, store: SessionStore):
        make_busy_session(store)
        made = store.compact("busy", summarize, CompactionPolicy(None, keep_recent=0), reason="tidy")
        response = admin_client.get(page_of("busy", "context"))
        [shown] = response.context["page"].compactions
        assert shown.compaction == made
        html = response.content.decode()
        assert made is not None
        assert f"#{made.from_seq}</a>" in html
        assert "summary of &lt;i&gt;" in html
        assert "tidy" in html

    def test_a_session_that_was_told_nothing(self, admin_client: Client, store: SessionStore):
        store.create_session("new", agent_type="a")
        assert admin_client.get(page_of("new", "context")).status_code == 200

    def test_a_move(self, admin_client: Client, store: SessionStore):
        make_busy_session(store)
        store.move_session("busy", {"host": "b", "password": "hunter2"})
        response = admin_client.get(page_of("busy", "context"))
        assert "hunter2" not in response.content.decode()
        assert response.context["page"].snapshot is None

    def test_the_whole_context_can_be_downloaded(self, admin_client: Client, store: SessionStore):
        make_busy_session(store)
        value = json.loads(admin_client.get(page_of("busy", "raw/context")).content)
        assert value["baseline"] == "Be brief.\n\nt-2"
        assert "hunter2" not in json.dumps(value)


class TestCompact:
    def act(self, client: Client) -> Any:
        return client.post(action("compact"), {"ids": '["busy"]', "reason": "too long"})

    def test_by_hand(self, admin_client: Client, store: SessionStore):
        make_busy_session(store)
        assert self.act(admin_client).status_code == 302
        [made] = store.list_compactions("busy")
        assert (made.reason, made.summary) == ("manual", "summary of <i>3</i>")
        event = store.get_events("busy", types=["operator_action"])[-1]
        assert (event.data["action"], event.data["reason"]) == ("compact", "too long")
        assert LogEntry.objects.get().change_message == "Compact: too long"

    def test_no_lock_is_held_meanwhile(self, admin_client: Client, store: SessionStore, monkeypatch: Any):
        from django.db import connection

        depths: list[int] = []
        outside = len(connection.savepoint_ids)

        def noting(request: SummaryRequest) -> str:
            depths.append(len(connection.savepoint_ids))
            return "summary"

        monkeypatch.setattr(f"{__name__}.summarize", noting)
        make_busy_session(store)
        self.act(admin_client)
        assert depths == [outside]

    def test_nothing_to_do_is_said(self, admin_client: Client, store: SessionStore):
        make_busy_session(store)
        self.act(admin_client)
        response = self.act(admin_client)
        assert "nothing older" in response.content.decode()
        assert LogEntry.objects.count() == 1

    def test_a_failing_summarizer_is_said_without_its_words(
        self, admin_client: Client, store: SessionStore, settings: Any
    ):
        settings.HELIX_SESSIONS = {**settings.HELIX_SESSIONS, "SUMMARIZER": f"{__name__}.fail"}
        make_busy_session(store)
        html = self.act(admin_client).content.decode()
        assert "The summarizer failed: RuntimeError" in html
        assert "secret of the provider" not in html
        assert store.list_compactions("busy") == []

    def test_without_a_summarizer(self, admin_client: Client, store: SessionStore, settings: Any):
        settings.HELIX_SESSIONS = {}
        make_busy_session(store)
        assert "SUMMARIZER" in self.act(admin_client).content.decode()


class TestInstructions:
    def write(self, client: Client, text: str, path: str = "add/", **more: str) -> Any:
        return client.post(f"{INSTRUCTIONS}{path}", {"text": text, **more})

    def test_they_are_written_and_every_version_kept(self, admin_client: Client, store: SessionStore):
        self.write(admin_client, "Be brief.", agent_type="writer")
        assert store.get_instructions("writer") == "Be brief."
        assert self.write(admin_client, "Be\r\n<i>kind</i>.", "writer/change/").status_code == 302
        assert store.get_instructions("writer") == "Be\n<i>kind</i>."
        assert [each.number for each in store.list_instructions_revisions("writer")] == [2, 1]
        html = admin_client.get(f"{INSTRUCTIONS}writer/change/").content.decode()
        assert "&lt;i&gt;kind&lt;/i&gt;." in html
        assert "<i>kind" not in html
        assert "hx-line-drop" in html
        assert LogEntry.objects.count() == 2

    def test_a_session_is_told(self, admin_client: Client, store: SessionStore):
        store.create_session("s", agent_type="writer")
        self.write(admin_client, "one", agent_type="writer")
        store.reconcile_context("s", [StoredInstructions()])
        self.write(admin_client, "two", "writer/change/")
        assert store.reconcile_context("s", [StoredInstructions()]).kind == "updated"

    def test_deleting_withdraws_them_and_keeps_the_history(self, admin_client: Client, store: SessionStore):
        self.write(admin_client, "one", agent_type="writer")
        self.write(admin_client, "two", agent_type="reader")
        admin_client.post(f"{INSTRUCTIONS}writer/delete/", {"post": "yes"})
        chosen = {"action": "delete_selected", "_selected_action": ["reader"], "post": "yes"}
        admin_client.post(INSTRUCTIONS, chosen)
        for kind in ("writer", "reader"):
            assert store.get_instructions(kind) is None
            assert len(store.list_instructions_revisions(kind)) == 2

    def test_what_the_store_refuses_is_an_error_of_the_form(self, admin_client: Client):
        for kind in ("", "a\nb"):
            response = self.write(admin_client, "x", agent_type=kind)
            assert response.status_code == 200
            assert response.context["adminform"].form.errors
        response = self.write(admin_client, "x" * 1_000_001, agent_type="writer")
        assert "1000000" in str(response.context["adminform"].form.errors)

    def test_who_may(self, viewer: Client, client_with: Any, store: SessionStore):
        store.set_instructions("writer", "one")
        assert viewer.get(INSTRUCTIONS).status_code == 403
        seer = client_with("view_instructions")
        assert seer.get(f"{INSTRUCTIONS}writer/change/").status_code == 200
        assert self.write(seer, "two", "writer/change/").status_code == 403
        editor = client_with("view_instructions", "change_instructions")
        assert self.write(editor, "two", "writer/change/").status_code == 302
        assert store.get_instructions("writer") == "two"
