"""How a call is made on the store and on the model, and how the two are compared after it."""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import is_dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

import pytest
from django.db import connections, transaction
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from helix_sessions.exceptions import StaleState
from helix_sessions.models import SpendEntry, SpendTotal
from helix_sessions.store import SessionStore
from helix_sessions.types import SessionState, SubSessionRef
from tests.contract.machine import values
from tests.contract.machine.model import NOTHING, Effect, Model, Refused, Session, vars_of
from tests.invariants import assert_invariants, dump

F = TypeVar("F", bound=Callable[..., None])
CALLERS = ("here", "there", "within a transaction")
SUMMARY = (
    "agent_type",
    "status",
    "version",
    "step_count",
    "message_count",
    "user_id",
    "owner_id",
    "tags",
    "parent_session_id",
    "expires_at",
    "created_at",
    "updated_at",
)
_REFERENCE = ("sub_session_id", "agent_type", "parent_tool_call_id", "status", "mode", "location", "result")


def exact(value: Any) -> str:
    """Equal for two values only if they agree in types and in the order of keys too."""
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    assert isinstance(value, datetime), value
    return value.isoformat()


OPERATIONS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {}
"""What a step may be: how often, and what it is given."""


def operation(*, weight: int = 1, **arguments: st.SearchStrategy[Any]) -> Callable[[F], F]:
    """Make a method of the machine one of its steps."""

    def register(method: F) -> F:
        OPERATIONS[method.__name__] = (weight, arguments)
        return method

    return register


class Harness(RuleBasedStateMachine):
    """Few sessions, called by turns from two connections and from within a caller's transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.store = SessionStore()
        self.model = Model()
        self.thread = ThreadPoolExecutor(1)
        self.turn = 0
        self.sound = True
        self.rows: dict[str, list[Any]] = {}
        self.callers: list[str] = ["here"]
        self.clear()  # what a run that failed has left

    @initialize(
        callers=st.lists(st.sampled_from(CALLERS), min_size=1, max_size=5), custom_state=values.custom_states
    )
    def begin(self, callers: list[str], custom_state: dict[str, Any]) -> None:
        self.callers = callers
        for key in ("a", "b"):
            self.perform(
                key,
                lambda key=key: self.model.create(  # type: ignore[misc]
                    key, agent_type="agent", custom_state=custom_state, parent_session_id=None
                ),
                lambda key=key: self.store.create_session(  # type: ignore[misc]
                    key, agent_type="agent", custom_state=custom_state
                ),
            )

    def teardown(self) -> None:
        try:
            if self.sound:
                for session_id in list(self.model.sessions):
                    self.compare(session_id)
                    assert_invariants(session_id)
                self.clear()
                assert {table: rows for table, rows in dump().items() if rows} == {}, "left behind"
        finally:
            self.thread.submit(connections.close_all).result()
            self.thread.shutdown()

    def clear(self) -> None:
        for session_id in ("a", "b", "c", "d"):
            self.store.delete_session(session_id)
        for model in (SpendEntry, SpendTotal):  # what was spent outlives sessions
            model.objects.all().delete()

    # How calls are made

    def call(self, function: Callable[[], Any]) -> Any:
        """Make the call the way that is next."""
        caller = self.callers[self.turn % len(self.callers)]
        self.turn += 1
        if caller == "there":
            return self.thread.submit(function).result()
        if caller == "here":
            return function()
        with transaction.atomic():
            return function()

    def refused(self, refusal: Refused, function: Callable[[], Any], session_id: str) -> None:
        """The store refuses as the model does, and nothing has changed."""
        with pytest.raises(refusal.kinds) as caught:
            self.call(function)
        error = caught.value
        if isinstance(error, StaleState):
            state = self.model.sessions[session_id].state
            assert error.current_version == state["version"] != error.expected_version
            assert error.current_status == state["status"]
        self.unchanged()

    def unchanged(self) -> None:
        """No row of any session is other than after the last call that was accepted."""
        assert dump() == self.rows

    def perform(
        self,
        session_id: str,
        decide: Callable[[], Effect],
        function: Callable[[], Any],
        *,
        concerning: Collection[str] = (),
    ) -> tuple[bool, Any]:
        """Make the call on the model and on the store, and compare; whether it was accepted, its answer. What
        happens to the sessions it is `concerning` is taken over."""
        try:
            effect = decide()
        except Refused as refusal:
            self.refused(refusal, function, session_id)
            return False, None
        answer = self.call(function)
        self.adopt(session_id, effect)
        for key in concerning:
            self.adopt_whole(key)
        if concerning:
            self.adopt_whole(session_id)
        self.compare_all(session_id)
        return True, answer

    def expected(self, session_id: str, distance: int | None) -> int | None:
        if distance is None:
            return None
        session = self.model.sessions.get(session_id)
        return (session.state["version"] if session else 1) + distance

    @staticmethod
    def edited(state: SessionState, edits: dict[str, Any], tweak: Any) -> SessionState:
        """The state as a caller passes it to a save."""
        custom = state.custom_state
        if isinstance(tweak, dict):
            custom = {**custom, **tweak}
        elif tweak is not None:
            _, custom = tweak
        return replace(state, **edits, custom_state=custom)

    def checkpoint_ids(self, key: str, *, other_sessions: bool = False) -> list[str]:
        """Ids of checkpoints of this session, or of others, and one that there is not."""
        of = [it for name, it in self.model.sessions.items() if (name == key) != other_sessions]
        return ["nowhere", *(made["checkpoint_id"] for session in of for made in session.checkpoints)]

    # What the model takes over from the store

    def adopt(self, session_id: str, effect: Effect) -> None:
        session = self.model.sessions[session_id]
        state = self.store.load_state(session_id)
        self.adopt_events(session, effect)
        before = session.state
        if effect is NOTHING:
            assert state.updated_at == before["updated_at"] or before["updated_at"] is None
        elif before["updated_at"] is not None:
            assert state.updated_at >= before["updated_at"]
            assert state.created_at == before["created_at"]
        before.update(created_at=state.created_at, updated_at=state.updated_at)
        before.update(head_seq=session.head, message_count=len(session.messages))
        before.update(
            runnable_at=state.runnable_at, last_agent_activity_at=state.last_agent_activity_at
        )  # a model of its own is in test_runnable_machine
        for run in session.runs:
            if run["run_id"] is None:
                run["run_id"] = self.store.list_runs(session_id, limit=1).items[0].run_id
            if run["end_sequence"] == "run_finished":
                [run["end_sequence"]] = [
                    event.seq
                    for event in session.log
                    if event.type == "run_finished" and event.data["run_id"] == run["run_id"]
                ][-1:]
        if session.checkpoints and session.checkpoints[-1]["state"] is None:
            self.adopt_checkpoint(session, state)

    def adopt_whole(self, session_id: str) -> None:
        """A session that a decision about another one has changed."""
        session = self.model.sessions[session_id]
        session.state.update(vars_of(self.store.load_state(session_id)))
        session.log += self.store.get_events(session_id, session.head + 1)
        for run, known in zip(self.store.list_runs(session_id).items, reversed(session.runs), strict=True):
            known.update({name: getattr(run, name) for name in known})
        for ref in self.store.get_sub_session_refs(session_id):
            session.refs[ref.sub_session_id].update(status=ref.status, result=ref.result)
        flag = self.store.peek_interrupt_flag(session_id)
        session.flag = None if flag is None else (flag.reason,)

    def adopt_checkpoint(self, session: Session, state: SessionState) -> None:
        made = session.checkpoints[-1]
        key = made["checkpoint_id"]
        if key is None:
            key = made["checkpoint_id"] = state.checkpoint_id
            pattern = rf"cpv1-{state.session_id}-s{made['step_count']}-t\d{{13}}-[0-9a-f]{{6}}"
            assert re.fullmatch(pattern, str(key))
            assert [it["checkpoint_id"] for it in session.checkpoints].count(key) == 1
        session.state.update(checkpoint_id=key, checkpointed_at=state.checkpointed_at)
        made.update(state=state, created_at=state.checkpointed_at)

    def adopt_events(self, session: Session, effect: Effect) -> None:
        new = self.store.get_events(session.state["session_id"], session.head + 1)
        assert [event.seq for event in new] == list(range(session.head + 1, session.head + len(new) + 1))
        if effect.messages or effect.types or effect.raised:
            assert new, "nothing was logged"
        else:
            assert not new, "something was logged"
        types = Counter(event.type for event in new)
        assert not Counter(effect.types) - types, f"{effect.types} are not in {types}"
        said = new
        if not effect.exactly or effect.types:
            said = [
                event for event in new if event.type.endswith("_message") and event.type not in effect.types
            ]
        assert [event.type for event in said] == [f"{message['role']}_message" for message in effect.messages]
        assert exact([event.data for event in said]) == exact(effect.messages)
        if effect.exactly:
            assert len(new) == len(effect.types) + len(effect.messages)
        runs = {session.running} if effect.runs is None else effect.runs
        named = {event.run_id for event in new}
        if None in runs and any(run["run_id"] is None for run in session.runs):
            runs = named  # the run's id was just generated
        assert named <= runs, f"{named} instead of {runs}"
        times = [event.created_at for event in [*session.log[-1:], *new]]
        assert times == sorted(times)
        session.message_seqs |= {event.seq for event in said}
        session.log += new

    # What is compared

    def compare_all(self, session_id: str) -> None:
        """This session whole, of the others that nothing has happened to them."""
        lines = {line.session_id: line for line in self.store.list_sessions().items}
        assert lines.keys() == self.model.sessions.keys()
        for key, line in lines.items():
            state = self.model.sessions[key].state
            assert (line.version, line.updated_at) == (state["version"], state["updated_at"])
        if session_id in self.model.sessions:
            self.compare(session_id)
        else:
            assert not self.store.session_exists(session_id)
        self.rows = dump()

    def compare(self, session_id: str) -> None:
        session = self.model.sessions[session_id]
        store = self.store
        self.compare_state(store.load_state(session_id), session)
        page = store.get_messages(session_id)
        assert exact(page.messages) == exact(session.messages)
        assert (page.total, page.has_more) == (len(session.messages), False)
        assert store.get_message_count(session_id) == len(session.messages)
        events = store.get_events(session_id)
        assert exact(events) == exact(session.log), "an event has changed"
        told = [it.content for it in store.project_messages(events) if it.seq in session.message_seqs]
        assert exact(told) == exact([message["content"] for message in session.messages])
        self.compare_runs(session_id, session)
        self.compare_checkpoints(session_id, session)
        staged = [[it.step_id, it.tool_call_id, it.writes] for it in store.get_staged_changes(session_id)]
        assert exact(staged) == exact(session.staged)
        assert store.has_staged_changes(session_id) == bool(session.staged)
        refs = [self.content_of(ref) for ref in store.get_sub_session_refs(session_id)]
        assert exact(refs) == exact(
            [{name: ref[name] for name in _REFERENCE} for ref in session.refs.values()]
        )
        flag = store.peek_interrupt_flag(session_id)
        assert (None if flag is None else (flag.reason,)) == session.flag

    @staticmethod
    def compare_state(state: SessionState, session: Session) -> None:
        for name, value in session.state.items():
            found = getattr(state, name)
            if name == "metadata":
                assert found == value, name
            else:
                assert exact(found) == exact(value), name

    def compare_runs(self, session_id: str, session: Session) -> None:
        runs = self.store.list_runs(session_id).items
        assert [run.run_id for run in runs] == [run["run_id"] for run in reversed(session.runs)]
        for run, expected in zip(runs, reversed(session.runs), strict=True):
            assert run.session_id == session_id
            for name, value in expected.items():
                assert exact(getattr(run, name)) == exact(value), name
            assert (run.ended_at is None) == (run.end_sequence is None) == (run.status == "running")
        current = self.store.get_current_run(session_id)
        assert current == next((run for run in runs if run.status == "running"), None)

    def compare_checkpoints(self, session_id: str, session: Session) -> None:
        found = self.store.list_checkpoints(session_id, limit=100)
        assert found.next_cursor is None
        expected = [{"session_id": session_id, **it} for it in reversed(session.checkpoints)]
        names = list(vars_of(found.items[0])) if found.items else []
        assert exact(found.items) == exact([{name: it[name] for name in names} for it in expected])
        latest = self.store.get_latest_checkpoint(session_id)
        assert latest == (found.items[0] if found.items else None)

    @staticmethod
    def content_of(ref: SubSessionRef) -> dict[str, Any]:
        assert ref.created_at is not None
        assert ref.updated_at is not None
        assert ref.created_at <= ref.updated_at
        return {name: getattr(ref, name) for name in _REFERENCE}
