"""The database is put back to an older state under processes that are at work."""

from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from helix_sessions.exceptions import Fenced, SessionNotFound, StaleState
from helix_sessions.runtime import SessionRunner, ToolResult, TurnContext
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from tests.contract.suspended import asked, calling
from tests.invariants import assert_invariants, assert_valid_transcript
from tests.restores import Backup
from tests.runner.test_activities import said, whole

pytestmark = pytest.mark.django_db(transaction=True)

MESSAGE = {"role": "user", "content": "hello"}


def test_a_writer_goes_on_from_what_is_there(store: SessionStore, tmp_path: Path):
    """On a connection that remembers how it left the row."""
    store.create_session("s", agent_type="a")
    store.append_messages("s", [MESSAGE])
    backup = Backup(tmp_path)
    for _ in range(5):
        store.append_messages("s", [MESSAGE])
    before = store.load_state("s")
    backup.restore()

    with pytest.raises(StaleState):
        store.append_messages("s", [MESSAGE], expected_version=before.version)
    assert store.append_messages("s", [MESSAGE]).head_seq == 3
    assert store.emit_event("s", "noted", idempotency_key="key").seq == 4
    assert_invariants("s")


def test_a_key_that_is_gone_is_free_again(store: SessionStore, tmp_path: Path):
    """What was done once under it is not there any more, so it is done."""
    store.create_session("s", agent_type="a")
    backup = Backup(tmp_path)

    def all_once() -> list[Any]:
        state = store.load_state("s")
        meta = {"checkpoint_id": "c"}
        return [
            store.emit_event("s", "noted", idempotency_key="key").seq,
            store.admit_input("s", "hello", input_id="i").admitted_seq,
            store.save_state_and_promote_staging("s", state, [MESSAGE], meta).replayed,
        ]

    first = all_once()
    backup.restore()
    assert all_once() == first == [2, 3, False]
    assert_invariants("s")


def test_a_session_that_is_not_there_yet(store: SessionStore, tmp_path: Path):
    backup = Backup(tmp_path)
    store.create_session("s", agent_type="a")
    lease = store.acquire_lease("s", "me", 60)
    mine = store.fenced(lease)
    mine.append_messages("s", [MESSAGE])
    backup.restore()

    for call in (
        lambda: mine.append_messages("s", [MESSAGE]),
        lambda: store.append_messages("s", [MESSAGE]),
        lambda: store.renew_lease(lease, 60),
    ):
        with pytest.raises(SessionNotFound):
            call()
    with pytest.raises(Fenced):
        mine.begin_turn("s")
    store.create_session("s", agent_type="a")
    assert_invariants("s")


def test_a_lease_that_was_taken_later(store: SessionStore, tmp_path: Path):
    store.create_session("s", agent_type="a")
    backup = Backup(tmp_path)
    lease = store.acquire_lease("s", "me", 60)
    mine = store.fenced(lease)
    mine.append_messages("s", [MESSAGE])
    backup.restore()

    for _ in range(2):
        for call in (lambda: mine.append_messages("s", [MESSAGE]), lambda: store.renew_lease(lease, 60)):
            with pytest.raises(Fenced):
                call()
        store.acquire_lease("s", "another", 60)
    assert store.get_message_count("s") == 0


class TestWithinALease:
    """The row names the driver, and the log has lost what it wrote: it does not go on from there."""

    def test_every_write_is_refused(self, store: SessionStore, tmp_path: Path):
        run = store.begin_turn("s", message="hello", run_id="r").run
        mine = store.fenced(store.acquire_lease("s", "me", 60))
        mine.append_messages("s", [MESSAGE])
        backup = Backup(tmp_path)
        mine.append_messages("s", [calling("a")])
        backup.restore()

        state = store.load_state("s")
        for call in (
            lambda: mine.append_messages("s", [MESSAGE]),
            lambda: mine.emit_event("s", "tool_responded", {"tool_call_id": "a"}),
            lambda: mine.stage_changes("s", "step", "a", []),
            lambda: mine.save_state_and_promote_staging("s", state, [MESSAGE]),
            lambda: mine.update_run_status("s", run.run_id, "completed"),
            lambda: mine.suspend("s", "client_tool", state=state, run_id="r", pending_calls=[asked("a")]),
            lambda: mine.rewind("s"),
        ):
            with pytest.raises(Fenced, match="put back"):
                call()
        assert store.load_state("s") == state
        store.fenced(store.acquire_lease("s", "me", 60)).append_messages("s", [MESSAGE])
        assert_invariants("s")

    def test_what_a_caller_rolled_back_is_not_missed(self, store: SessionStore):
        store.create_session("s", agent_type="a")
        mine = store.fenced(store.acquire_lease("s", "me", 60))
        mine.append_messages("s", [MESSAGE])
        with transaction.atomic():
            mine.append_messages("s", [MESSAGE])
            mine.emit_event("s", "noted")
            transaction.set_rollback(True)
        assert mine.append_messages("s", [MESSAGE]).message_count == 2
        assert_invariants("s")

    def test_a_runner_leaves_the_session_to_be_recovered(self, store: SessionStore, tmp_path: Path):
        """Its tool ran for a call that is not there any more; no model takes a result without a call."""
        store.create_session("s", agent_type="a")
        store.admit_input("s", "go")
        made: list[Backup] = []

        def think(turn: TurnContext) -> dict[str, Any]:
            made.append(Backup(tmp_path))
            return calls("look")

        def look(arguments: Any, turn: TurnContext) -> ToolResult:
            made[0].restore()
            return ToolResult("seen", [{"op": "set", "path": ["seen"], "value": True}])

        runner = SessionRunner(ScriptedAgent([think], tools={"look": look}), lease_ttl=0.3)
        assert runner.wake("s").kind == "idle"
        assert said(store, "s") == [("user", "go")]
        assert SessionRunner(ScriptedAgent(["once more"])).run("s").kind == "completed"
        assert said(store, "s") == [("user", "go"), ("assistant", "once more")]
        assert store.load_state("s").custom_state == {}
        assert_valid_transcript("s")
        whole(store, "s")

    def test_a_runner_neither_suspends_nor_ends_what_was_put_back(self, store: SessionStore, tmp_path: Path):
        """Also where the write concerns other sessions: a suspension, and the end of a child."""
        store.create_session("parent", agent_type="a")
        for key, parent, answer in (
            ("waits", None, calls("ask")),
            ("child", "parent", "done"),
        ):
            store.create_session(key, agent_type="a", parent_session_id=parent)
            store.admit_input(key, "go")
            made: list[Backup] = []

            def first(turn: TurnContext, made: list[Backup] = made) -> dict[str, Any]:
                made.append(Backup(tmp_path))
                return calls("look")

            def second(turn: TurnContext, made: list[Backup] = made, answer: Any = answer) -> Any:
                made[0].restore()
                return answer

            agent = ScriptedAgent([first, second], tools={"look": lambda arguments, turn: 1})
            agent.client_tools = ["ask"]
            assert SessionRunner(agent).wake(key).kind == "idle", key
            assert said(store, key) == [("user", "go")], key
            assert store.get_current_run(key) is not None, key
            assert_invariants(key)
