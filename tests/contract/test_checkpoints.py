"""Checkpoints."""

import re
from dataclasses import replace
from typing import Any

import pytest

from helix_sessions.exceptions import CheckpointNotFound, StaleState
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.types import Checkpoint, CheckpointMeta
from tests.contract.calls import ASSISTANT, USER, WRITES
from tests.contract.test_states import OWNED
from tests.invariants import assert_invariants, dump
from tests.rows import each

pytestmark = pytest.mark.django_db


def latest(store: SessionStore, session: str) -> Checkpoint:
    checkpoint = store.get_latest_checkpoint(session)
    assert checkpoint is not None
    return checkpoint


class TestCreate:
    def test_it_holds_the_session_as_it_is(self, store: SessionStore, session: str) -> None:
        store.save_state(session, replace(store.load_state(session), **OWNED))
        store.append_messages(session, [USER, ASSISTANT])
        store.create_run(session, run_id="r")
        made = store.create_checkpoint(session, CheckpointMeta(step_id="step", metadata={"b": 1, "a": 2}))
        now = store.load_state(session)
        assert made == Checkpoint(
            checkpoint_id=now.checkpoint_id or "",
            session_id=session,
            step_count=7,
            status="paused",
            source="save",
            state=now,
            message_count=2,
            run_id="r",
            step_id="step",
            metadata={"b": 1, "a": 2},
            created_at=made.created_at,
        )
        assert list(made.metadata) == ["b", "a"]
        assert now.checkpointed_at == made.created_at
        assert_invariants(session)

    def test_the_id_says_session_step_and_time(self, store: SessionStore, session: str) -> None:
        store.save_state(session, replace(store.load_state(session), step_count=3))
        made = store.create_checkpoint(session)
        match = re.fullmatch(r"cpv1-s-s3-t(\d+)-[0-9a-f]{6}", made.checkpoint_id)
        assert match
        assert int(match[1]) == int(made.created_at.timestamp() * 1000)

    def test_ids_are_told_apart(self, store: SessionStore, session: str) -> None:
        ids = {store.create_checkpoint(session).checkpoint_id for _ in range(50)}
        assert len(ids) == 50

    def test_the_longest_session_id_has_checkpoints(self, store: SessionStore) -> None:
        store.create_session("é" * 255, agent_type="writer")
        made = store.create_checkpoint("é" * 255)
        assert store.get_checkpoint("é" * 255, made.checkpoint_id) == made
        assert store.clone_session("é" * 255, "b", checkpoint_id=made.checkpoint_id).forked_from == (
            "é" * 255,
            made.checkpoint_id,
        )

    def test_a_given_run_is_noted(self, store: SessionStore, session: str) -> None:
        store.create_run(session, run_id="running")
        assert store.create_checkpoint(session, {"run_id": "given"}).run_id == "given"

    def test_it_never_changes(self, store: SessionStore, session: str) -> None:
        store.save_state(session, replace(store.load_state(session), custom_state={"a": [1]}))
        made = store.create_checkpoint(session, {"checkpoint_id": "c"})
        store.merge_custom_state(session, [{"op": "append", "path": ["a"], "values": [2]}])
        store.append_messages(session, [USER])
        store.update_status(session, "failed", error="x")
        store.patch_metadata(session, {"x": 1})
        store.increment_resume_count(session)
        store.save_state(session, replace(store.load_state(session), **OWNED))
        assert store.get_checkpoint(session, "c") == made

    def test_repeated_it_returns_the_first(self, store: SessionStore, session: str) -> None:
        meta = {"checkpoint_id": "c", "step_id": "s"}
        first = store.create_checkpoint(session, meta)
        store.append_messages(session, [USER])
        store.save_state(session, replace(store.load_state(session), custom_state={"later": 1}))
        before = dump()
        assert store.create_checkpoint(session, meta, expected_version=1) == first
        assert dump() == before

    def test_a_stale_version_is_refused_the_first_time(self, store: SessionStore, session: str) -> None:
        with pytest.raises(StaleState):
            store.create_checkpoint(session, {"checkpoint_id": "c"}, expected_version=9)
        assert store.list_checkpoints(session).items == []


class TestLatest:
    def test_none_before_the_first(self, store: SessionStore, session: str) -> None:
        assert store.get_latest_checkpoint(session) is None

    @each("step_count", [0, 1, 100])
    @each("path", ["save", "commit", "promote", "create"])
    def test_it_is_the_last_written_whatever_its_step_count(
        self, store: SessionStore, session: str, path: str, step_count: int
    ) -> None:
        store.save_state(session, replace(store.load_state(session), step_count=50))
        state = replace(store.load_state(session), step_count=step_count)
        store.save_state(session, state)
        store.stage_changes(session, "step", "call", WRITES)

        if path == "save":
            store.save_state(session, state)
        elif path == "commit":
            store.save_state_and_promote_staging(session, state)
        elif path == "promote":
            store.promote_staging(session, "step")
        else:
            store.create_checkpoint(session)

        now = store.load_state(session)
        newest = store.list_checkpoints(session).items[0]
        assert latest(store, session) == newest
        assert (newest.checkpoint_id, newest.step_count) == (now.checkpoint_id, step_count)
        assert newest.source == now.checkpoint_source
        assert newest.source == ("staging" if path in ("commit", "promote") else "save")
        assert newest.state == now

    @each("pointer", [None, "dangling"])
    def test_without_a_pointer_the_highest_step_is_the_latest(
        self, store: SessionStore, session: str, pointer: str | None
    ) -> None:
        for key, step_count in (("low", 1), ("high", 5), ("high again", 5), ("last", 2)):
            store.save_state_and_promote_staging(
                session, replace(store.load_state(session), step_count=step_count), (), {"checkpoint_id": key}
            )
        assert latest(store, session).checkpoint_id == "last"
        Session.objects.filter(session_id=session).update(checkpoint_id=pointer)
        assert latest(store, session).checkpoint_id == "high again"


class TestRead:
    @pytest.fixture
    def session(self, store: SessionStore, session: str) -> str:
        """A session whose checkpoints were written in the order a to e, at falling step counts."""
        for step_count, key in zip((9, 7, 5, 3, 1), "abcde", strict=True):
            state = replace(store.load_state(session), step_count=step_count, custom_state={"at": key})
            store.save_state_and_promote_staging(session, state, [USER], {"checkpoint_id": key})
        return session

    def test_one_by_id(self, store: SessionStore, session: str) -> None:
        found = store.get_checkpoint(session, "b")
        assert (found.step_count, found.message_count, found.state.custom_state) == (7, 2, {"at": "b"})
        assert found.state.checkpoint_id == "b"

    @each("checkpoint_id", ["unknown", "theirs"])
    def test_an_unknown_one_is_not_found(self, store: SessionStore, session: str, checkpoint_id: str) -> None:
        store.create_session("other", agent_type="writer")
        store.create_checkpoint("other", {"checkpoint_id": "theirs"})
        with pytest.raises(CheckpointNotFound):
            store.get_checkpoint(session, checkpoint_id)

    @each("limit", [1, 2, 4, 5, 6, 2**63 - 1])
    def test_the_newest_written_first_in_pages(self, store: SessionStore, session: str, limit: int) -> None:
        pages: list[Any] = [store.list_checkpoints(session, limit=limit)]
        while pages[-1].next_cursor is not None:
            pages.append(store.list_checkpoints(session, limit=limit, cursor=pages[-1].next_cursor))
        items = [item for page in pages for item in page.items]
        assert [item.checkpoint_id for item in items] == list("edcba")
        assert [item.state.custom_state["at"] for item in items] == list("edcba")
        assert pages[-1].items

    @each(
        ("offset", "limit", "expected"),
        [(0, 2, "ed"), (1, 2, "dc"), (4, 2, "a"), (5, 2, ""), (2**63 - 1, 2**63 - 1, "")],
    )
    def test_an_offset(
        self, store: SessionStore, session: str, offset: int, limit: int, expected: str
    ) -> None:
        page = store.list_checkpoints(session, offset=offset, limit=limit)
        assert [item.checkpoint_id for item in page.items] == list(expected)

    def test_a_page_by_offset_leads_on_to_the_next(self, store: SessionStore, session: str) -> None:
        page = store.list_checkpoints(session, offset=1, limit=2)
        after = store.list_checkpoints(session, cursor=page.next_cursor)
        assert [item.checkpoint_id for item in after.items] == ["b", "a"]

    def test_messages_are_counted_not_copied(self, store: SessionStore, session: str) -> None:
        assert [item.message_count for item in store.list_checkpoints(session).items] == [5, 4, 3, 2, 1]
