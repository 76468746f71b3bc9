"""Runs."""

from typing import Any

import pytest

from helix_sessions.exceptions import RunEnded, RunExists, RunInProgress, RunNotFound
from helix_sessions.store import SessionStore
from helix_sessions.types import Run
from tests.contract.calls import USER
from tests.invariants import assert_invariants, dump
from tests.rows import each

pytestmark = pytest.mark.django_db

ENDED = [
    "completed",
    "failed",
    "interrupted",
    "suspended_client_tool",
    "suspended_awaiting_children",
    "suspended_step_partial",
]


class TestCreate:
    def test_a_run_begins_after_the_log_so_far(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, [USER])
        run = store.create_run(session, run_id="r", metadata={"why": "test"})
        assert run == Run(
            run_id="r",
            session_id=session,
            turn=1,
            status="running",
            step_count=0,
            start_sequence=2,
            end_sequence=None,
            output=None,
            error=None,
            usage=None,
            metadata={"why": "test"},
            started_at=run.started_at,
            ended_at=None,
        )
        assert store.get_run(session, "r") == store.get_current_run(session) == run
        event = store.get_events(session)[-1]
        assert (event.seq, event.type, event.run_id) == (3, "run_started", "r")

    def test_an_id_is_made_when_none_is_given(self, store: SessionStore, session: str) -> None:
        run = store.create_run(session)
        assert store.get_run(session, run.run_id) == run

    def test_turns_count_from_one(self, store: SessionStore, session: str) -> None:
        for turn in (1, 2, 3):
            run = store.create_run(session, run_id=f"r{turn}")
            assert run.turn == turn
            store.update_run_status(session, run.run_id, "completed")
        assert_invariants(session)

    def test_one_runs_at_a_time(self, store: SessionStore, session: str) -> None:
        store.create_run(session, run_id="first")
        before = dump()
        with pytest.raises(RunInProgress):
            store.create_run(session, run_id="second")
        assert dump() == before

    def test_a_used_id_is_refused(self, store: SessionStore, session: str) -> None:
        store.create_run(session, run_id="r")
        store.update_run_status(session, "r", "completed")
        before = dump()
        with pytest.raises(RunExists):
            store.create_run(session, run_id="r")
        assert dump() == before

    def test_another_session_may_use_the_same_id(self, store: SessionStore, session: str) -> None:
        store.create_session("other", agent_type="writer")
        store.create_run(session, run_id="r")
        assert store.create_run("other", run_id="r").session_id == "other"


class TestUpdate:
    @each("status", ENDED)
    def test_any_other_status_ends_it(self, store: SessionStore, session: str, status: str) -> None:
        store.create_run(session, run_id="r")
        run = store.update_run_status(
            session, "r", status, step_count=4, output={"a": 1}, error="e", usage={"tokens": 7}
        )
        assert run == store.get_run(session, "r")
        assert (run.status, run.step_count, run.output) == (status, 4, {"a": 1})
        assert (run.error, run.usage) == ("e", {"tokens": 7})
        event = store.get_events(session)[-1]
        assert (event.seq, event.type, event.run_id) == (run.end_sequence, "run_finished", "r")
        assert run.ended_at == event.created_at >= run.started_at
        assert store.get_current_run(session) is None
        assert_invariants(session)

    def test_a_running_run_can_be_followed(self, store: SessionStore, session: str) -> None:
        store.create_run(session, run_id="r")
        run = store.update_run_status(session, "r", "running", step_count=2, usage={"tokens": 1})
        assert (run.status, run.step_count, run.usage, run.ended_at) == ("running", 2, {"tokens": 1}, None)
        assert store.get_current_run(session) == run
        assert store.load_state(session).version == 3
        assert_invariants(session)

    def test_what_is_not_given_stays(self, store: SessionStore, session: str) -> None:
        store.create_run(session, run_id="r", metadata={"m": 1})
        store.update_run_status(session, "r", "running", step_count=2, output=1, error="e", usage=[1])
        run = store.update_run_status(session, "r", "completed")
        assert (run.step_count, run.output, run.error, run.usage) == (2, 1, "e", [1])
        assert run.metadata == {"m": 1}

    def test_an_output_of_none_is_a_value(self, store: SessionStore, session: str) -> None:
        store.create_run(session, run_id="r")
        store.update_run_status(session, "r", "running", output=1)
        assert store.update_run_status(session, "r", "completed", output=None).output is None

    @each("status", ENDED)
    def test_a_run_that_ended_never_runs_again(self, store: SessionStore, session: str, status: str) -> None:
        store.create_run(session, run_id="r")
        store.update_run_status(session, "r", status)
        before = dump()
        for again in ("running", "completed", status):
            with pytest.raises(RunEnded):
                store.update_run_status(session, "r", again, output=1)
        assert dump() == before

    def test_an_unknown_run_is_not_found(self, store: SessionStore, session: str) -> None:
        store.create_session("other", agent_type="writer")
        store.create_run("other", run_id="theirs")
        before = dump()
        for run_id in ("theirs", "nobody's"):
            with pytest.raises(RunNotFound):
                store.update_run_status(session, run_id, "completed")
            with pytest.raises(RunNotFound):
                store.get_run(session, run_id)
        assert dump() == before

    def test_a_resume_is_a_new_run(self, store: SessionStore, session: str) -> None:
        store.create_run(session, run_id="one")
        store.update_run_status(session, "one", "suspended_client_tool")
        assert store.create_run(session, run_id="two").turn == 2


class TestRead:
    def test_no_run_is_current_before_the_first(self, store: SessionStore, session: str) -> None:
        assert store.get_current_run(session) is None

    @each("limit", [1, 2, 3, 4, 5, 2**63 - 1])
    def test_newest_first_in_pages(self, store: SessionStore, session: str, limit: int) -> None:
        for turn in range(1, 5):
            store.create_run(session, run_id=f"r{turn}")
            store.update_run_status(session, f"r{turn}", "completed")
        pages: list[Any] = [store.list_runs(session, limit=limit)]
        while pages[-1].next_cursor is not None:
            pages.append(store.list_runs(session, limit=limit, cursor=pages[-1].next_cursor))
        assert [run.turn for page in pages for run in page.items] == [4, 3, 2, 1]
        assert all(len(page.items) == limit for page in pages[:-1])
        assert pages[-1].items

    def test_runs_of_other_sessions_are_not_listed(self, store: SessionStore, session: str) -> None:
        store.create_session("other", agent_type="writer")
        store.create_run("other")
        assert store.list_runs(session).items == []


class TestEvents:
    def test_events_written_while_it_runs_carry_its_id(self, store: SessionStore, session: str) -> None:
        store.emit_event(session, "before")
        store.create_run(session, run_id="r")
        store.append_messages(session, [USER])
        store.update_status(session, "active")
        store.emit_event(session, "during")
        store.emit_event(session, "during", run_id="other")
        store.create_checkpoint(session)
        store.update_run_status(session, "r", "completed")
        store.emit_event(session, "after")
        assert [event.run_id for event in store.get_events(session)] == [
            *[None, None],
            *["r", "r", "r", "r", "other", "r", "r"],
            None,
        ]
