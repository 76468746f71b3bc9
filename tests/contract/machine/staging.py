"""Tools stage their writes."""

from datetime import timedelta

import pytest
from hypothesis import strategies as st

from helix_sessions.exceptions import SessionNotFound
from tests.contract.machine import values
from tests.contract.machine.harness import Harness, operation
from tests.contract.machine.model import NOTHING, Effect, Refused
from tests.invariants import dump


class Staging(Harness):
    """Calls on what is staged, but its promotion."""

    @operation(
        weight=4,
        key=values.session_ids,
        step=values.steps,
        call=values.calls,
        writes=values.gentle_writes | values.gentle_writes | values.write_lists,
    )
    def stage_changes(self, key, step, call, writes):
        accepted, answer = self.perform(
            key,
            lambda: self.model.get(key).stage(step, call, writes),
            lambda: self.store.stage_changes(key, step, call, writes),
        )
        if accepted:
            assert answer in self.store.get_staged_changes(key, step)

    @operation(key=values.session_ids, step=st.none() | values.steps)
    def discard_staging(self, key, step):
        removed = 0

        def decide() -> Effect:
            nonlocal removed
            removed = self.model.get(key).discard(step)
            return NOTHING

        accepted, answer = self.perform(key, decide, lambda: self.store.discard_staging(key, step))
        if accepted:
            assert answer == removed

    @operation(key=st.none() | values.session_ids, old=st.booleans())
    def cleanup_orphaned_staging(self, key, old):
        age = timedelta(0) if old else timedelta(hours=1)

        def clean() -> int:
            return self.store.cleanup_orphaned_staging(older_than=age, session_id=key)

        if key is not None and key not in self.model.sessions:
            self.refused(Refused(SessionNotFound), clean, key)
            return
        removed = self.model.cleanup(old, list(self.model.sessions) if key is None else [key])
        assert self.call(clean) == removed
        for session_id in self.model.sessions:
            self.compare(session_id)
        self.rows = dump()

    @operation(key=values.session_ids, step=values.steps)
    def read_staging(self, key, step):
        session = self.model.sessions.get(key)
        if session is None:
            with pytest.raises(SessionNotFound):
                self.store.get_staged_changes(key)
            with pytest.raises(SessionNotFound):
                self.store.has_staged_changes(key, step)
            return
        expected = [call for of, call, _ in session.staged if of == step]
        assert [it.tool_call_id for it in self.store.get_staged_changes(key, step)] == expected
        assert self.store.has_staged_changes(key, step) == bool(expected)
