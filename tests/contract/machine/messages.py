"""The transcript and the log."""

import pytest
from hypothesis import strategies as st

from helix_sessions.exceptions import HelixSessionsError, SessionNotFound
from tests.contract.machine import values
from tests.contract.machine.harness import Harness, exact, operation
from tests.contract.machine.model import NOTHING, Effect, Refused, told_role


class MessagesAndEvents(Harness):
    """Calls on messages and events."""

    @operation(
        weight=4,
        key=values.session_ids,
        messages=values.message_lists,
        run_id=st.sampled_from([None, None, "r1"]),
        version=values.versions,
    )
    def append_messages(self, key, messages, run_id, version):
        expected = self.expected(key, version)
        accepted, answer = self.perform(
            key,
            lambda: self.model.get(key).append(messages, run_id, expected),
            lambda: self.store.append_messages(key, messages, run_id=run_id, expected_version=expected),
        )
        if accepted:
            session = self.model.sessions[key]
            count = len(session.messages)
            assert (answer.first_position, answer.message_count) == (count - len(messages), count)
            assert (answer.version, answer.head_seq) == (session.state["version"], session.head)

    @operation(weight=3, key=values.session_ids, count=st.integers(0, 3), version=values.versions)
    def truncate_messages(self, key, count, version):
        expected = self.expected(key, version)
        before = len(self.model.sessions[key].messages) if key in self.model.sessions else 0
        accepted, answer = self.perform(
            key,
            lambda: self.model.get(key).truncate(count, expected),
            lambda: self.store.truncate_messages(key, count, expected_version=expected),
        )
        if accepted:
            assert answer == max(0, before - count)

    @operation(
        key=values.session_ids,
        offset=st.integers(0, 5),
        limit=st.none() | st.integers(0, 4),
        newest_first=st.booleans(),
    )
    def get_messages(self, key, offset, limit, newest_first):
        session = self.model.sessions.get(key)
        if session is None:
            with pytest.raises(SessionNotFound):
                self.store.get_messages(key)
            return
        page = self.store.get_messages(key, offset=offset, limit=limit, newest_first=newest_first)
        messages = session.messages[::-1] if newest_first else session.messages
        expected = messages[offset:] if limit is None else messages[offset : offset + limit]
        assert exact(page.messages) == exact(expected)
        assert page.total == len(messages)
        assert page.has_more == (offset + len(expected) < len(messages))

    @operation(
        weight=3,
        key=values.session_ids,
        type_=values.event_types,
        data=values.event_data,
        turn_id=st.sampled_from([None, "turn"]),
        run_id=st.sampled_from([None, None, "r1"]),
        idempotency_key=st.none() | values.keys,
    )
    def emit_event(self, key, type_, data, turn_id, run_id, idempotency_key):
        first = None

        def decide() -> Effect:
            nonlocal first
            if told_role(type_, data) not in (None, type_.removesuffix("_message")):
                raise Refused(HelixSessionsError)  # said before the session is looked for
            session = self.model.get(key)
            first = session.keys.get(idempotency_key or "")
            return NOTHING if first else session.emit(type_, data, run_id)

        accepted, event = self.perform(
            key,
            decide,
            lambda: self.store.emit_event(
                key, type_, data, turn_id=turn_id, run_id=run_id, idempotency_key=idempotency_key
            ),
        )
        if not accepted:
            return
        session = self.model.sessions[key]
        if first is not None:
            assert exact(event) == exact(first)
            return
        assert exact(event) == exact(session.log[-1])
        assert (event.type, event.turn_id) == (type_, turn_id)
        if idempotency_key is not None:
            session.keys[idempotency_key] = event

    @operation(
        key=values.session_ids,
        first=st.none() | st.integers(0, 12),
        end=st.none() | st.integers(0, 12),
        types=st.none()
        | st.lists(st.sampled_from(["session_started", "user_message", "state_saved"]), max_size=2),
        run_id=st.sampled_from([None, None, "r1"]),
        limit=st.none() | st.integers(0, 3),
    )
    def get_events(self, key, first, end, types, run_id, limit):
        session = self.model.sessions.get(key)
        if session is None:
            with pytest.raises(SessionNotFound):
                self.store.get_events(key)
            with pytest.raises(SessionNotFound):
                self.store.detach(key)
            return
        found = self.store.get_events(key, first, end, types=types, run_id=run_id, limit=limit)
        expected = [
            event
            for event in session.log
            if (first is None or event.seq >= first)
            and (end is None or event.seq < end)
            and (types is None or event.type in types)
            and run_id in (None, event.run_id)
        ]
        assert exact(found) == exact(expected if limit is None else expected[:limit])
        self.store.detach(key)
