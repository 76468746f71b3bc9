"""The state is saved, merged and moved on."""

from dataclasses import replace

from hypothesis import strategies as st

from helix_sessions.exceptions import SessionNotFound
from helix_sessions.types import CasMismatch, CasOk, SessionState
from tests.contract.machine import values
from tests.contract.machine.harness import Harness, operation
from tests.contract.machine.model import Effect, Refused, vars_of


class States(Harness):
    """Calls on the state."""

    @operation(
        weight=3,
        key=values.session_ids,
        source=values.session_ids,
        edits=values.edits,
        tweak=values.tweaks,
        ignored=values.not_owned,
        mode=st.sampled_from([None, None, None, "standard", "persistent"]),
        version=values.versions,
    )
    def save_state(self, key, source, edits, tweak, ignored, mode, version):
        """A state of this or of another session, edited."""
        expected = self.expected(key, version)
        loaded = self.model.sessions.get(source) or self.model.sessions.get(key)
        loaded_mode = self.model.sessions[key].state["mode"] if key in self.model.sessions else "standard"
        base = SessionState(**loaded.state) if loaded else SessionState(session_id="x", agent_type="x")
        state = replace(self.edited(base, edits, tweak), **ignored, mode=mode or loaded_mode)
        accepted, answer = self.perform(
            key,
            lambda: self.model.get(key).save(vars_of(state), expected),
            lambda: self.store.save_state(key, state, expected_version=expected),
        )
        if accepted:
            self.compare_state(answer, self.model.sessions[key])

    @operation(
        weight=4,
        key=values.session_ids,
        writes=values.gentle_writes | values.write_lists,
        version=values.versions,
    )
    def merge_custom_state(self, key, writes, version):
        expected = self.expected(key, version)
        accepted, answer = self.perform(
            key,
            lambda: self.model.get(key).merge(writes, expected),
            lambda: self.store.merge_custom_state(key, writes, expected_version=expected),
        )
        if accepted:
            self.compare_state(answer, self.model.sessions[key])

    @operation(
        weight=4,
        key=values.session_ids,
        status=values.statuses,
        error=st.none() | values.texts,
        reason=st.sampled_from([None, "because"]),
        context=values.small,
        output=st.none() | values.small.map(lambda value: (value,)),
        version=values.versions,
    )
    def update_status(self, key, status, error, reason, context, output, version):
        expected = self.expected(key, version)
        given = {"error": error, "failure_reason": reason, "interrupt_context": context}
        more = {} if output is None else {"output": output[0]}

        def decide() -> Effect:
            session = self.model.get(key)
            session.expect(expected)
            session.state.update(more)
            return session.enter(status, given)

        accepted, answer = self.perform(
            key,
            decide,
            lambda: self.store.update_status(key, status, **given, **more, expected_version=expected),
            concerning=self.model.concerned(key, status) if key in self.model.sessions else (),
        )
        if accepted:
            assert answer == self.model.sessions[key].state["version"]

    @operation(
        weight=2,
        key=values.session_ids,
        statuses=st.lists(values.statuses, min_size=1, max_size=3),
        new=values.statuses,
        reason=st.sampled_from([None, "because"]),
        version=values.versions,
    )
    def compare_and_set_status(self, key, statuses, new, reason, version):
        expected = self.expected(key, version)
        session = self.model.sessions.get(key)

        def swap() -> CasOk | CasMismatch:
            return self.store.compare_and_set_status(
                key, statuses, new, failure_reason=reason, expected_version=expected
            )

        if session is None:
            self.refused(Refused(SessionNotFound), swap, key)
        elif session.state["status"] in statuses and expected in (None, session.state["version"]):
            others = self.model.concerned(key, new)
            _, answer = self.perform(
                key, lambda: session.enter(new, {"failure_reason": reason}), swap, concerning=others
            )
            assert answer == CasOk(new_version=session.state["version"])
        else:
            answer = self.call(swap)
            assert answer == CasMismatch(
                current_status=session.state["status"], current_version=session.state["version"]
            )
            assert not answer
            self.unchanged()

    @operation(
        key=values.session_ids,
        counter=st.sampled_from(["step_count", "resume_count"]),
        version=values.versions,
    )
    def increment(self, key, counter, version):
        expected = self.expected(key, version)
        accepted, answer = self.perform(
            key,
            lambda: self.model.get(key).count(counter, expected),
            lambda: getattr(self.store, f"increment_{counter}")(key, expected_version=expected),
        )
        if accepted:
            assert answer == self.model.sessions[key].state[counter]
