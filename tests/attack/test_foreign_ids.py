"""Users by addresses by ids of others: nothing is read, nothing is written, and nothing is learnt, not even
that something exists."""

import json
import re
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import get_resolver, reverse
from rest_framework.test import APIClient

from helix_sessions.api.views.base import VERSIONED
from helix_sessions.models import Session
from tests.api.filled import fill
from tests.api.routes import BODIES, address, every_method
from tests.attack.access import ACCESS, BY_LINK, CREATES, LISTING, OPEN, OPERATED, OWN
from tests.invariants import dump
from tests.rows import each

pytestmark = pytest.mark.django_db

SECRET = "swordfish-9a2c"
TABLE = sorted((method, name, rule) for name, rules in ACCESS.items() for method, rule in rules.items())
ABOUT_ONE = [(method, name) for method, name, rule in TABLE if rule == OWN and name != "event-stream"]


@pytest.fixture
def victim(store, user, session):
    """A session whose every part holds the secret."""
    fill(store, session)
    store.merge_custom_state(session, [{"op": "set", "path": ["s"], "value": SECRET}])
    store.append_messages(session, [{"role": "user", "content": SECRET}])
    store.emit_event(session, "noted", {"s": SECRET}, idempotency_key=SECRET)
    store.patch_metadata(session, {"s": SECRET, SECRET: 1})
    store.update_status(session, "failed", error=SECRET, failure_reason=SECRET)
    store.set_interrupt_flag(session, SECRET)
    return session


def send(client: Any, method: str, name: str, session_id: str, **options: Any) -> Any:
    return getattr(client, method)(address(name, session_id), BODIES.get((method, name)), **options)


def stored() -> str:
    return repr(dump())


class TestTheTable:
    def test_has_every_address_of_the_api(self):
        routed = set(every_method()) | {("get", "event-stream")}
        assert {(method, name) for method, name, _ in TABLE} == routed

    def test_has_every_name_that_is_mounted(self):
        patterns = get_resolver("helix_sessions.api.urls").url_patterns
        named = {getattr(pattern, "name", None) for pattern in patterns} - {None}
        known = set(ACCESS) | BY_LINK
        assert named == known | {f"{VERSIONED}{name}" for name in known}

    def test_knows_its_own_words(self):
        assert {rule for _, _, rule in TABLE} == {OWN, LISTING, CREATES, OPEN, OPERATED}


def a_user(name: str, **more: Any) -> Any:
    return get_user_model().objects.create_user(name, **more)


OTHERS = {
    "another user": lambda: a_user("mallory"),
    "staff without permissions": lambda: a_user("clerk", is_staff=True),
}


@each("who", OTHERS)
@each(("method", "name"), ABOUT_ONE)
def test_a_foreign_session_is_like_none(method, name, who, victim, client_of):
    client = client_of(OTHERS[who]())
    before = stored()
    foreign = send(client, method, name, victim)
    unknown = send(client, method, name, "u")
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.content.replace(b"'s'", b"'u'") == unknown.content
    assert set(foreign.headers) == set(unknown.headers)
    assert SECRET not in foreign.content.decode()
    assert stored() == before


@each(("method", "name"), ABOUT_ONE)
def test_it_costs_the_same_to_be_told(method, name, victim, client_of, stranger):
    """No clock needed to tell them apart, and none helps: the same statements are run."""

    def statements(session_id: str) -> list[str]:
        client = client_of(get_user_model().objects.get(pk=stranger.pk))
        with CaptureQueriesContext(connection) as caught:
            send(client, method, name, session_id)
        return [re.split(r' WHERE | "s\d+_x\d+"', query["sql"])[0] for query in caught]

    assert statements(victim) == statements("u")


every_address = each(("method", "name", "rule"), TABLE)


class TestStrangers:
    @every_address
    def test_without_a_login(self, method, name, rule, victim):
        before = stored()
        answer = getattr(APIClient(), method)(
            address(name, victim), BODIES.get((method, name)), format="json"
        )
        assert answer.status_code == 401
        assert SECRET not in answer.content.decode()
        assert stored() == before

    @every_address
    def test_with_an_account_that_was_closed(self, method, name, rule, victim, user):
        from project.tokens import create_token

        token = create_token(user, "t")
        get_user_model().objects.filter(pk=user.pk).update(is_active=False)
        client = APIClient(headers={"Authorization": f"Bearer {token}"})
        answer = getattr(client, method)(address(name, victim), BODIES.get((method, name)), format="json")
        assert answer.status_code == 401


class TestTheStream:
    def test_of_a_foreign_session_is_like_none(self, victim, stranger):
        client = Client()
        client.force_login(stranger)
        foreign, unknown = (
            client.get(reverse("helix_sessions:event-stream", args=[key])) for key in (victim, "u")
        )
        assert foreign.status_code == unknown.status_code == 404
        assert foreign.content.replace(b"'s'", b"'u'") == unknown.content

    def test_as_a_long_poll(self, victim, stranger):
        client = Client()
        client.force_login(stranger)
        path = reverse("helix_sessions:events", args=[victim])
        assert client.get(path, {"after": 0, "wait": 1}).status_code in (400, 404)


class TestLists:
    def test_show_nothing_of_others(self, victim, client_of, stranger, store, user):
        client = client_of(stranger)
        every_filter = [
            {},
            {"owner": user.pk},
            {"status": "failed"},
            {"agent_type": "test"},
            {"metadata_key": SECRET},
            {"metadata": json.dumps({"s": SECRET})},
            {"created_after": "2000-01-01T00:00:00Z"},
            {"interrupt_requested": "true"},
        ]
        for query in every_filter:
            answer = client.get("/api/sessions/", query)
            assert answer.status_code == 200
            assert answer.json() == {"items": [], "next_cursor": None}, query
            assert "Link" not in answer

    def test_a_cursor_of_somebody_else_shows_ones_own(self, victim, api, client_of, stranger, store, user):
        for number in range(3):
            store.create_session(f"mine-{number}", agent_type="a", owner=user)
            store.create_session(f"hers-{number}", agent_type="a", owner=stranger)
        cursor = api.get("/api/sessions/", {"limit": 1}).json()["next_cursor"]
        found = client_of(stranger).get("/api/sessions/", {"cursor": cursor, "limit": 500}).json()["items"]
        assert {item["session_id"] for item in found} <= {f"hers-{number}" for number in range(3)}

    def test_cleaning_up_touches_nothing_of_others(self, victim, client_of, stranger, store):
        answer = client_of(stranger).post("/api/staging/cleanup/", {"older_than_seconds": 0})
        assert answer.status_code == 200
        assert SECRET not in answer.content.decode()
        store.wake(victim)
        client_of(stranger).post("/api/staging/cleanup/", {"older_than_seconds": 0})
        assert store.has_staged_changes(victim)


class TestNestedIds:
    """The right session with a part of somebody else's."""

    @pytest.fixture
    def own(self, store, stranger):
        store.create_session("hers", agent_type="a", owner=stranger)
        return "hers"

    @each(
        ("method", "path", "code"),
        [
            ("get", "runs/r/", "run_not_found"),
            ("patch", "runs/r/", "run_not_found"),
            ("get", "checkpoints/c/", "checkpoint_not_found"),
            ("patch", "sub-sessions/sub/", "sub_session_ref_not_found"),
        ],
    )
    def test_a_foreign_part_is_like_none(self, method, path, code, victim, own, client_of, stranger):
        client = client_of(stranger)
        body = {"status": "completed"} if method == "patch" else None
        before = stored()
        foreign = getattr(client, method)(f"/api/sessions/{own}/{path}", body)
        assert (foreign.status_code, foreign.json()["code"]) == (404, code)
        assert stored() == before

    def test_a_branch_from_a_foreign_checkpoint(self, victim, own, client_of, stranger):
        body = {"new_id": "branch", "checkpoint_id": "c"}
        answer = client_of(stranger).post(f"/api/sessions/{own}/clone/", body)
        assert (answer.status_code, answer.json()["code"]) == (404, "checkpoint_not_found")

    def test_a_branch_onto_a_foreign_id(self, victim, own, client_of, stranger, store):
        before = store.load_state(victim)
        answer = client_of(stranger).post(f"/api/sessions/{own}/clone/", {"new_id": victim})
        assert (answer.status_code, answer.json()["code"]) == (409, "session_exists")
        assert store.load_state(victim) == before

    def test_a_reference_to_a_foreign_session_gives_no_access(self, victim, own, client_of, stranger, store):
        client = client_of(stranger)
        refs = {"refs": [{"sub_session_id": victim, "agent_type": "a"}]}
        assert client.post(f"/api/sessions/{own}/sub-sessions/", refs).status_code == 201
        assert client.get(f"/api/sessions/{victim}/").status_code == 404
        assert client.delete(f"/api/sessions/{own}/").status_code == 204
        assert store.session_exists(victim)


class TestIdempotencyKeys:
    def test_belong_to_who_used_them(self, api, client_of, stranger, session):
        body = {"messages": [{"role": "user", "content": SECRET}]}
        key = {"Idempotency-Key": "same"}
        first = api.post("/api/sessions/s/messages/", body, headers=key)
        assert first.status_code == 201
        others = client_of(stranger).post("/api/sessions/s/messages/", body, headers=key)
        assert others.status_code == 404
        assert "Idempotency-Replayed" not in others
        again = api.post("/api/sessions/s/messages/", body, headers=key)
        assert again.content == first.content

    def test_of_an_event_belong_to_its_session(self, client_of, stranger, victim, store):
        store.create_session("hers", agent_type="a", owner=stranger)
        answer = client_of(stranger).post(
            "/api/sessions/hers/events/", {"type": "noted", "data": {}, "idempotency_key": SECRET}
        )
        assert answer.status_code in (200, 201)
        assert answer.json()["data"] == {}


class TestInputIds:
    def test_belong_to_the_owner_of_their_session(self, api, client_of, stranger, session, store):
        """Who guesses one learns nothing, and takes it from nobody."""
        store.create_session("hers", agent_type="a", owner=stranger)
        hers = client_of(stranger).post("/api/sessions/hers/inputs/", {"prompt": "x", "input_id": SECRET})
        mine = api.post("/api/sessions/s/inputs/", {"prompt": "mine", "input_id": SECRET})
        assert (hers.status_code, mine.status_code) == (201, 201)
        again = client_of(stranger).post("/api/sessions/hers/inputs/", {"prompt": "x", "input_id": SECRET})
        assert again.json() == hers.json()


class TestTheAdmin:
    def paths(self) -> list[str]:
        names = ("timeline", "state", "runs", "tree", "staging", "calls", "log", "live")
        found = [reverse(f"admin:helix_sessions_session_{name}", args=["s"]) for name in names]
        return [
            *found,
            reverse("admin:helix_sessions_session_raw", args=["s", "state"]),
            reverse("admin:helix_sessions_session_changelist"),
            reverse("admin:helix_sessions_session_change", args=["s"]),
            "/admin/helix_sessions/",
        ]

    @each(
        "who",
        [{}, {"is_staff": True}],
        ids=["a user who is no staff", "staff without permissions"],
    )
    def test_is_closed(self, who, victim):
        client = Client()
        client.force_login(a_user("mallory", **who))
        for path in self.paths():
            answer = client.get(path, {"after": 0})
            assert answer.status_code in (302, 403, 404), path
            assert SECRET not in answer.content.decode(), path

    def test_actions_are_closed_to_who_may_only_look(self, victim):
        clerk = a_user("clerk", is_staff=True)
        may_look = Permission.objects.get(content_type__app_label="helix_sessions", codename="view_session")
        clerk.user_permissions.add(may_look)
        client = Client()
        client.force_login(clerk)
        before = stored()
        for name in ("interrupt", "expire", "fail", "delete", "export", "branch", "discard_staging"):
            answer = client.post(
                f"/admin/helix_sessions/session/action/{name}/", {"ids": json.dumps([victim]), "reason": "x"}
            )
            assert answer.status_code in (302, 403), name
        client.post(
            reverse("admin:helix_sessions_session_changelist"),
            {"action": "delete", "_selected_action": [victim]},
        )
        assert Session.objects.filter(session_id=victim).exists()
        assert stored() == before


class TestTheDemo:
    @each("path", ["/chat/s/", "/chat/u/"])
    def test_a_chat_is_for_its_owner(self, path, victim, stranger):
        client = Client()
        assert client.get(path).status_code == 302
        client.force_login(stranger)
        assert client.get(path).status_code == 404
        assert client.post(f"{path}branch/", {"position": 0}).status_code == 404
        assert client.get("/chat/").json() == {"items": []}
