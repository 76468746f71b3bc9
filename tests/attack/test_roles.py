"""Every address by every kind of user: who is refused, and in which words.

The table of participants is in `access`; it is held against the URL conf, so an address that nobody thought
about fails.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import override_settings
from rest_framework.test import APIClient

from helix_sessions.api.policy import PARTICIPANT_VERBS
from helix_sessions.api.urls import ROUTES
from helix_sessions.api.views.sessions import RootView
from helix_sessions.api.views.stream import StreamView
from tests.api.conftest import driver
from tests.api.filled import fill, headers_of, prepare
from tests.api.routes import BODIES, QUERIES, address, every_method
from tests.api.test_who_may import OPERATED, UNDER_A_LEASE
from tests.attack.access import ACCESS, PARTICIPANT
from tests.invariants import dump
from tests.rows import rolled_back

pytestmark = pytest.mark.django_db

ANY_TYPE = override_settings(
    HELIX_SESSIONS={
        "PARTICIPANT_AGENT_TYPES": "*",
        "SUMMARIZER": "project.summaries.brief",
        "BLOB_STORAGE": "blobs",
    }
)
STREAM = ("get", "event-stream")


def a_user(name: str, *permissions: str, **more: Any) -> Any:
    user = get_user_model().objects.create_user(name, **more)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return user


def calls() -> Iterator[tuple[str, str]]:
    yield from (pair for pair in every_method() if pair not in UNDER_A_LEASE and pair[1] not in OPERATED)


def sent(client: APIClient, method: str, name: str, headers: dict[str, str] | None = None) -> Any:
    body = {"run_id": "r2"} if (method, name) == ("post", "runs") else BODIES.get((method, name))
    return getattr(client, method)(
        address(name, "s") + QUERIES.get((method, name), ""), body, headers=headers
    )


@pytest.fixture
def answers(store, client_of) -> Callable[..., dict[tuple[str, str], Any]]:
    """What one user is answered at every address, about a session of `owner` that is whole each time."""

    def asked(user: Any, owner: Any) -> dict[tuple[str, str], Any]:
        client = APIClient() if user is None else client_of(user)
        client.default_format = "json"
        found = {}
        with rolled_back():
            store.create_session("s", agent_type="test", owner=owner)
            fill(store, "s")
            for method, name in calls():
                with rolled_back():
                    if method == "post":
                        prepare(store, "s", name)
                    found[method, name] = sent(client, method, name, headers_of(store, "s", method, name))
        return found

    return asked


def is_allowed(method: str, name: str) -> bool:
    return method in PARTICIPANT.get(name, ())


class TestTheTable:
    def test_names_no_address_that_does_not_exist(self):
        routed = {*every_method(), STREAM}
        assert {(method, name) for name in PARTICIPANT for method in PARTICIPANT[name]} <= routed
        assert set(PARTICIPANT) <= set(ACCESS)

    def test_every_method_has_a_verb_and_the_verbs_of_participants_are_those_of_the_table(self):
        views: dict[str, Any] = {name: view for _, view, name in ROUTES}
        views |= {"root": RootView, "event-stream": StreamView}
        verbs = {pair: getattr(views[pair[1]], pair[0]).verb for pair in (*every_method(), STREAM)}
        assert all(verbs.values())
        allowed = {verb for (method, name), verb in verbs.items() if is_allowed(method, name)}
        assert allowed == PARTICIPANT_VERBS & set(verbs.values())
        shared = {verbs[pair] for pair in verbs if not is_allowed(*pair)} & allowed
        assert not shared, f"{shared} would let participants in elsewhere too"


@ANY_TYPE
def test_a_participant_may_what_the_table_says_and_nothing_else(answers, participant):
    for (method, name), answer in answers(participant, participant).items():
        if is_allowed(method, name):
            assert answer.status_code < 300, (method, name, answer.content)
        else:
            assert answer.status_code == 403, (method, name, answer.content)
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert answer.json()["code"] == "permission_denied"
            assert "takes the permission helix_sessions." in answer.json()["detail"], (method, name)


@ANY_TYPE
def test_a_refused_participant_has_changed_nothing(participant, client_of, store):
    store.create_session("s", agent_type="test", owner=participant)
    fill(store, "s")
    before = store.load_state("s")
    for method, name in calls():
        if not is_allowed(method, name):
            sent(client_of(participant), method, name)
            assert store.load_state("s") == before, (method, name)


def test_a_driver_may_everything_with_what_they_own(answers):
    owner = driver("dora")
    for pair, answer in answers(owner, owner).items():
        assert answer.status_code < 300, (pair, answer.content)


OTHERS: dict[str, Callable[[], Any]] = {
    "a stranger": lambda: a_user("eve"),
    "a stranger who drives their own": lambda: driver("eve"),
    "staff without a permission": lambda: a_user("eve", is_staff=True),
}


@ANY_TYPE
@pytest.mark.parametrize("who", OTHERS)
def test_a_foreign_session_is_unknown(who, answers, participant):
    for (method, name), answer in answers(OTHERS[who](), participant).items():
        if ACCESS[name][method] != "own":
            continue
        assert answer.status_code == 404, (method, name, answer.content)
        assert answer.json()["code"] == "session_not_found", (method, name)


def test_nobody_gets_in_without_a_login(answers, participant):
    for pair, answer in answers(None, participant).items():
        assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated"), pair


@pytest.mark.parametrize("permission", ["manage_all_sessions", "drive_any_session"])
def test_who_drives_any_session_may_everything(permission, answers, participant):
    for pair, answer in answers(a_user("op", permission, is_staff=True), participant).items():
        assert answer.status_code < 300, (pair, answer.content)


def test_who_views_all_sessions_reads_and_only_reads(answers, participant):
    for (method, name), answer in answers(a_user("op", "view_all_sessions"), participant).items():
        if ACCESS[name][method] == "own":
            assert answer.status_code == (200 if method == "get" else 403), (method, name, answer.content)


def test_what_operators_do_takes_their_permission(store, participant, client_of):
    rule = store.set_tool_rule("refund", "ask").rule_id
    calls = [("get", "tool-rules/"), ("post", "tool-rules/"), ("get", f"tool-rules/{rule}/")]
    calls.append(("delete", f"tool-rules/{rule}/"))
    body = BODIES["post", "tool-rules"]
    for user in (participant, driver("dora"), a_user("clerk", is_staff=True)):
        for method, path in calls:
            answer = getattr(client_of(user), method)(f"/api/{path}", body if method == "post" else None)
            assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied"), (method, path)
    assert [each.rule_id for each in store.list_tool_rules()] == [rule]
    operator = client_of(a_user("op", "change_toolrule"))
    for method, path in calls:
        answer = getattr(operator, method)(f"/api/{path}", body if method == "post" else None)
        assert answer.status_code < 300, (method, path, answer.content)
    assert store.list_tool_rules() == []


def test_webhooks_take_their_own_permission(store, participant, client_of):
    hook = store.create_webhook("https://hooks.example.com/").webhook_id
    store.create_session("s", agent_type="test")
    store.update_status("s", "failed")
    [delivery] = store.list_webhook_deliveries(hook).items
    calls = [
        ("get", "webhooks/", None),
        ("post", "webhooks/", BODIES["post", "webhooks"]),
        ("get", f"webhooks/{hook}/", None),
        ("patch", f"webhooks/{hook}/", {"url": "https://evil.example/"}),
        ("get", f"webhooks/{hook}/deliveries/", None),
        ("post", f"webhooks/{hook}/deliveries/{delivery.message_id}/replay/", None),
        ("delete", f"webhooks/{hook}/", None),
    ]
    before = store.list_webhooks()
    others = (
        *(participant, driver("dora"), a_user("clerk", is_staff=True)),
        *(a_user("rules", "change_toolrule"), a_user("boss", "manage_all_sessions")),
    )
    for user in others:
        for method, path, body in calls:
            answer = getattr(client_of(user), method)(f"/api/{path}", body)
            assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied"), (user, path)
    assert store.list_webhooks() == before
    operator = client_of(a_user("op", "change_webhook"))
    for method, path, body in calls:
        answer = getattr(operator, method)(f"/api/{path}", body)
        assert answer.status_code < 300, (method, path, answer.content)
        assert ("whsec_" in answer.content.decode()) == ((method, path) == ("post", "webhooks/"))


class TestApprovals:
    def ask(self, store, owner, kind="approval"):
        store.create_session("s", agent_type="shop", owner=owner)
        run = store.create_run("s", run_id="r")
        call = {"tool_call_id": "call", "tool_name": "refund", "arguments": {}, "kind": kind}
        store.suspend(
            "s", "client_tool", state=store.load_state("s"), run_id=run.run_id, pending_calls=[call]
        )

    def test_are_not_for_participants(self, store, participant, client_of):
        self.ask(store, participant)
        before = store.load_state("s")
        for answer in ({"approved": True}, {"approved": False}, {"error": "no"}):
            refused = client_of(participant).post(
                "/api/sessions/s/tool-results/", {"tool_call_id": "call", **answer}
            )
            assert refused.status_code == 403, answer
        assert store.load_state("s") == before

    def test_through_the_root_are_not_either(self, store, participant, client_of):
        store.create_session("root", agent_type="shop", owner=participant)
        store.create_session("s", agent_type="shop", owner=participant, parent_session_id="root")
        store.create_run("s", run_id="r")
        call = {"tool_call_id": "call", "tool_name": "refund", "arguments": {}, "kind": "approval"}
        store.suspend("s", "client_tool", state=store.load_state("s"), run_id="r", pending_calls=[call])
        body = {"tool_call_id": "call", "approved": True}
        assert client_of(participant).post("/api/sessions/root/tool-results/", body).status_code == 403

    def test_of_a_tool_that_leaves_them_to_participants(self, store, participant, client_of):
        self.ask(store, participant)
        settings = {"AGENTS": {"shop": "tests.attack.agents.lenient"}}
        body = {"tool_call_id": "call", "approved": True}
        with override_settings(HELIX_SESSIONS=settings):
            answer = client_of(participant).post("/api/sessions/s/tool-results/", body)
        assert (answer.status_code, answer.json()["outcome"]) == (200, "accepted")

    def test_are_remembered_by_participants_for_the_session_only(self, store, participant, client_of):
        """And where the entry of the call says so, which the loop has written."""
        store.create_session("s", agent_type="shop", owner=participant)
        call = {"tool_name": "refund", "arguments": {"cents": 5}, "kind": "approval"}
        pending = [
            {**call, "tool_call_id": "theirs", "approver": "participant"},
            {**call, "tool_call_id": "ours"},
            {**call, "tool_call_id": "client", "kind": "client_tool"},
        ]
        store.create_run("s", run_id="r")
        store.suspend("s", "client_tool", state=store.load_state("s"), run_id="r", pending_calls=pending)
        client, before = client_of(participant), dump()
        for body in (
            {"tool_call_id": "theirs", "approved": True, "remember": "owner"},
            {"tool_call_id": "ours", "approved": True, "remember": "session"},
            {"tool_call_id": "ours", "approved": True, "remember": "owner"},
            {"tool_call_id": "ours", "approved": True, "arguments": {"cents": 500_000}},
            {"tool_call_id": "client", "approved": True, "remember": "session"},
        ):
            refused = client.post("/api/sessions/s/tool-results/", body)
            assert (refused.status_code, refused.json()["code"]) == (403, "answer_forbidden"), body
            assert refused["Content-Type"] == "application/problem+json"
        foreign = client_of(a_user("eve")).post(
            "/api/sessions/s/tool-results/", {"tool_call_id": "theirs", "approved": True}
        )
        assert foreign.status_code == 404
        assert dump() == before
        body = {"tool_call_id": "theirs", "approved": True, "remember": "session"}
        assert client.post("/api/sessions/s/tool-results/", body).json()["outcome"] == "accepted"
        assert [(rule.session_id, rule.owner_id) for rule in store.list_tool_rules()] == [("s", None)]
        by = {"kind": "user", "id": str(participant.pk)}
        assert store.get_events("s", types=["tool_result_submitted"])[-1].data["by"] == by

    def test_by_a_declaration_are_remembered_for_the_session_only_too(self, store, participant, client_of):
        self.ask(store, participant)
        body = {"tool_call_id": "call", "approved": True}
        with override_settings(HELIX_SESSIONS={"AGENTS": {"shop": "tests.attack.agents.lenient"}}):
            client = client_of(participant)
            refused = client.post("/api/sessions/s/tool-results/", {**body, "remember": "owner"})
            other = client.post("/api/sessions/s/tool-results/", {**body, "arguments_digest": "0" * 64})
            done = client.post("/api/sessions/s/tool-results/", {**body, "remember": "session"})
        assert (refused.status_code, other.status_code, done.status_code) == (403, 409, 200)
        assert [rule.session_id for rule in store.list_tool_rules()] == ["s"]

    def test_results_of_client_tools_are_a_participants(self, store, participant, client_of):
        self.ask(store, participant, kind="client_tool")
        body = {"tool_call_id": "call", "result": 1}
        answer = client_of(participant).post("/api/sessions/s/tool-results/", body)
        assert (answer.status_code, answer.json()["outcome"]) == (200, "accepted")


class TestCreating:
    def test_is_limited_to_the_agents_of_the_settings(self, participant, client_of):
        client = client_of(participant)
        with override_settings(HELIX_SESSIONS={"AGENTS": {"shop": "tests.attack.agents.lenient"}}):
            assert client.post("/api/sessions/", {"agent_type": "shop"}).status_code == 201
            assert client.post("/api/sessions/", {"agent_type": "other"}).status_code == 403
            assert client.put("/api/sessions/mine/", {"agent_type": "other"}).status_code == 403
        with override_settings(HELIX_SESSIONS={"PARTICIPANT_AGENT_TYPES": ["other"]}):
            assert client.post("/api/sessions/", {"agent_type": "shop"}).status_code == 403
            assert client.post("/api/sessions/", {"agent_type": "other"}).status_code == 201

    @ANY_TYPE
    def test_sets_nothing_that_an_agent_goes_by(self, participant, client_of, store):
        for name, value in {
            "custom_state": {"credit": 1_000_000},
            "parent_session_id": "s",
            "expires_at": "2999-01-01T00:00:00Z",
            "workspace_ref": {"provider_id": "x"},
            "tracing_context": {},
            "mode": "persistent",
        }.items():
            answer = client_of(participant).post("/api/sessions/", {"agent_type": "a", name: value})
            assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied"), name
        assert store.list_sessions().items == []


class TestPrivateState:
    PATHS = ("", "state/", "events/", "events/projection/", "context/", "events/stream/?after=0&wait=0")

    @pytest.fixture(autouse=True)
    def credit_is_private(self, settings):
        settings.HELIX_SESSIONS = {"PRIVATE_STATE_KEYS": ["credit"], "PARTICIPANT_AGENT_TYPES": "*"}

    def fill(self, store, owner):
        state = {"credit": "swordfish", "cart": []}
        store.create_session("s", agent_type="a", owner=owner, custom_state=state)
        whole = {"op": "set", "path": [], "value": {"credit": "swordfish", "cart": [1]}}
        store.merge_custom_state("s", [whole, {"op": "set", "path": ["credit"], "value": "swordfish"}])
        store.merge_custom_state("s", [{"op": "set", "path": ["cart", 0], "value": "apple"}])

    def test_is_left_out_of_all_a_participant_reads(self, store, participant, client_of):
        self.fill(store, participant)
        client = client_of(participant)
        read = {path: client.get(f"/api/sessions/s/{path}") for path in self.PATHS}
        read["clone"] = client.post("/api/sessions/s/clone/", {"new_id": "b"})
        for path, answer in read.items():
            assert answer.status_code < 300, (path, answer.content)
            assert b"swordfish" not in answer.content, path
        assert read[""].json()["custom_state"] == {"cart": ["apple"]}
        merged = [each for each in read["events/"].json()["items"] if each["type"] == "state_merged"]
        assert merged[0]["data"]["writes"] == [{"op": "set", "path": [], "value": {"cart": [1]}}]
        assert merged[1]["data"]["writes"][0]["value"] == "apple"

    def test_is_left_out_of_what_a_wider_policy_lets_them_do(self, settings, store, participant, client_of):
        settings.HELIX_SESSIONS = {**settings.HELIX_SESSIONS, "API_POLICY": f"{__name__}.LenientPolicy"}
        self.fill(store, participant)
        store.create_checkpoint("s", {"checkpoint_id": "c"})
        client, path = client_of(participant), "/api/sessions/s/"
        read = {
            "merged": client.patch(f"{path}state/", BODIES["patch", "state"]),
            "checkpoints": client.get(f"{path}checkpoints/"),
            "checkpoint": client.get(f"{path}checkpoints/c/"),
            "latest": client.get(f"{path}latest-checkpoint/"),
            "made": client.post(f"{path}checkpoints/", {}),
            "rewound": client.post(f"{path}rewind/", {"checkpoint_id": "c"}),
            "turn": client.post(f"{path}turns/", {"message": "hello"}),
            "action": client.post(f"{path}actions/", {"action": "SuspendSession"}),
        }
        store.stage_changes("s", "step", "call", [{"op": "set", "path": ["credit"], "value": "swordfish"}])
        read["staged"] = client.get(f"{path}staging/")
        read["saved"] = client.put(f"{path}state/", {"custom_state": {"credit": "swordfish"}})
        for what, answer in read.items():
            assert answer.status_code < 300, (what, answer.content)
            assert b"swordfish" not in answer.content, what
        assert store.load_state("s").custom_state["credit"] == "swordfish"

    def test_is_there_for_a_driver_and_an_operator(self, store, client_of):
        owner = driver("dora")
        self.fill(store, owner)
        for user in (owner, a_user("op", "view_all_sessions")):
            assert client_of(user).get("/api/sessions/s/").json()["custom_state"]["credit"] == "swordfish"
            assert b"swordfish" in client_of(user).get("/api/sessions/s/events/").content


class LenientPolicy:
    """A project's own, that lets participants do everything."""

    def may(self, request: Any, verb: str, session: Any) -> bool:
        return True


class ReadOnlyPolicy:
    """A project's own."""

    def may(self, request: Any, verb: str, session: Any) -> bool:
        return verb == "get_messages" and session.agent_type == "shop"


@override_settings(HELIX_SESSIONS={"API_POLICY": "tests.attack.test_roles.ReadOnlyPolicy"})
def test_a_project_has_its_own_policy(store, participant, client_of):
    store.create_session("s", agent_type="shop", owner=participant)
    store.create_session("t", agent_type="other", owner=participant)
    client = client_of(participant)
    assert client.get("/api/sessions/s/messages/").status_code == 200
    assert client.get("/api/sessions/t/messages/").status_code == 403
    refused = client.get("/api/sessions/s/")
    assert (refused.status_code, refused.json()["detail"]) == (403, "This user may not get_session.")
    assert client.get("/api/sessions/unknown/").status_code == 404
