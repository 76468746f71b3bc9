"""Runs, the interrupt flag and references."""

import pytest
from hypothesis import strategies as st

from helix_sessions.exceptions import RunNotFound, SessionNotFound
from helix_sessions.types import Run, SubSessionRef
from tests.contract.machine import values
from tests.contract.machine.harness import Harness, exact, operation


class RunsAndFlags(Harness):
    """Calls on runs, on the flag and on references to sub-sessions."""

    @operation(
        weight=2,
        key=values.session_ids,
        run_id=st.none() | values.run_ids,
        metadata=values.metadata,
        version=values.versions,
    )
    def create_run(self, key, run_id, metadata, version):
        expected = self.expected(key, version)
        accepted, run = self.perform(
            key,
            lambda: self.model.get(key).start_run(run_id, metadata, expected),
            lambda: self.store.create_run(key, run_id=run_id, metadata=metadata, expected_version=expected),
        )
        if accepted:
            assert run == self.store.get_current_run(key)
            assert run == self.store.get_run(key, run.run_id)

    @operation(
        weight=2,
        key=values.session_ids,
        number=st.integers(0, 5),
        status=values.run_statuses,
        given=st.fixed_dictionaries(
            {},
            optional={
                "step_count": st.integers(0, 3),
                "output": values.small,
                "error": values.texts,
                "usage": st.just({"tokens": 1}),
            },
        ),
        version=values.versions,
    )
    def update_run_status(self, key, number, status, given, version):
        expected = self.expected(key, version)
        runs = self.model.sessions[key].runs if key in self.model.sessions else []
        known = ["r1", *(run["run_id"] for run in reversed(runs))]
        run_id = known[(number + 1) % len(known)]
        accepted, run = self.perform(
            key,
            lambda: self.model.get(key).update_run(run_id, status, given, expected),
            lambda: self.store.update_run_status(key, run_id, status, **given, expected_version=expected),
        )
        if accepted:
            assert exact(run) == exact(self.store.get_run(key, run_id))

    @operation(key=values.session_ids, limit=st.integers(1, 2))
    def read_runs(self, key, limit):
        session = self.model.sessions.get(key)
        if session is None:
            with pytest.raises(SessionNotFound):
                self.store.list_runs(key)
            with pytest.raises(SessionNotFound):
                self.store.get_run(key, "r1")
            return
        with pytest.raises(RunNotFound):
            self.store.get_run(key, "nowhere")
        found: list[Run] = []
        cursor = None
        while True:
            page = self.store.list_runs(key, limit=limit, cursor=cursor)
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
            assert len(page.items) == limit
        assert [run.turn for run in found] == list(range(len(session.runs), 0, -1))

    @operation(weight=2, key=values.session_ids, reason=st.none() | values.texts, version=values.versions)
    def set_interrupt_flag(self, key, reason, version):
        expected = self.expected(key, version)
        self.perform(
            key,
            lambda: self.model.get(key).set_flag(reason, expected),
            lambda: self.store.set_interrupt_flag(key, reason, expected_version=expected),
        )

    @operation(key=values.session_ids, version=values.versions)
    def check_interrupt_flag(self, key, version):
        expected = self.expected(key, version)
        flag = self.model.sessions[key].flag if key in self.model.sessions else None
        accepted, request = self.perform(
            key,
            lambda: self.model.get(key).clear_flag(expected),
            lambda: self.store.check_interrupt_flag(key, expected_version=expected),
        )
        if accepted:
            assert (None if request is None else (request.reason,)) == flag

    @operation(key=values.session_ids, version=values.versions)
    def clear_interrupt_flag(self, key, version):
        expected = self.expected(key, version)
        self.perform(
            key,
            lambda: self.model.get(key).clear_flag(expected),
            lambda: self.store.clear_interrupt_flag(key, expected_version=expected),
        )

    @operation(
        weight=2,
        key=values.session_ids,
        refs=st.lists(values.references, max_size=2),
        version=values.versions,
        as_values=st.booleans(),
    )
    def add_sub_session_refs(self, key, refs, version, as_values):
        expected = self.expected(key, version)
        given = [SubSessionRef(**ref) for ref in refs] if as_values else refs
        self.perform(
            key,
            lambda: self.model.get(key).add_refs(refs, expected),
            lambda: self.store.add_sub_session_refs(key, given, expected_version=expected),
        )

    @operation(
        weight=2,
        key=values.session_ids,
        sub=values.session_ids,
        changes=values.reference_changes,
        version=values.versions,
    )
    def update_sub_session_ref(self, key, sub, changes, version):
        expected = self.expected(key, version)
        accepted, ref = self.perform(
            key,
            lambda: self.model.get(key).update_ref(sub, changes, expected),
            lambda: self.store.update_sub_session_ref(key, sub, expected_version=expected, **changes),
        )
        if accepted:
            assert ref in self.store.get_sub_session_refs(key)
