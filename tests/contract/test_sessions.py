"""Lifecycle: create, branch, list, describe, delete."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone as django_timezone

from helix_sessions.exceptions import (
    CheckpointNotFound,
    InvalidCursor,
    InvalidDocument,
    SessionExists,
    SessionNotFound,
    StaleState,
)
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.types import SessionState, SubSessionRef
from tests.contract.calls import ASSISTANT, REF, USER, WRITES
from tests.invariants import assert_invariants, assert_no_orphans, dump
from tests.rows import each

pytestmark = pytest.mark.django_db


@pytest.fixture
def user() -> Any:
    return get_user_model().objects.create_user("ada")


class TestCreate:
    def test_a_session_has_what_it_was_given(self, store: SessionStore, user: Any) -> None:
        expires_at = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=2)))
        state = store.create_session(
            "s",
            agent_type="writer",
            custom_state={"b": 1, "a": {}},
            owner=user,
            user_id="u-1",
            stream_id="stream",
            tags=["one", "two"],
            metadata={"team": "red", "n": None},
            mode="persistent",
            expires_at=expires_at,
            tracing_context={"trace_id": "t"},
            workspace_ref={"id": "w"},
        )
        assert state == store.load_state("s")
        assert state == SessionState(
            session_id="s",
            agent_type="writer",
            custom_state={"b": 1, "a": {}},
            owner_id=user.pk,
            user_id="u-1",
            stream_id="stream",
            tags=("one", "two"),
            metadata={"team": "red", "n": None},
            mode="persistent",
            expires_at=expires_at,
            tracing_context={"trace_id": "t"},
            workspace_ref={"id": "w"},
            version=1,
            head_seq=1,
            created_at=state.created_at,
            updated_at=state.updated_at,
        )
        assert_invariants("s")

    def test_the_defaults(self, store: SessionStore) -> None:
        state = store.create_session("s", agent_type="writer")
        assert state == SessionState(
            session_id="s",
            agent_type="writer",
            head_seq=1,
            created_at=state.created_at,
            updated_at=state.updated_at,
        )

    def test_times_are_aware(self, store: SessionStore) -> None:
        before = django_timezone.now()
        state = store.create_session("s", agent_type="writer", expires_at=before)
        assert state.created_at is not None
        assert state.created_at.utcoffset() is not None
        assert before <= state.created_at <= django_timezone.now()
        assert store.load_state("s").expires_at == before

    def test_a_used_id_is_refused_and_the_winner_untouched(self, store: SessionStore, session: str) -> None:
        before = dump()
        with pytest.raises(SessionExists):
            store.create_session(session, agent_type="other", custom_state={"mine": True})
        assert dump() == before

    def test_without_an_id_it_gets_a_uuid7(self, store: SessionStore) -> None:
        ids = [store.create_session(None, agent_type="writer").session_id for _ in range(20)]
        assert len(set(ids)) == 20
        for key in ids:
            made = uuid.UUID(key)
            assert (made.version, made.variant) == (7, uuid.RFC_4122)
        moment = datetime.fromtimestamp((uuid.UUID(ids[0]).int >> 80) / 1000, UTC)
        assert abs(moment - django_timezone.now()) < timedelta(minutes=1)

    @each("by", ["user", "key", "text"])
    def test_the_owner_is_a_user_or_its_key(self, store: SessionStore, user: Any, by: str) -> None:
        owner = {"user": user, "key": user.pk, "text": str(user.pk)}[by]
        assert store.create_session("s", agent_type="writer", owner=owner).owner_id == user.pk
        assert store.load_state("s").owner_id == user.pk

    def test_the_root_is_worked_out_from_the_parent(self, store: SessionStore) -> None:
        store.create_session("root", agent_type="writer")
        child = store.create_session("child", agent_type="writer", parent_session_id="root")
        grandchild = store.create_session("grandchild", agent_type="writer", parent_session_id="child")
        assert (child.parent_session_id, child.root_session_id) == ("root", "root")
        assert (grandchild.parent_session_id, grandchild.root_session_id) == ("child", "root")
        assert store.load_state("grandchild") == grandchild

    def test_the_parent_decides_over_a_root_that_was_given(self, store: SessionStore) -> None:
        store.create_session("root", agent_type="writer")
        child = store.create_session(
            "child", agent_type="writer", parent_session_id="root", root_session_id="elsewhere"
        )
        assert child.root_session_id == "root"

    @each("parent", ["unknown", "s"])
    def test_an_unknown_parent_is_not_found(self, store: SessionStore, parent: str) -> None:
        with pytest.raises(SessionNotFound):
            store.create_session("s", agent_type="writer", parent_session_id=parent)
        assert not store.session_exists("s")

    def test_the_parent_does_not_change(self, store: SessionStore, session: str) -> None:
        before = store.load_state(session)
        store.create_session("child", agent_type="writer", parent_session_id=session)
        assert store.load_state(session) == before


class TestExistence:
    def test_it_is_there_from_creation_to_deletion(self, store: SessionStore) -> None:
        assert not store.session_exists("s")
        store.create_session("s", agent_type="writer")
        assert store.session_exists("s")
        store.delete_session("s")
        assert not store.session_exists("s")


class TestDelete:
    def test_all_that_belongs_to_it_goes(self, store: SessionStore, session: str) -> None:
        other = dump()
        store.delete_session(session)
        empty = dump()
        store.create_session(session, agent_type="writer")
        store.append_messages(session, [USER, ASSISTANT])
        store.truncate_messages(session, 1)
        store.create_run(session)
        store.stage_changes(session, "step", "call", WRITES)
        store.save_state(session, replace(store.load_state(session), custom_state={"a": 1}))
        store.add_sub_session_refs(session, [REF])
        store.emit_event(session, "note", idempotency_key="k")
        store.set_interrupt_flag(session)

        store.delete_session(session)

        assert dump() == empty != other

    def test_other_sessions_stay(self, store: SessionStore, session: str) -> None:
        store.create_session("other", agent_type="writer")
        store.append_messages("other", [USER])
        before = store.load_state("other")
        store.delete_session(session)
        assert store.load_state("other") == before
        assert_invariants("other")

    def test_an_unknown_id_is_no_error(self, store: SessionStore) -> None:
        store.delete_session("unknown")

    def test_a_deleted_id_starts_afresh(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, [USER])
        store.delete_session(session)
        state = store.create_session(session, agent_type="writer")
        assert (state.version, state.head_seq, state.message_count) == (1, 1, 0)
        assert store.get_messages(session).messages == []

    def test_the_tree_goes_by_parent_and_by_local_reference(self, store: SessionStore, session: str) -> None:
        store.create_session("by-parent", agent_type="writer", parent_session_id=session)
        store.create_session("grandchild", agent_type="writer", parent_session_id="by-parent")
        store.create_session("by-reference", agent_type="writer")
        store.add_sub_session_refs(
            "by-parent", [SubSessionRef(sub_session_id="by-reference", agent_type="writer")]
        )
        store.delete_session(session)
        assert store.list_sessions().items == []
        assert_no_orphans()

    def test_what_lies_behind_a_remote_reference_stays(self, store: SessionStore, session: str) -> None:
        store.create_session("far", agent_type="writer")
        store.add_sub_session_refs(
            session, [SubSessionRef(sub_session_id="far", agent_type="writer", location="remote")]
        )
        store.delete_session(session)
        assert store.session_exists("far")

    def test_a_reference_to_nothing_is_no_trouble(self, store: SessionStore, session: str) -> None:
        store.add_sub_session_refs(session, [REF])
        store.delete_session(session)
        assert not store.session_exists(session)

    def test_a_cycle_of_references_ends(self, store: SessionStore) -> None:
        for key in "abc":
            store.create_session(key, agent_type="writer")
        for key, other in ("ab", "bc", "ca", "aa"):
            store.add_sub_session_refs(key, [SubSessionRef(sub_session_id=other, agent_type="writer")])
        store.delete_session("b")
        assert store.list_sessions().items == []
        assert_no_orphans()

    def test_a_child_goes_alone(self, store: SessionStore, session: str) -> None:
        store.create_session("child", agent_type="writer", parent_session_id=session)
        store.delete_session("child")
        assert store.session_exists(session)


class TestClone:
    @pytest.fixture
    def source(self, store: SessionStore, user: Any) -> str:
        """A session with four messages, two checkpoints and everything a branch must not take over."""
        store.create_session(
            "source", agent_type="writer", owner=user, user_id="u", tags=["t"], metadata={"m": 1}
        )
        state = replace(store.load_state("source"), custom_state={"step": 1}, step_count=1)
        store.save_state_and_promote_staging("source", state, [USER, ASSISTANT], {"checkpoint_id": "first"})
        state = replace(
            state,
            custom_state={"step": 2},
            step_count=2,
            pending_client_tool_calls={"call": {"tool_name": "ask"}},
        )
        store.save_state_and_promote_staging("source", state, [USER, ASSISTANT], {"checkpoint_id": "second"})
        store.increment_resume_count("source")
        store.create_run("source")
        store.stage_changes("source", "step", "call", WRITES)
        store.set_interrupt_flag("source", "stop")
        return "source"

    def test_a_branch_of_now(self, store: SessionStore, source: str) -> None:
        state = store.clone_session(source, "branch")
        assert state == store.load_state("branch")
        assert (state.custom_state, state.step_count, state.message_count) == ({"step": 2}, 2, 4)
        assert state.forked_from == (source, None)
        assert store.get_messages("branch") == store.get_messages(source)
        assert_invariants("branch")

    def test_a_branch_at_a_checkpoint(self, store: SessionStore, source: str) -> None:
        state = store.clone_session(source, "branch", checkpoint_id="first")
        assert state == store.load_state("branch")
        assert (state.custom_state, state.step_count, state.message_count) == ({"step": 1}, 1, 2)
        assert state.forked_from == (source, "first")
        assert store.get_messages("branch").messages == [USER, ASSISTANT]
        assert_invariants("branch")

    @each(("asked", "got"), [(0, 0), (1, 1), (2, 2), (3, 2)])
    def test_fewer_messages(self, store: SessionStore, source: str, asked: int, got: int) -> None:
        state = store.clone_session(source, "branch", checkpoint_id="first", message_count=asked)
        assert state.message_count == got
        assert store.get_messages("branch").messages == [USER, ASSISTANT][:got]
        assert_invariants("branch")

    def test_what_is_fresh(self, store: SessionStore, source: str) -> None:
        state = store.clone_session(source, "branch")
        assert (state.version, state.resume_count, state.status) == (1, 0, "active")
        assert state.pending_client_tool_calls is None
        assert state.checkpoint_id is None
        assert store.list_runs("branch").items == []
        assert store.list_checkpoints("branch").items == []
        assert store.has_staged_changes("branch") is False
        assert store.check_interrupt_flag("branch") is None
        assert store.create_run("branch").turn == 1

    def test_whose_it_is_stays(self, store: SessionStore, source: str, user: Any) -> None:
        state = store.clone_session(source, "branch")
        assert (state.agent_type, state.owner_id, state.user_id) == ("writer", user.pk, "u")
        assert (state.tags, state.metadata, state.mode) == (("t",), {"m": 1}, "standard")

    def test_the_log_of_a_branch_begins_with_its_start_and_its_messages(
        self, store: SessionStore, source: str
    ) -> None:
        store.clone_session(source, "branch", checkpoint_id="first")
        events = store.get_events("branch")
        assert [event.type for event in events] == ["session_started", "user_message", "assistant_message"]
        assert [event.data for event in events[1:]] == [USER, ASSISTANT]

    def test_the_source_does_not_change(self, store: SessionStore, source: str) -> None:
        before = dump()
        store.clone_session(source, "branch", checkpoint_id="first")
        store.append_messages("branch", [USER])
        store.merge_custom_state("branch", WRITES)
        store.delete_session("branch")
        assert dump() == before

    def test_the_branch_survives_its_source(self, store: SessionStore, source: str) -> None:
        store.clone_session(source, "branch")
        store.delete_session(source)
        assert store.load_state("branch").custom_state == {"step": 2}
        assert store.get_message_count("branch") == 4
        assert_invariants("branch")

    def test_a_used_id_is_refused(self, store: SessionStore, source: str) -> None:
        store.create_session("used", agent_type="writer")
        before = dump()
        for used in ("used", source):
            with pytest.raises(SessionExists):
                store.clone_session(source, used)
        assert dump() == before

    def test_a_checkpoint_of_another_session_is_not_found(self, store: SessionStore, source: str) -> None:
        store.create_session("other", agent_type="writer")
        store.create_checkpoint("other", {"checkpoint_id": "theirs"})
        before = dump()
        for checkpoint_id in ("theirs", "nobody's"):
            with pytest.raises(CheckpointNotFound):
                store.clone_session(source, "branch", checkpoint_id=checkpoint_id)
        assert dump() == before

    def test_an_unknown_source_is_not_found(self, store: SessionStore) -> None:
        with pytest.raises(SessionNotFound):
            store.clone_session("unknown", "branch")
        assert not store.session_exists("branch")

    def test_truncated_messages_are_copied_only_to_where_they_were_said(
        self, store: SessionStore, source: str
    ) -> None:
        again = {"role": "user", "content": "again"}
        store.truncate_messages(source, 1)
        store.append_messages(source, [again])
        store.create_checkpoint(source, {"checkpoint_id": "third"})
        lines = [
            ("first", [USER, ASSISTANT]),
            ("second", [USER, ASSISTANT] * 2),
            ("third", [USER, again]),
            (None, [USER, again]),
        ]
        for name, said in lines:
            store.clone_session(source, f"branch {name}", checkpoint_id=name)
            assert store.get_messages(f"branch {name}").messages == said
            assert_invariants(f"branch {name}")

    def test_a_branch_of_a_branch(self, store: SessionStore, source: str) -> None:
        store.clone_session(source, "branch", checkpoint_id="first")
        store.create_checkpoint("branch", {"checkpoint_id": "own"})
        twig = store.clone_session("branch", "twig", checkpoint_id="own")
        assert twig.forked_from == ("branch", "own")
        assert twig.custom_state == {"step": 1}


class TestList:
    def test_newest_first(self, store: SessionStore) -> None:
        for key in ("a", "b", "c"):
            store.create_session(key, agent_type="writer")
        assert ids(store) == ["c", "b", "a"]

    def test_equal_times_are_told_apart_by_id(self, store: SessionStore) -> None:
        same_time(store, "b", "é", "a", "B", "z")
        assert ids(store) == ["é", "z", "b", "a", "B"]

    @each("limit", [1, 2, 3, 4, 5, 6, 50])
    def test_pages_join_to_the_whole(self, store: SessionStore, limit: int) -> None:
        same_time(store, "x", "y")
        for key in ("a", "b", "c"):
            store.create_session(key, agent_type="writer")
        pages = [store.list_sessions(limit=limit)]
        while pages[-1].next_cursor is not None:
            pages.append(store.list_sessions(limit=limit, cursor=pages[-1].next_cursor))
        assert [item.session_id for page in pages for item in page.items] == ["c", "b", "a", "y", "x"]
        assert all(len(page.items) == limit for page in pages[:-1])
        assert len(pages[-1].items) >= 1

    def test_an_empty_page_has_no_cursor(self, store: SessionStore) -> None:
        page = store.list_sessions()
        assert (page.items, page.next_cursor) == ([], None)

    def test_a_new_session_does_not_shift_later_pages(self, store: SessionStore) -> None:
        for key in ("a", "b", "c"):
            store.create_session(key, agent_type="writer")
        first = store.list_sessions(limit=2)
        store.create_session("d", agent_type="writer")
        assert [item.session_id for item in store.list_sessions(cursor=first.next_cursor).items] == ["a"]

    @each("odd", ["a\u00a0b", "a\u200bb", "a\u2028b", "😀", "a b", '"\\', "%", "../x"])
    def test_a_cursor_at_any_id_works(self, store: SessionStore, odd: str) -> None:
        same_time(store, odd, "!")
        first = store.list_sessions(limit=1)
        assert first.items[0].session_id == odd or odd < "!"
        second = store.list_sessions(limit=1, cursor=first.next_cursor)
        assert {first.items[0].session_id, second.items[0].session_id} == {odd, "!"}

    def test_a_summary_says_what_the_state_says(self, store: SessionStore, user: Any) -> None:
        store.create_session("parent", agent_type="writer")
        store.create_session(
            "s",
            agent_type="writer",
            owner=user,
            user_id="u",
            tags=("x", "y"),
            parent_session_id="parent",
            expires_at=datetime(2030, 1, 1, tzinfo=UTC),
        )
        store.append_messages("s", [USER])
        store.increment_step_count("s")
        state, summary = store.load_state("s"), store.list_sessions().items[0]
        for name in summary.__dataclass_fields__:
            assert getattr(summary, name) == getattr(state, name), name

    def test_filters(self, store: SessionStore, user: Any) -> None:
        soon = datetime(2030, 1, 1, tzinfo=UTC)
        store.create_session("plain", agent_type="reader")
        store.create_session(
            "full",
            agent_type="writer",
            owner=user,
            user_id="u",
            tags=["x", "y"],
            parent_session_id="plain",
            expires_at=soon,
        )
        store.update_status("full", "completed")
        later = soon + timedelta(microseconds=1)

        assert ids(store, status="completed") == ["full"]
        assert ids(store, status="paused") == []
        assert ids(store, agent_type="writer") == ["full"]
        assert ids(store, user_id="u") == ["full"]
        assert ids(store, owner=user) == ids(store, owner=user.pk) == ["full"]
        assert ids(store, tag="y") == ["full"]
        assert ids(store, tag="x,y") == []
        assert ids(store, parent_session_id="plain") == ["full"]
        assert ids(store, parent_session_id="unknown") == []
        assert ids(store, expires_before=later) == ["full"]
        assert ids(store, expires_before=soon) == []
        assert ids(store, tag="x", status="completed", agent_type="writer", owner=user) == ["full"]
        assert ids(store, tag="x", status="active") == []

    def test_updated_after(self, store: SessionStore) -> None:
        store.create_session("old", agent_type="writer")
        new = store.create_session("new", agent_type="writer")
        moment = store.load_state("new").updated_at
        assert ids(store, updated_after=moment) == []
        store.append_messages("old", [USER])
        assert ids(store, updated_after=moment) == ["old"]
        assert new.created_at is not None
        assert ids(store, updated_after=new.created_at - timedelta(microseconds=1)) == ["new", "old"]

    @each("tag", ["é", '"', "\\", "a'b", "%", "[]", "😀", "null", "1", "a\u00a0b"])
    def test_a_tag_is_found_by_all_its_characters(self, store: SessionStore, tag: str) -> None:
        store.create_session("s", agent_type="writer", tags=[tag])
        store.create_session("other", agent_type="writer", tags=["x" + tag, tag.upper() + "x"])
        assert ids(store, tag=tag) == ["s"]

    @each("cursor", ["", "x", "!!!!", "WyJydW5zIiwgMV0", "é", "e30", "MQ", "WzFd"])
    def test_a_broken_cursor_is_refused(self, store: SessionStore, cursor: str) -> None:
        with pytest.raises(InvalidCursor):
            store.list_sessions(cursor=cursor)


class TestMetadata:
    def test_a_patch_is_shallow(self, store: SessionStore) -> None:
        store.create_session("s", agent_type="writer", metadata={"a": {"x": 1, "y": 2}, "b": 1})
        assert store.patch_metadata("s", {"a": {"x": 3}, "c": [1]}) == 2
        assert store.load_state("s").metadata == {"a": {"x": 3}, "b": 1, "c": [1]}

    def test_none_removes_the_key(self, store: SessionStore) -> None:
        store.create_session("s", agent_type="writer", metadata={"a": 1, "b": None, "c": 3})
        store.patch_metadata("s", {"a": None})
        assert store.load_state("s").metadata == {"b": None, "c": 3}

    def test_none_inside_a_value_stays(self, store: SessionStore, session: str) -> None:
        store.patch_metadata(session, {"a": {"b": None}})
        assert store.load_state(session).metadata == {"a": {"b": None}}

    def test_the_version_is_returned(self, store: SessionStore, session: str) -> None:
        assert store.patch_metadata(session, {"a": 1}) == store.load_state(session).version == 2
        assert store.patch_metadata(session, {}) == 2

    @each("patch", [{"a": "\x00"}, {"\x00": 1}, {"a": [{"b": "x\x00y"}]}])
    def test_null_characters_are_refused(
        self, store: SessionStore, session: str, patch: dict[str, Any]
    ) -> None:
        before = dump()
        with pytest.raises(InvalidDocument):
            store.patch_metadata(session, patch)
        assert dump() == before

    def test_a_text_that_only_looks_like_one_is_kept(self, store: SessionStore, session: str) -> None:
        store.patch_metadata(session, {"a": "\\u0000"})
        assert store.load_state(session).metadata == {"a": "\\u0000"}


def ids(store: SessionStore, **filters: Any) -> list[str]:
    return [item.session_id for item in store.list_sessions(**filters).items]


def same_time(store: SessionStore, *keys: str) -> None:
    """Create sessions at one moment."""
    for key in keys:
        created = store.create_session(key, agent_type="writer")
    Session.objects.filter(session_id__in=keys).update(created_at=created.created_at)


def test_an_expected_version_is_that_of_the_root_of_a_tree(store: SessionStore, session: str) -> None:
    store.create_session("child", agent_type="a", parent_session_id=session)
    store.patch_metadata("child", {"a": 1})
    with pytest.raises(StaleState):
        store.delete_session(session, expected_version=2)
    assert store.session_exists("child")
    store.delete_session(session, expected_version=1)

    assert not store.session_exists("child")
