"""Closed to strangers, and every id of somebody else's is like an unknown one."""

import json
from dataclasses import replace

import pytest
from django.contrib.auth.models import AnonymousUser
from rest_framework.test import APIClient

from helix_sessions.exceptions import InvalidAnswerLink, SessionNotFound, StillWaiting, UnknownToolCall
from helix_sessions.store import SessionStore
from tests.api.filled import fill, headers_of, prepare
from tests.api.routes import BODIES, QUERIES, address, every_method, of_a_session
from tests.rows import each, rolled_back

MAY_CREATE = {("put", "session"), ("post", "attach"), ("post", "turns")}

UNDER_A_LEASE = {("put", "lease"), ("delete", "lease")}
"""For the holder of a lease; see `test_leases`."""

OPERATED = (
    *("tool-rules", "tool-rule"),
    *("webhooks", "webhook", "webhook-deliveries", "replay-delivery"),
    *("spend", "spend-limits", "spend-limit"),
    *("schedules", "schedule", "run-schedule", "schedule-firings"),
)
"""For operators; see `test_tool_rules`, `test_webhooks`, `test_spend` and `test_schedules`."""

every_call = each(("method", "name"), every_method())


@pytest.mark.django_db
class TestEveryMethod:
    @every_call
    def test_is_closed_to_anonymous_users(self, method, name):
        response = getattr(APIClient(), method)(address(name, "s"), BODIES.get((method, name)), format="json")
        assert response.status_code == 401
        assert response["Content-Type"] == "application/problem+json"
        assert response.json()["code"] == "not_authenticated"
        assert response["WWW-Authenticate"] == "Bearer"

    @every_call
    def test_works_for_the_owner(self, method, name, api, filled, store):
        if (method, name) in UNDER_A_LEASE or name in OPERATED:
            return
        if method == "post":
            prepare(store, filled, name)
        body = {**BODIES[method, name], "run_id": "r2"} if (method, name) == ("post", "runs") else None
        path = address(name, filled) + QUERIES.get((method, name), "")
        headers = headers_of(store, filled, method, name)
        response = getattr(api, method)(path, body or BODIES.get((method, name)), headers=headers)
        assert response.status_code < 300, response.content

    @every_call
    def test_works_without_the_last_slash(self, method, name, api, filled, store):
        path = address(name, filled)
        if name in ("root", *OPERATED) or (method, name) in {("post", "runs"), *UNDER_A_LEASE}:
            return
        if method == "post":
            prepare(store, filled, name)
        bare = path[:-1] + QUERIES.get((method, name), "")
        headers = headers_of(store, filled, method, name)
        assert getattr(api, method)(bare, BODIES.get((method, name)), headers=headers).status_code < 300


@pytest.mark.django_db
@each(("method", "name"), sorted(set(of_a_session()) - MAY_CREATE))
def test_a_foreign_id_is_like_an_unknown_one(method, name, client_of, stranger, filled, store):
    before, staged = store.load_state(filled), store.get_staged_changes(filled)
    client = client_of(stranger)
    foreign = getattr(client, method)(address(name, "s"), BODIES.get((method, name)))
    unknown = getattr(client, method)(address(name, "u"), BODIES.get((method, name)))
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.content == unknown.content.replace(b"'u'", b"'s'")
    changing = {"Content-Length": "", "X-Request-ID": ""}
    assert {**foreign.headers, **changing} == {**unknown.headers, **changing}
    assert (store.load_state(filled), store.get_staged_changes(filled)) == (before, staged)


@pytest.mark.django_db
@each("header", ["If-Match", "If-None-Match"])
def test_conditions_tell_nothing_about_a_foreign_session(header, client_of, stranger, session):
    client = client_of(stranger)
    for method, name in set(of_a_session()) - MAY_CREATE:
        response = getattr(client, method)(
            address(name, session), BODIES.get((method, name)), headers={header: '"99"'}
        )
        assert response.status_code == 404


@pytest.mark.django_db
def test_taking_a_foreign_id_is_refused(client_of, stranger, session, store):
    client = client_of(stranger)
    before = store.load_state(session)
    for response in (
        client.put("/api/sessions/s/", {"agent_type": "mine"}),
        client.post("/api/sessions/", {"session_id": "s", "agent_type": "mine"}),
    ):
        assert (response.status_code, response.json()["code"]) == (409, "session_exists")
    assert client.post("/api/sessions/s/attach/").status_code == 404
    assert client.post("/api/sessions/s/turns/", {"message": "mine"}).status_code == 404
    assert store.load_state(session) == before


@pytest.mark.django_db
class TestPermissions:
    def test_view_all_reads_and_only_reads(self, client_of, stranger, session, store, grant):
        fill(store, session)
        client = client_of(grant(stranger, "view_all_sessions"))
        for method, name in of_a_session():
            response = getattr(client, method)(address(name, session), BODIES.get((method, name)))
            if method == "get":
                assert response.status_code == 200, name
            elif (method, name) not in MAY_CREATE:
                assert response.status_code == 403, (method, name)
        listed = {item["session_id"] for item in client.get("/api/sessions/").json()["items"]}
        assert {"s", "sub"} <= listed
        assert client.patch("/api/sessions/u/metadata/", {}).status_code == 404

    def test_manage_all_does_everything(self, client_of, stranger, filled, store, grant, user):
        client = client_of(grant(stranger, "manage_all_sessions"))
        for method, name in of_a_session():
            if (method, name) in {*UNDER_A_LEASE, ("delete", "session"), ("post", "runs"), ("post", "clone")}:
                continue
            with rolled_back():
                if method == "post":
                    prepare(store, filled, name)
                headers = headers_of(store, filled, method, name)
                response = getattr(client, method)(
                    address(name, filled), BODIES.get((method, name)), headers=headers
                )
            assert response.status_code < 300, (method, name, response.content)
        branch = client.post("/api/sessions/s/clone/", {"new_id": "branch"}).json()
        assert branch["owner_id"] == user.pk
        assert client.delete("/api/sessions/s/").status_code == 204
        assert not store.session_exists("s")

    def test_only_managers_create_for_others(self, api, client_of, user, stranger, store, grant):
        body = {"session_id": "for eve", "agent_type": "a", "owner": stranger.pk}
        assert api.post("/api/sessions/", body).status_code == 403
        manager = client_of(grant(user, "manage_all_sessions"))
        assert manager.post("/api/sessions/", body).status_code == 201
        assert store.load_state("for eve").owner_id == stranger.pk
        assert manager.post("/api/sessions/", {"session_id": "own", "agent_type": "a"}).status_code == 201
        assert store.load_state("own").owner_id == user.pk

    def test_users_list_their_own(self, api, session, store, stranger):
        store.create_session("hers", agent_type="test", owner=stranger)
        store.create_session("nobody's", agent_type="test")
        assert [item["session_id"] for item in api.get("/api/sessions/").json()["items"]] == ["s"]
        assert api.get(f"/api/sessions/?owner={stranger.pk}").json()["items"] == []


@pytest.mark.django_db
class TestTrees:
    def test_a_foreign_parent_is_unknown(self, client_of, stranger, session):
        body = {"agent_type": "a", "parent_session_id": session}
        response = client_of(stranger).post("/api/sessions/", body)
        assert (response.status_code, response.json()["code"]) == (404, "session_not_found")

    def test_deleting_does_not_reach_foreign_sessions(self, client_of, stranger, session, store):
        client = client_of(stranger)
        client.put("/api/sessions/trap/", {"agent_type": "a"})
        refs = [{"sub_session_id": session, "agent_type": "test"}]
        assert client.post("/api/sessions/trap/sub-sessions/", {"refs": refs}).status_code == 201
        assert client.delete("/api/sessions/trap/").status_code == 204
        assert store.session_exists(session)


@pytest.mark.django_db(transaction=True)
class TestNamesOfForeignSessions:
    """Calls take ids of other sessions beside the one they are about; those of strangers are unknown."""

    @pytest.fixture
    def theirs(self, session, stranger):
        """A store that knows the stranger's sessions only, one of which has a run."""
        theirs = SessionStore(owned_by=stranger)
        theirs.begin_turn("trap", run_id="r")
        return theirs

    def test_an_awaited_child_tells_nothing(self, theirs, session, store):
        store.update_status(session, "completed", output="a secret")
        wait = {"parent_tool_call_id": "c", "sub_session_id": session, "agent_type": "a"}
        state = theirs.load_state("trap")
        theirs.suspend("trap", "awaiting_children", state=state, run_id="r", awaiting_children=[wait])
        with pytest.raises(StillWaiting):
            theirs.resume("trap")
        theirs.rewind("trap")
        assert "a secret" not in str(theirs.load_state("trap"))

    def test_one_s_own_child_does_whoever_owns_it(self, theirs, store):
        store.create_session("child", agent_type="a", parent_session_id="trap")
        store.update_status("child", "completed", output=1)
        wait = {"parent_tool_call_id": "c", "sub_session_id": "child", "agent_type": "a"}
        state = theirs.load_state("trap")
        theirs.suspend("trap", "awaiting_children", state=state, run_id="r", awaiting_children=[wait])
        assert [message["content"] for message in theirs.resume("trap").tool_messages] == [1]

    def test_a_running_child_is_not_failed(self, theirs, session, store):
        store.create_run(session, run_id="r")
        theirs.add_sub_session_refs("trap", [{"sub_session_id": session, "agent_type": "a"}])
        theirs.suspend("trap", "step_partial", state=theirs.load_state("trap"), run_id="r")
        assert store.load_state(session).status == "active"
        assert store.get_current_run(session) is not None

    def test_a_call_is_not_answered_through_a_saved_map(self, theirs, session, store):
        fill(store, session)
        prepare(store, session, "tool-results")
        before = store.load_state(session)
        forged = replace(theirs.load_state("trap"), client_tool_call_ownership={"call": session})
        theirs.save_state("trap", forged)
        with pytest.raises(UnknownToolCall):
            theirs.submit_tool_result("trap", "call", result="forged")
        assert store.load_state(session) == before

    def test_a_root(self, theirs, session, store):
        with pytest.raises(SessionNotFound):
            theirs.create_session("below", agent_type="a", root_session_id=session)
        assert (
            theirs.create_session("below", agent_type="a", root_session_id="trap").root_session_id == "trap"
        )


OWNED_STORE_CALLS: dict[str, tuple[object, ...]] = {
    "acquire_lease": ("worker", 30),
    "admit_input": ("hello",),
    "append_messages": ([],),
    "cancel_input": ("i",),
    "count_inputs": (),
    "get_occupancy": (),
    "page_of_inputs": (),
    "get_lease": (),
    "list_inputs": (),
    "promote_inputs": ("steer",),
    "set_delivery": ("i", "queue"),
    "check_interrupt_flag": (),
    "check_session_version": (1,),
    "clear_interrupt_flag": (),
    "clone_session": ("branch",),
    "create_answer_link": ("call",),
    "compare_and_set_status": (["active"], "paused"),
    "create_checkpoint": (),
    "create_run": (),
    "detach": (),
    "discard_staging": (),
    "end_run": ("r", "completed"),
    "emit_event": ("note",),
    "get_checkpoint": ("c",),
    "get_current_run": (),
    "get_event_texts": (None,),
    "get_events": (),
    "get_latest_checkpoint": (),
    "get_message_count": (),
    "get_message_texts": (),
    "get_messages": (),
    "get_metadata": (),
    "get_run": ("r",),
    "get_session_head": (),
    "get_notes": (),
    "get_staged_changes": (),
    "get_sub_session_refs": (),
    "has_staged_changes": (),
    "increment_resume_count": (),
    "increment_step_count": (),
    "list_checkpoints": (),
    "list_runs": (),
    "list_staged_changes": (),
    "list_sub_session_refs": (),
    "load_state": (),
    "merge_custom_state": ([],),
    "patch_metadata": ({"a": 1},),
    "update_session": (),
    "open_step": ("step", {"role": "assistant", "content": "x"}),
    "peek_interrupt_flag": (),
    "promote_staging": ("step",),
    "publish_fragment": ("hel",),
    "put_notes": ({"a": 1},),
    "remove_notes": (["a"],),
    "query_runs": (),
    "save_state": (),
    "save_state_and_promote_staging": (),
    "set_interrupt_flag": (),
    "subscribe": (),
    "stage_changes": ("step", "call", []),
    "truncate_messages": (0,),
    "add_sub_session_refs": ([],),
    "update_run_status": ("r", "completed"),
    "update_status": ("paused",),
    "update_sub_session_ref": ("sub",),
    "wake": (),
    "archive_events": (),
    "compact": (str, {"context_window": None}),
    "get_context": (),
    "get_context_epoch": (),
    "list_compactions": (),
    "attach_blob": (b"content",),
    "give_feedback": (1, "up"),
    "list_feedback": (),
    "get_blob": ("a" * 64,),
    "move_session": ("there",),
    "reconcile_context": ([],),
    "recover_run": (),
    "begin_turn": (),
    "request_run": (),
    "retry_run": (),
    "get_usage": (),
    "resume": (),
    "rewind": (),
    "regenerate": (),
    "set_expiry": (None,),
    "settle_child": ("completed",),
    "submit_tool_result": ("call",),
}
OPTIONS: dict[str, dict[str, object]] = {
    "attach_blob": {"media_type": "image/png"},
    "get_event_texts": {"limit": 1},
    "open_step": {"run_id": "r"},
    "submit_tool_result": {"result": 1},
}
NOT_ABOUT_ONE_SESSION = {
    "put_blob",
    "open_blob",
    "ensure_session",
    "is_lease_live",
    "list_abandoned",
    "set_tool_rule",
    "list_tool_rules",
    "delete_tool_rule",
    *("create_webhook", "get_webhook", "list_webhooks", "update_webhook", "delete_webhook"),
    *("list_webhook_deliveries", "replay_webhook_delivery", "send_webhooks"),
    *("set_spend_limit", "list_spend_limits", "delete_spend_limit", "spend_status"),
    *("create_schedule", "get_schedule", "list_schedules", "update_schedule", "delete_schedule"),
    *("list_schedule_firings", "run_schedule", "fire_schedules"),
    "list_runnable",
    "list_unattended",
    "fenced",
    "release_lease",
    "renew_lease",
    "get_instructions",
    "list_instructions_revisions",
    "set_instructions",
    "archive_long_logs",
    "cleanup_debris",
    "erase_user",
    "examine_sessions",
    "expired_session_cleanup",
    "export_sessions",
    "find_notes",
    "import_sessions",
    "prune_audit_trail",
    "prune_sessions",
    "rotate_encryption",
    "settle_expired_calls",
    "suspend",
    "answer_once",
    "attach",
    "cleanup_orphaned_staging",
    "create_session",
    "delete_session",
    "list_sessions",
    "move_owner",
    "page_of_runs",
    "page_of_sessions",
    "project_messages",
    "prune_idempotency_keys",
    "query_sessions",
    "read_answer_link",
    "session_exists",
    "submit_by_answer_link",
}


@pytest.mark.django_db(transaction=True)
class TestOwnedStore:
    """Outside a transaction, because there a store may write on rows that its connection remembers."""

    def calls(self):
        return {name for name in dir(SessionStore) if not name.startswith("_")}

    def test_every_call_is_known_here(self):
        """A new call of the store must be proven not to reach another owner's session."""
        assert self.calls() == set(OWNED_STORE_CALLS) | NOT_ABOUT_ONE_SESSION

    def test_a_foreign_session_is_unknown(self, session, store, stranger):
        fill(store, session)
        before = store.load_state(session)
        theirs = SessionStore(owned_by=stranger)
        for name, arguments in OWNED_STORE_CALLS.items():
            if name.startswith("save_state"):
                arguments = (before,)
            options = OPTIONS.get(name, {})
            with pytest.raises(SessionNotFound):
                getattr(theirs, name)(session, *arguments, **options)
            assert store.load_state(session) == before, name

    def test_calls_about_many_sessions(self, session, store, stranger):
        from datetime import timedelta

        fill(store, session)
        theirs = SessionStore(owned_by=stranger)
        assert not theirs.session_exists(session)
        theirs.delete_session(session)
        assert theirs.cleanup_orphaned_staging(older_than=timedelta(0)) == 0
        assert theirs.list_sessions().items == []
        assert list(theirs.query_sessions()) == []
        store.admit_input(session, "hello")
        store.acquire_lease(session, "worker", 0)
        assert (len(store.list_abandoned()), len(store.list_unattended())) == (1, 1)
        assert theirs.list_abandoned() == theirs.list_unattended() == theirs.list_runnable() == []
        with pytest.raises(SessionNotFound):
            theirs.attach(session)
        with pytest.raises(SessionNotFound):
            theirs.ensure_session(session, agent_type="a")
        lease = store.acquire_lease(session, "other", 30)
        for call in (lambda: theirs.renew_lease(lease, 30), lambda: theirs.release_lease(lease)):
            with pytest.raises(SessionNotFound):
                call()
        assert store.get_lease(session) == lease
        with pytest.raises(SessionNotFound):
            theirs.create_session("child", agent_type="a", parent_session_id=session)
        with pytest.raises(ValueError, match="own owner"):
            theirs.create_session("other", agent_type="a", owner=store.load_state(session).owner_id)
        assert theirs.create_session("own", agent_type="a").owner_id == stranger.pk
        assert store.has_staged_changes(session)
        prepare(store, session, "answer-links")
        token = store.create_answer_link(session, "call").token
        with pytest.raises(InvalidAnswerLink):
            theirs.read_answer_link(token)
        with pytest.raises(InvalidAnswerLink):
            theirs.submit_by_answer_link(token, result=1)

    def test_nobody_is_no_owner(self):
        with pytest.raises(ValueError, match="owner"):
            SessionStore(owned_by=None)
        with pytest.raises(ValueError, match="not the key"):
            SessionStore(owned_by=AnonymousUser())


def test_every_body_is_json():
    json.dumps(list(BODIES.values()))
