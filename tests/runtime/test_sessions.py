"""Sessions of the runtime: created, read, listed; versions; messages that are read when they are touched."""

import dataclasses
import pickle

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from helix_sessions.exceptions import InvalidDocument, InvalidInput, SessionExists, SessionNotFound
from helix_sessions.runtime import (
    AgentDefinition,
    AgentState,
    Budget,
    ChangeModel,
    Execution,
    SessionRuntime,
    SuspendSession,
    WriteMetadata,
)
from helix_sessions.store import SessionStore
from tests.rows import each
from tests.runtime.conftest import DEFINITION

HELLO = {"role": "user", "content": "hello"}
pytestmark = pytest.mark.django_db


class Unchanged:
    def execute_on(self, session):
        return session


class TestCreate:
    def test_a_new_session_is_active_at_version_1(self, runtime):
        made = runtime.create(DEFINITION, session_id="s")
        info = made.info
        assert (made.session_id, made.version) == (info.session_id, info.version) == ("s", 1)
        assert (info.status, info.parent_id) == ("active", None)
        assert (info.agent_name, info.agent_label) == ("support", "Support")
        assert info.created_at == info.updated_at
        assert made == runtime.get_session("s")

    def test_system_prompt_model_and_budget_are_the_definitions(self, session):
        assert session.definition == DEFINITION
        state = session.state
        assert (state.system_prompt, state.model, state.budget) == ("Be kind.", "small", Budget(max_steps=5))
        assert (state.messages, state.metadata, state.execution_count, state.execution) == ([], {}, 0, None)

    def test_a_seed_is_the_state(self, runtime):
        seed = AgentState(
            messages=[HELLO],
            metadata={"a": None},
            system_prompt="Other.",
            model={"name": "large"},
            budget=None,
            execution_count=3,
            execution=Execution("failed", "boom", 2, {"tokens": 4}),
        )
        made = runtime.create(DEFINITION, session_id="s", seed=seed)
        assert made.version == 1
        assert made.state == seed
        assert runtime.get_session("s").state == seed

    def test_dicts_do_as_well(self, runtime):
        made = runtime.create(
            {"name": "support", "budget": {"max_steps": 1}}, seed={"messages": [HELLO], "model": "m"}
        )
        assert made.definition == AgentDefinition("support", budget=Budget(max_steps=1))
        assert (made.state.messages, made.state.model, made.state.budget) == ([HELLO], "m", None)

    def test_without_an_id_it_gets_one(self, runtime):
        assert runtime.create(DEFINITION).session_id < runtime.create(DEFINITION).session_id

    def test_a_used_id_is_refused(self, runtime, session, store):
        store.create_session("t", agent_type="a")
        for key in ("s", "t"):
            with pytest.raises(SessionExists):
                runtime.create(AgentDefinition("other"), session_id=key)
        assert runtime.get_session("s") == session

    @each(
        ("definition", "seed"),
        [
            (AgentDefinition(""), None),
            ({"name": "a", "label": 1}, None),
            ({"name": "a", "label": "x" * 256}, None),
            ({"name": "a", "system_prompt": 1}, None),
            (AgentDefinition("a", model=object()), None),
            ({"name": "a", "metadata": []}, None),
            ({}, None),
            ({"name": "a", "nose": 1}, None),
            ("a", None),
            (DEFINITION, AgentState(messages=[{"role": "nobody"}])),
            (DEFINITION, AgentState(metadata={"a": float("nan")})),
            (DEFINITION, AgentState(execution_count=-1)),
            (DEFINITION, AgentState(model="\ud800")),
            (DEFINITION, {"budget": {"max_steps": -1}}),
            (DEFINITION, 1),
        ],
        ids=str,
    )
    def test_bad_input_is_an_error_of_ours(self, runtime, definition, seed):
        with pytest.raises((InvalidInput, InvalidDocument)):
            runtime.create(definition, session_id="s", seed=seed)
        assert not SessionStore().session_exists("s")


class TestVersions:
    def test_each_save_adds_one_whatever_it_changed(self, runtime, session):
        class Everything:
            def execute_on(self, session):
                changed = session.with_messages(HELLO, HELLO).with_metadata("a", 1).with_status("failed")
                return changed.with_state(model="other", budget=None, system_prompt="x")

        assert runtime.execute("s", Unchanged()).version == 2
        assert runtime.execute("s", Everything()).version == 3
        assert runtime.execute("s", Unchanged()).version == 4
        assert SessionStore().load_state("s").version == 4

    def test_reads_add_none(self, runtime, session):
        runtime.get_session("s"), runtime.get_session_info("s"), runtime.list_sessions()
        list(runtime.get_session("s").state.messages)
        assert runtime.get_session_info("s") == session.info

    def test_what_is_returned_is_what_is_stored(self, runtime, session):
        for action in (WriteMetadata("k", [1, {"x": None}]), ChangeModel("m"), SuspendSession(), Unchanged()):
            assert runtime.execute("s", action) == runtime.get_session("s")

    def test_an_unknown_id(self, runtime):
        for call in (runtime.get_session, runtime.get_session_info):
            with pytest.raises(SessionNotFound):
                call("u")
        with pytest.raises(SessionNotFound):
            runtime.execute("u", Unchanged())

    def test_an_action_that_raises_saves_nothing(self, runtime, session):
        class Fails:
            def execute_on(self, session):
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            runtime.execute("s", Fails())
        assert runtime.get_session("s") == session

    @each("action", [None, "suspend", object()])
    def test_what_is_no_action_is_refused(self, runtime, session, action):
        with pytest.raises(InvalidInput):
            runtime.execute("s", action)

    def test_an_action_that_returns_no_session_is_refused(self, runtime, session):
        class Forgets:
            def execute_on(self, session):
                return None

        with pytest.raises(InvalidInput):
            runtime.execute("s", Forgets())
        assert runtime.get_session("s").version == 1

    @each(
        "changes",
        [
            {"model": object()},
            {"metadata": {"a": "\x00"}},
            {"system_prompt": 1},
            {"messages": [{"role": "x"}]},
        ],
    )
    def test_what_cannot_be_stored_is_refused_and_nothing_is(self, runtime, session, changes):
        class Bad:
            def execute_on(self, session):
                return session.with_metadata("b", 1).with_state(**changes)

        with pytest.raises((InvalidInput, InvalidDocument)):
            runtime.execute("s", Bad())
        assert runtime.get_session("s") == session

    def test_a_change_in_place_is_saved_too(self, runtime, session):
        class InPlace:
            def execute_on(self, session):
                session.state.metadata["a"] = 1
                return session

        runtime.execute("s", InPlace())
        assert SessionStore().load_state("s").metadata == {"a": 1}


class TestOtherDoors:
    def test_any_session_is_an_agents(self, runtime, store):
        store.create_session("o", agent_type="writer", metadata={"a": 1}, custom_state={"mine": True})
        store.append_messages("o", [HELLO])
        session = runtime.get_session("o")
        assert session.definition == AgentDefinition("writer")
        assert session.state == AgentState(messages=[HELLO], metadata={"a": 1})
        assert (session.version, session.info.agent_label) == (2, None)
        changed = runtime.execute("o", ChangeModel("m"))
        assert (changed.version, changed.state.model) == (3, "m")
        assert store.load_state("o").custom_state == {"mine": True}

    @each(("stored", "shown"), [("paused", "suspended"), ("interrupted", "interrupted")])
    def test_statuses_of_others(self, runtime, session, store, stored, shown):
        store.update_status("s", stored)
        assert runtime.get_session_info("s").status == shown
        assert runtime.execute("s", Unchanged()).status == shown
        assert store.load_state("s").status == stored

    def test_what_others_changed_is_seen(self, runtime, session, store):
        store.patch_metadata("s", {"b": 2})
        store.append_messages("s", [HELLO])
        assert runtime.get_session("s").state == dataclasses.replace(
            session.state, metadata={"b": 2}, messages=[HELLO]
        )

    def test_a_branch_has_its_sources_agent(self, runtime, session, store):
        store.clone_session("s", "b")
        branch = runtime.get_session("b")
        assert branch.definition == DEFINITION
        assert branch.state == session.state

    def test_an_owners_runtime_knows_the_owners_sessions(self, django_user_model, session):
        ada = django_user_model.objects.create_user("ada")
        theirs = SessionRuntime(SessionStore(owned_by=ada))
        with pytest.raises(SessionNotFound):
            theirs.get_session("s")
        with pytest.raises(SessionNotFound):
            theirs.execute("s", SuspendSession())
        assert theirs.list_sessions().items == []
        theirs.create(DEFINITION, session_id="hers")
        assert SessionStore().load_state("hers").owner_id == ada.pk
        assert [info.session_id for info in theirs.list_sessions()] == ["hers"]

    def test_another_session_under_the_same_id_is_no_target(self, runtime, session, store):
        class Meanwhile:
            def execute_on(self, session):
                store.delete_session("s")
                store.create_session("s", agent_type="support")
                return session.with_metadata("a", 1)

        with pytest.raises(SessionNotFound):
            runtime.execute("s", Meanwhile())
        assert store.load_state("s").metadata == {}


class TestListing:
    def test_infos_newest_first(self, runtime, session, store):
        store.create_session("o", agent_type="writer")
        runtime.execute("s", SuspendSession())
        found = runtime.list_sessions()
        assert found.items == [runtime.get_session_info("o"), runtime.get_session_info("s")]
        assert found.next_cursor is None

    def test_filters(self, runtime, session, store):
        store.create_session("o", agent_type="writer", parent_session_id="s")
        runtime.execute("s", SuspendSession())
        for filters, expected in (
            ({"status": "suspended"}, ["s"]),
            ({"status": "active"}, ["o"]),
            ({"agent_type": "writer"}, ["o"]),
            ({"agent_name": "support"}, ["s"]),
            ({"parent_id": "s"}, ["o"]),
        ):
            assert [info.session_id for info in runtime.list_sessions(**filters)] == expected
        page = runtime.list_sessions(limit=1)
        assert [info.session_id for info in runtime.list_sessions(limit=1, cursor=page.next_cursor)] == ["s"]
        with pytest.raises(InvalidInput):
            runtime.list_sessions(status="unknown")

    def test_a_page_takes_two_queries(self, runtime, session, django_assert_num_queries):
        for number in range(5):
            runtime.create(DEFINITION, session_id=f"more-{number}")
        with django_assert_num_queries(2):
            assert len(runtime.list_sessions().items) == 6


class TestLazyMessages:
    @pytest.fixture
    def long(self, store, session):
        store.append_messages("s", [{"role": "user", "content": n} for n in range(300)])

    @staticmethod
    def messages_read(queries):
        return [
            each
            for each in queries
            if each["sql"].startswith("SELECT") and "helix_sessions_message" in each["sql"]
        ]

    def test_they_are_read_when_touched_and_once(self, runtime, long):
        with CaptureQueriesContext(connection) as queries:
            session = runtime.get_session("s")
            assert len(session.state.messages) == 300
            repr(session)
        assert len(queries) == 1
        assert not self.messages_read(queries)
        with CaptureQueriesContext(connection) as queries:
            assert session.state.messages[7] == {"role": "user", "content": 7}
            assert session.state.messages[-1]["content"] == 299
            assert [message["content"] for message in session.state.messages] == list(range(300))
        assert len(queries) == 1

    def test_actions_that_do_not_look_at_them_read_none(self, runtime, long):
        with CaptureQueriesContext(connection) as queries:
            runtime.execute("s", ChangeModel("m"))
            runtime.execute("s", SuspendSession())
        assert not self.messages_read(queries)

    def test_appending_reads_and_rewrites_none(self, runtime, long):
        class Appends:
            def execute_on(self, session):
                return session.with_messages(HELLO)

        with CaptureQueriesContext(connection) as queries:
            saved = runtime.execute("s", Appends())
        assert not self.messages_read(queries)
        assert saved.state.messages == [*({"role": "user", "content": n} for n in range(300)), HELLO]

    def test_they_are_as_of_the_load(self, runtime, long, store):
        session = runtime.get_session("s")
        store.truncate_messages("s", 10)
        store.append_messages("s", [HELLO] * 400)
        assert [message["content"] for message in session.state.messages] == list(range(300))

    def test_those_of_a_deleted_session_are_gone(self, runtime, long, store):
        session = runtime.get_session("s")
        store.delete_session("s")
        with pytest.raises(SessionNotFound):
            list(session.state.messages)

    def test_a_list_is_saved_as_the_difference(self, runtime, long, store):
        class Rewrites:
            def execute_on(self, session):
                kept = [*session.state.messages][:298]
                return session.with_state(messages=[*kept, HELLO])

        before = store.load_state("s").head_seq
        saved = runtime.execute("s", Rewrites())
        assert saved.state.messages == [*({"role": "user", "content": n} for n in range(298)), HELLO]
        assert runtime.get_session("s") == saved
        written = [(event.type, event.data) for event in store.get_events("s", before + 1)]
        assert written == [
            ("action_applied", {"action": "Rewrites"}),
            ("messages_truncated", {"count": 298, "removed": 2}),
            ("user_message", HELLO),
        ]

    def test_a_slice_is_a_truncation(self, runtime, long, store):
        class Keeps:
            def execute_on(self, session):
                return session.with_state(messages=session.state.messages[:3])

        with CaptureQueriesContext(connection) as queries:
            assert len(runtime.execute("s", Keeps()).state.messages) == 3
        assert not [each for each in self.messages_read(queries) if "tool_" not in each["sql"]]
        assert store.get_message_count("s") == 3


class TestValues:
    def test_they_never_change(self, session):
        for value, name in ((session, "state"), (session.info, "status"), (session.state, "model")):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(value, name, None)

    def test_they_survive_pickling(self, runtime, session, store):
        store.append_messages("s", [HELLO])
        loaded = runtime.get_session("s")
        assert pickle.loads(pickle.dumps(loaded)) == loaded

    def test_a_transcript_is_a_sequence(self, runtime, session, store):
        store.append_messages("s", [HELLO, {"role": "assistant", "content": "hi"}])
        messages = runtime.get_session("s").state.messages
        both = [HELLO, {"role": "assistant", "content": "hi"}]
        assert messages == both
        assert messages == tuple(both)
        assert messages != both[:1]
        assert messages[1:] == both[1:]
        assert messages[:-1] == both[:1]
        assert messages + [HELLO] == [*both, HELLO]  # noqa: RUF005
        assert (messages + [HELLO])[2] is HELLO  # noqa: RUF005
        assert list(reversed(messages)) == both[::-1]
        assert HELLO in messages
        with pytest.raises(IndexError):
            messages[2]

    def test_only_these_statuses_can_be_decided(self, session):
        for status in ("active", "suspended", "completed", "failed", "deleted"):
            assert session.with_status(status).status == status
        for undecided in ("paused", "interrupted", "", None):
            with pytest.raises(InvalidInput):
                session.with_status(undecided)

    @each(
        "limits",
        [
            {"max_steps": -1},
            {"max_steps": 1.5},
            {"max_tokens": True},
            {"max_seconds": "1"},
            {"max_cost": float("nan")},
            {"deadline": "tomorrow"},
            {"deadline": 1},
        ],
        ids=str,
    )
    def test_a_budget_of_nonsense_is_refused(self, limits):
        with pytest.raises(InvalidInput):
            Budget(**limits)
