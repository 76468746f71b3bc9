"""Pages and filters."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from tests.api.test_problems import is_problem
from tests.rows import each

pytestmark = pytest.mark.django_db


def walk(api, path, key="items", **query):
    """Every row, following the links, and how many pages there were."""
    rows, pages, url = [], 0, None
    response = api.get(path, query)
    while True:
        body = response.json()
        rows += body[key]
        pages += 1
        assert (body["next_cursor"] is None) == ("Link" not in response)
        if "Link" not in response:
            return rows, pages
        url, rel = response["Link"].split(">; ")
        assert rel == 'rel="next"'
        response = api.get(url[1:])
        assert response.status_code == 200


class TestPages:
    def test_sessions(self, api, user, store):
        for number in range(7):
            store.create_session(f"s{number}", agent_type="a", owner=user)
        rows, pages = walk(api, "/api/sessions/", limit=3)
        assert [row["session_id"] for row in rows] == [f"s{number}" for number in reversed(range(7))]
        assert pages == 3

    def test_filters_stay_on_the_way(self, api, user, store):
        for number in range(6):
            store.create_session(f"s{number}", agent_type="ab"[number % 2], owner=user)
        rows, _ = walk(api, "/api/sessions/", limit=1, agent_type="a")
        assert [row["session_id"] for row in rows] == ["s4", "s2", "s0"]

    @each("newest_first", [False, True])
    @each("limit", [1, 3, 7, 10])
    def test_messages(self, newest_first, limit, api, session, store):
        store.append_messages("s", [{"role": "user", "n": n} for n in range(7)])
        rows, pages = walk(api, "/api/sessions/s/messages/", "items", limit=limit, newest_first=newest_first)
        numbers = list(range(7))
        assert [row["n"] for row in rows] == (numbers[::-1] if newest_first else numbers)
        assert pages == -(-7 // limit)

    def test_a_cursor_keeps_its_place_while_messages_arrive(self, api, session, store):
        store.append_messages("s", [{"role": "user", "n": n} for n in range(4)])
        first = api.get("/api/sessions/s/messages/", {"newest_first": "true", "limit": 2}).json()
        store.append_messages("s", [{"role": "user", "n": 4}])
        query = {"newest_first": "true", "limit": 2, "cursor": first["next_cursor"]}
        second = api.get("/api/sessions/s/messages/", query).json()
        assert [row["n"] for row in first["items"] + second["items"]] == [3, 2, 1, 0]
        is_problem(
            api.get("/api/sessions/s/messages/", {"cursor": first["next_cursor"]}), 400, "invalid_cursor"
        )

    def test_message_offsets(self, api, session, store):
        store.append_messages("s", [{"role": "user", "n": n} for n in range(5)])
        page = api.get("/api/sessions/s/messages/", {"offset": 3, "limit": 1}).json()
        assert [row["n"] for row in page["items"]] == [3]
        assert (page["total"], page["next_cursor"] is None) == (5, False)
        page = api.get("/api/sessions/s/messages/", {"offset": 3, "newest_first": "1"}).json()
        assert [row["n"] for row in page["items"]] == [1, 0]
        assert page["next_cursor"] is None
        assert api.get("/api/sessions/s/messages/", {"offset": 50}).json()["items"] == []
        is_problem(api.get("/api/sessions/s/messages/", {"offset": 1, "cursor": "x"}), 400, "invalid_input")

    def test_the_others(self, api, session, store):
        for number in range(5):
            store.create_run("s", run_id=f"r{number}")
            store.update_run_status("s", f"r{number}", "completed")
            store.create_checkpoint("s", {"checkpoint_id": f"c{number}"})
            store.stage_changes("s", "step", f"t{number}", [])
            store.add_sub_session_refs("s", [{"sub_session_id": f"u{number}", "agent_type": "a"}])
        for name, key, wanted in (
            ("runs", "run_id", ["r4", "r3", "r2", "r1", "r0"]),
            ("checkpoints", "checkpoint_id", ["c4", "c3", "c2", "c1", "c0"]),
            ("staging", "tool_call_id", ["t0", "t1", "t2", "t3", "t4"]),
            ("sub-sessions", "sub_session_id", ["u0", "u1", "u2", "u3", "u4"]),
        ):
            rows, pages = walk(api, f"/api/sessions/s/{name}/", limit=2)
            assert [row[key] for row in rows] == wanted
            assert pages == 3
        events, _ = walk(api, "/api/sessions/s/events/", limit=4)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert len(events) == store.load_state("s").head_seq


class TestSessionFilters:
    @pytest.fixture(autouse=True)
    def _sessions(self, user, store):
        now = timezone.now()
        store.create_session(
            "root", agent_type="a", owner=user, tags=["x", "y"], metadata={"tier": "gold", "n": 1}
        )
        store.create_session("child", agent_type="b", owner=user, parent_session_id="root", user_id="u")
        store.create_session("late", agent_type="a", owner=user, expires_at=now + timedelta(days=1))
        store.update_status("child", "failed")
        store.set_interrupt_flag("late")
        state = store.load_state("root")
        store.save_state("root", replace(state, pending_client_tool_calls={"c": {}}))

    def found(self, api, **query):
        response = api.get("/api/sessions/", query)
        assert response.status_code == 200, response.content
        return {item["session_id"] for item in response.json()["items"]}

    @each(
        ("query", "wanted"),
        [
            ({"status": "failed"}, {"child"}),
            ({"agent_type": "a"}, {"root", "late"}),
            ({"user_id": "u"}, {"child"}),
            ({"tag": "y"}, {"root"}),
            ({"metadata_key": "tier"}, {"root"}),
            ({"metadata_key": "gold"}, set()),
            ({"metadata": '{"tier": "gold", "n": 1}'}, {"root"}),
            ({"metadata": '{"n": "1"}'}, set()),
            ({"parent_session_id": "root"}, {"child"}),
            ({"awaiting_client": "true"}, {"root"}),
            ({"awaiting_client": "false"}, {"child", "late"}),
            ({"interrupt_requested": "true"}, {"late"}),
            ({"interrupt_requested": "false"}, {"root", "child"}),
            ({"agent_type": "a", "tag": "x"}, {"root"}),
        ],
    )
    def test_each(self, query, wanted, api):
        assert self.found(api, **query) == wanted

    def test_runnable(self, api, store):
        everything = {"root", "child", "late"}
        assert self.found(api, runnable="true") == set()
        assert self.found(api, runnable="false") == everything
        store.request_run("late")
        store.request_run("child", at=timezone.now() + timedelta(hours=1))
        assert self.found(api, runnable="true") == {"late"}
        assert self.found(api, runnable="false") == everything - {"late"}
        store.request_run("child")
        page = api.get("/api/sessions/", {"runnable": "true", "limit": 1}).json()
        assert [item["session_id"] for item in page["items"]] == ["late"], "newest first, as every listing"
        assert page["next_cursor"]
        store.acquire_lease("late", "worker", 60)
        assert self.found(api, runnable="true") == {"child"}, "the other has a driver"

    def test_owner(self, api, user, stranger):
        assert len(self.found(api, owner=user.pk)) == 3
        assert self.found(api, owner=stranger.pk) == set()

    def test_times(self, api, store):
        states = {name: store.load_state(name) for name in ("root", "child", "late")}
        at = states["child"].created_at.isoformat()
        assert self.found(api, created_after=at) == {"late"}
        assert self.found(api, created_before=at) == {"root"}
        at = max(state.updated_at for state in states.values()).isoformat()
        assert self.found(api, updated_after=at) == set()
        assert len(self.found(api, updated_before=at)) == 2
        now = timezone.now().isoformat()
        assert self.found(api, expires_after=now) == {"late"}
        assert self.found(api, expires_before=now) == set()

    @each(
        "query",
        [
            {"status": "sleeping"},
            {"created_after": "yesterday"},
            {"created_after": "2030-01-01T00:00:00"},
            {"created_after": "0001-01-01T00:00:00+23:00"},
            {"metadata": "[1]"},
            {"metadata": '{"a": {}}'},
            {"metadata": '{"a": "\\u0000"}'},
            {"tag": "a\x00"},
            {"owner": "nobody"},
            {"owner": "9" * 40},
            {"stauts": "active"},
        ],
    )
    def test_nonsense_is_refused(self, query, api):
        is_problem(api.get("/api/sessions/", query), 400, "invalid_input")


def test_run_filters(api, session, store):
    for number, status in enumerate(("completed", "failed", "running")):
        store.create_run("s", run_id=f"r{number}")
        if status != "running":
            store.update_run_status("s", f"r{number}", status)

    def found(**query):
        return [run["run_id"] for run in api.get("/api/sessions/s/runs/", query).json()["items"]]

    assert found(status="failed") == ["r1"]
    started = store.get_run("s", "r1").started_at.isoformat()
    assert (found(started_after=started), found(started_before=started)) == (["r2"], ["r0"])
    ended = store.get_run("s", "r1").ended_at.isoformat()
    assert (found(ended_after=ended), found(ended_before=ended)) == ([], ["r0"])
    assert api.get("/api/sessions/s/runs/", {"status": "no"}).status_code == 400


def test_links_are_absolute_and_json_is_json(api, user, store):
    for number in range(2):
        store.create_session(f"s{number}", agent_type="a", owner=user)
    response = api.get("/api/sessions/", {"limit": 1})
    assert response["Link"].startswith("<http://testserver/api/sessions/?")
    assert response["Content-Type"] == "application/json"
    assert json.loads(response.content)["next_cursor"] in response["Link"]
