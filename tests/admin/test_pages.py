"""The pages of a session."""

import json
import re
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from helix_sessions.admin.pages.sentences import sentence
from helix_sessions.store import SessionStore
from helix_sessions.store.transcript.events import MESSAGE_TYPES
from tests.admin.places import APP, LIST, PAGES, make_busy_session, make_stuck, page_of
from tests.rows import each

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _busy(store: SessionStore) -> None:
    make_busy_session(store)


every_page = each("page", PAGES)


class TestWhoMaySee:
    @every_page
    def test_superuser(self, admin_client: Client, page: str):
        assert admin_client.get(page_of("busy", page)).status_code == 200

    @every_page
    def test_viewer(self, viewer: Client, page: str):
        assert viewer.get(page_of("busy", page)).status_code == 200

    @every_page
    def test_staff_without_permission(self, stranger: Client, page: str):
        assert stranger.get(page_of("busy", page)).status_code == 403

    @every_page
    def test_nobody(self, client: Client, page: str):
        response = client.get(page_of("busy", page))
        assert response.status_code == 302
        assert "login" in response["Location"]

    @every_page
    def test_a_session_that_is_not_there(self, admin_client: Client, page: str):
        response = admin_client.get(page_of("absent", page))
        assert response.status_code == 302

    @every_page
    def test_posting_changes_nothing(self, admin_client: Client, store: SessionStore, page: str):
        before = store.load_state("busy")
        admin_client.post(page_of("busy", page), {"status": "failed", "_save": "1"})
        assert store.load_state("busy") == before


def test_looking_changes_nothing(admin_client: Client, store: SessionStore):
    before = store.load_state("busy")
    for address in [APP, LIST, *(page_of("busy", page) for page in PAGES)]:
        admin_client.get(address)
    assert store.load_state("busy") == before


@each("address", [LIST, APP])
def test_list_and_dashboard(admin_client: Client, viewer: Client, stranger: Client, address: str):
    assert admin_client.get(address).status_code == 200
    assert viewer.get(address).status_code == 200
    assert stranger.get(address).status_code in (403, 404)


@each("what", ["1", "state"])
def test_raw_download(admin_client: Client, stranger: Client, what: str):
    response = admin_client.get(page_of("busy", f"raw/{what}"))
    assert response["Content-Type"] == "application/json"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Content-Disposition"].startswith("attachment")
    json.loads(response.content)
    assert stranger.get(page_of("busy", f"raw/{what}")).status_code == 403


@each("what", ["999", "0", "x", "9" * 30, "-1"])
def test_nothing_to_download(admin_client: Client, what: str):
    assert admin_client.get(page_of("busy", f"raw/{what}")).status_code == 404


@each("session_id", ["a/b", "a b", "ü?#&=%", "..", "_2F", '"><b>', "change", "x" * 255])
def test_ids_of_any_form_have_pages(admin_client: Client, store: SessionStore, session_id: str):
    store.create_session(session_id, agent_type="a")
    for page in PAGES:
        assert admin_client.get(page_of(session_id, page)).status_code == 200
    assert admin_client.get(LIST).status_code == 200


@each("page", [*PAGES, "live", "raw/1"])
def test_ids_that_cannot_be(admin_client: Client, page: str):
    for session_id in ("\x00", "x" * 5000):
        assert admin_client.get(page_of(session_id, page)).status_code in (302, 404)


class TestTimeline:
    def test_calls_are_joined_with_their_results(self, admin_client: Client):
        page = admin_client.get(page_of("busy")).context["page"]
        [call] = [call for entry in page.entries for call in entry.calls]
        assert (call.name, call.is_error) == ("look_up", False)
        assert [event.type for event in call.events] == ["tool_called", "tool_responded", "tool_message"]
        assert call.result.outcome.value == {"place": "depot"}

    def test_every_event_has_its_place_once(self, admin_client: Client, store: SessionStore):
        page = admin_client.get(page_of("busy", query="?order=oldest"))
        text = page.content.decode()
        head = store.load_state("busy").head_seq
        assert head > 10
        for seq in range(1, head + 1):
            assert text.count(f'id="seq-{seq}"') == 1

    def test_every_type_the_store_appends_is_told_in_words(self):
        page = Path(settings.BASE_DIR, "docs", "reference", "events.md").read_text()
        table = page.split("## Appended by the store")[1].split("\n## ")[0]
        types = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
        assert len(types) > 40
        mute = [kind for kind in types - set(MESSAGE_TYPES) if sentence(kind, {}) == kind.replace("_", " ")]
        assert mute == []

    @each("order", ["newest", "oldest"])
    def test_paging_by_key_meets_everything_once(self, admin_client: Client, store: SessionStore, order: str):
        store.create_session("long", agent_type="a")
        for number in range(129):
            store.emit_event("long", "note", {"n": number})
        query, seen = f"?order={order}", []
        while query:
            page = admin_client.get(page_of("long", query=query)).context["page"]
            seen += [entry.seq for entry in page.entries]
            query = page.older if order == "newest" else page.newer
        assert seen == (list(range(130, 0, -1)) if order == "newest" else list(range(1, 131)))

    def test_permanent_link(self, admin_client: Client, store: SessionStore):
        store.create_session("long", agent_type="a")
        for number in range(200):
            store.emit_event("long", "note", {"n": number})
        for seq in (1, 77, 201):
            response = admin_client.get(page_of("long", query=f"?seq={seq}"))
            assert f'id="seq-{seq}"' in response.content.decode()

    def test_parts(self, admin_client: Client):
        page = admin_client.get(page_of("busy", query="?kind=conversation")).context["page"]
        assert {entry.type for entry in page.entries} <= {
            *("user_message", "assistant_message", "tool_message", "system_message")
        }
        assert page.entries

    @each("query", ["?seq=x", "?before=-1", "?after=" + "9" * 40, "?kind=x&order=y", "?before=²"])
    def test_nonsense_in_the_address(self, admin_client: Client, query: str):
        assert admin_client.get(page_of("busy", query=query)).status_code == 200

    def test_query_count_does_not_depend_on_the_events(self, admin_client: Client, store: SessionStore):
        store.create_session("few", agent_type="a")
        store.create_session("many", agent_type="a")
        for key, count in (("few", 10), ("many", 1_000)):
            store.append_messages(key, [{"role": "user", "content": str(n)} for n in range(count)])
        counts = []
        for key in ("few", "many"):
            admin_client.get(page_of(key))
            with CaptureQueriesContext(connection) as queries:
                admin_client.get(page_of(key))
            counts.append(len(queries))
        assert counts[0] == counts[1] <= 9

    def test_truncated_messages_stay_and_say_so(self, admin_client: Client, store: SessionStore):
        store.truncate_messages("busy", 1)
        assert b"no longer in the transcript" in admin_client.get(page_of("busy")).content

    def test_live_gives_what_is_new(self, admin_client: Client, store: SessionStore, stranger: Client):
        head = store.load_state("busy").head_seq
        store.emit_event("busy", "note", {"word": "marvellous"})
        response = admin_client.get(page_of("busy", "live", f"?after={head}"))
        text = response.content.decode()
        assert f'data-last="{head + 1}"' in text
        assert f'id="seq-{head + 1}"' in text
        assert f'id="seq-{head}"' not in text
        assert admin_client.get(page_of("busy", "live")).status_code == 404
        assert stranger.get(page_of("busy", "live", "?after=1")).status_code == 403


class TestSections:
    def test_why_a_session_is_stuck(self, admin_client: Client):
        make_stuck("busy")
        assert b"has given no sign for 1 h" in admin_client.get(page_of("busy")).content

    def test_why_a_session_failed(self, admin_client: Client, store: SessionStore):
        store.update_status("busy", "failed", failure_reason="budget spent", error="429")
        text = admin_client.get(page_of("busy")).content.decode()
        assert "Failed: budget spent" in text
        assert "Error: 429" in text

    def test_difference_of_checkpoints(self, admin_client: Client):
        difference = admin_client.get(page_of("busy", "state", "?from=first&to=second")).context["difference"]
        [change] = difference.changes
        assert (change.path, change.before.value, change.after.value) == ("place", "depot", "door")

    def test_difference_until_now_and_none(self, admin_client: Client):
        page = page_of("busy", "state", "?from=second&to=now")
        assert admin_client.get(page).context["difference"].changes == []
        assert admin_client.get(page_of("busy", "state", "?from=nonsense")).context["difference"] is None

    def test_difference_hides_secrets(self, admin_client: Client, store: SessionStore):
        store.merge_custom_state("busy", [{"op": "set", "path": ["auth"], "value": {"password": "hunter2"}}])
        store.merge_custom_state("busy", [{"op": "set", "path": ["token"], "value": "hunter2"}])
        response = admin_client.get(page_of("busy", "state", "?from=second&to=now"))
        assert len(response.context["difference"].changes) == 2
        assert b"hunter2" not in response.content

    def test_runs_with_usage(self, admin_client: Client):
        lines = admin_client.get(page_of("busy", "runs")).context["runs"]
        assert [line.turn for line in lines] == [2, 1]
        assert (lines[1].usage.tokens, lines[1].usage.cost) == (10, 0.5)

    def test_tree(self, admin_client: Client, store: SessionStore):
        store.create_session("grandchild", agent_type="helper", parent_session_id="busy-child")
        store.add_sub_session_refs("grandchild", [{"sub_session_id": "busy", "agent_type": "a"}])
        store.add_sub_session_refs(
            "busy", [{"sub_session_id": "far", "agent_type": "a", "location": "remote", "status": "failed"}]
        )
        tree = admin_client.get(page_of("busy", "tree")).context["tree"]
        assert {node.session_id: node.status for node in tree.nodes} == {
            "busy-child": "active",
            "far": "failed",
        }
        assert [node.session_id for node in tree.nodes[0].children] == ["grandchild"]
        assert (tree.count, tree.is_cut) == (3, False)

    def test_staging(self, admin_client: Client):
        [staged] = admin_client.get(page_of("busy", "staging")).context["staged"]
        assert (staged.step_id, staged.tool_call_id) == ("step", "c2")
