"""The status `deleted`: a tombstone that everybody but the runtime treats as absent."""

import io
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from rest_framework.test import APIClient

from helix_sessions.exceptions import SessionExists, SessionNotFound
from helix_sessions.models import Session
from helix_sessions.runtime import ForkSession, ResumeSession, SessionRuntime, WriteMetadata
from helix_sessions.store import SessionStore
from helix_sessions.types import RetentionPolicy
from tests.api.filled import fill
from tests.api.routes import BODIES, address, of_a_session
from tests.api.test_who_may import MAY_CREATE, OPTIONS, OWNED_STORE_CALLS
from tests.rows import each
from tests.runtime.conftest import DEFINITION

HELLO = {"role": "user", "content": "hello"}
pytestmark = pytest.mark.django_db


class Delete:
    def execute_on(self, session):
        return session.with_status("deleted")


@pytest.fixture
def gone(runtime, store, owner):
    """A session with everything a session can have, then deleted by decision."""
    SessionRuntime(SessionStore(owned_by=owner)).create(DEFINITION, session_id="s")
    fill(store, "s")
    store.delete_session("sub")
    store.append_messages("s", [HELLO])
    store.set_interrupt_flag("s")
    return runtime.execute("s", Delete())


@pytest.fixture
def owner(db):
    return get_user_model().objects.create_user("ada")


class TestTheRuntime:
    def test_it_still_sees_it(self, runtime, gone):
        assert gone.status == "deleted"
        assert runtime.get_session("s") == gone
        assert runtime.get_session_info("s") == gone.info
        assert gone.state.messages == [HELLO]

    def test_it_lists_it_when_asked_by_status(self, runtime, gone):
        assert runtime.list_sessions().items == []
        assert runtime.list_sessions(status="deleted").items == [gone.info]

    def test_it_can_take_the_decision_back(self, runtime, gone, store):
        back = runtime.execute("s", ResumeSession())
        assert (back.status, back.version) == ("active", gone.version + 1)
        assert store.load_state("s").message_count == 1
        assert [session.session_id for session in store.list_sessions()] == ["s"]

    def test_its_actions_work(self, runtime, gone):
        assert runtime.execute("s", WriteMetadata("a", 1)).status == "deleted"
        with pytest.raises(SessionNotFound):
            runtime.execute("s", ForkSession("f"))

    def test_its_id_stays_used(self, runtime, gone):
        with pytest.raises(SessionExists):
            runtime.create(DEFINITION, session_id="s")


class TestEverybodyElse:
    @pytest.mark.django_db(transaction=True)
    def test_every_call_of_the_store(self, gone, store):
        other = store.create_session("other", agent_type="a")
        reached = []
        for name, arguments in OWNED_STORE_CALLS.items():
            if name == "begin_turn":  # creates what is absent, see below
                continue
            if name.startswith("save_state"):
                arguments = (other,)
            try:
                getattr(store, name)("s", *arguments, **OPTIONS.get(name, {}))
            except SessionNotFound:
                continue
            reached.append(name)
        assert reached == []

    @pytest.mark.django_db(transaction=True)
    def test_a_row_this_connection_wrote_last(self, runtime, gone, store):
        for _ in range(2):
            runtime.execute("s", ResumeSession())
            store.append_messages("s", [HELLO])
            runtime.execute("s", Delete())
            with pytest.raises(SessionNotFound):
                store.append_messages("s", [HELLO])

    def test_exists_and_listings(self, gone, store, owner):
        assert not store.session_exists("s")
        assert store.list_sessions().items == []
        assert SessionStore(owned_by=owner).list_sessions().items == []
        assert not store.query_sessions().exists()
        assert not Session.objects.filter(session_id="s").exists()

    @each(
        "call",
        [
            lambda store: store.create_session("s", agent_type="a"),
            lambda store: store.begin_turn("s", message="hello"),
            lambda store: store.attach("s"),
            lambda store: store.clone_session("other", "s"),
        ],
        ids=["create_session", "begin_turn", "attach", "clone_session"],
    )
    def test_its_id_is_taken(self, gone, store, call):
        store.create_session("other", agent_type="a")
        with pytest.raises(SessionExists):
            call(store)

    def test_it_is_no_parent(self, gone, store):
        with pytest.raises(SessionNotFound):
            store.create_session("child", agent_type="a", parent_session_id="s")

    @pytest.mark.django_db(transaction=True)
    def test_a_subscription_ends(self, runtime, store, session):
        log = store.subscribe("s", after=0)
        assert next(log).type == "session_started"
        runtime.execute("s", Delete())
        assert list(log) == []

    def test_every_method_of_the_api(self, gone, owner):
        client = APIClient()
        client.default_format = "json"
        client.force_authenticate(owner)
        for method, name in sorted(set(of_a_session()) - MAY_CREATE):
            answer = getattr(client, method)(address(name, "s"), BODIES.get((method, name)))
            assert answer.status_code == 404, (method, name, answer.content)

    def test_the_list_of_the_api(self, gone, owner):
        client = APIClient()
        client.force_authenticate(owner)
        owner.user_permissions.set(Permission.objects.filter(codename="drive_session"))
        assert client.get("/api/sessions/").json()["items"] == []
        assert client.put("/api/sessions/s/", {"agent_type": "a"}, format="json").status_code == 409

    def test_the_admin(self, gone, owner, client):
        owner.is_staff = True
        owner.save()
        owner.user_permissions.set(Permission.objects.filter(content_type__app_label="helix_sessions"))
        client.force_login(owner)
        listing = client.get("/admin/helix_sessions/session/")
        assert listing.status_code == 200
        assert "0 sessions" in listing.content.decode() or "/session/s/" not in listing.content.decode()
        page = client.get("/admin/helix_sessions/session/s/change/")
        assert page.status_code in (302, 404)

    def test_an_export_leaves_it_out(self, gone, store):
        file = io.StringIO()
        assert store.export_sessions(file).sessions == 0
        with pytest.raises(SessionNotFound):
            store.export_sessions(io.StringIO(), session_ids=["s"])


class TestForGood:
    def rows(self):
        return Session.with_tombstones.filter(session_id="s").count()

    def test_deleting_removes_it(self, gone, store):
        store.delete_session("s")
        assert self.rows() == 0
        assert store.create_session("s", agent_type="a").version == 1

    def test_deleting_its_parent_removes_it(self, runtime, store, session):
        runtime.execute("s", ForkSession("f"))
        runtime.execute("f", Delete())
        store.delete_session("s")
        assert not Session.with_tombstones.exists()

    def test_another_owner_cannot(self, gone):
        stranger = get_user_model().objects.create_user("eve")
        SessionStore(owned_by=stranger).delete_session("s")
        assert self.rows() == 1

    def test_erasing_the_person_removes_it(self, gone, store, owner):
        assert store.erase_user(owner=owner).sessions == 1
        assert self.rows() == 0

    def test_retention_removes_it(self, gone, store):
        store_policy = RetentionPolicy(terminal_for=timedelta(0), statuses=("deleted",))
        assert store.prune_sessions(RetentionPolicy(terminal_for=timedelta(days=1))).sessions == 0
        assert store.prune_sessions(store_policy).sessions == 1
        assert self.rows() == 0

    def test_the_doctor_finds_nothing_wrong(self, gone, store):
        assert [finding for finding in store.examine_sessions(deep=True) if finding.severity == "error"] == []

    def test_an_import_does_not_write_over_it(self, gone, runtime, store):
        runtime.execute("s", ResumeSession())
        file = io.StringIO()
        store.export_sessions(file)
        runtime.execute("s", Delete())
        with pytest.raises(SessionExists):
            store.import_sessions(file.getvalue().splitlines())
        assert store.import_sessions(file.getvalue().splitlines(), on_collision="renew").renewed == 1


def test_agents_are_exported_and_imported(runtime, session, store):
    file = io.StringIO()
    runtime.execute("s", WriteMetadata("a", 1))
    before = runtime.get_session("s")
    store.export_sessions(file)
    store.delete_session("s")
    store.import_sessions(file.getvalue().splitlines())
    assert runtime.get_session("s") == before
