"""Sessions come, branch, are listed and go."""

from typing import Any

from hypothesis import strategies as st

from helix_sessions.types import SessionState
from tests.contract.machine import values
from tests.contract.machine.harness import SUMMARY, Harness, exact, operation
from tests.contract.machine.model import Refused, vars_of


class Lifecycle(Harness):
    """Calls on sessions as such."""

    @operation(
        weight=2,
        key=values.new_ids,
        custom_state=values.custom_states,
        owner=values.owners,
        user_id=values.users,
        tags=values.tags,
        metadata=values.metadata,
        parent=values.parents,
        root=st.sampled_from([None, None, "far"]),
        mode=st.sampled_from(["standard", "persistent"]),
        expires_at=values.moments,
        documents=values.small,
    )
    def create_session(
        self, key, custom_state, owner, user_id, tags, metadata, parent, root, mode, expires_at, documents
    ):
        fields = {
            "agent_type": "agent",
            "custom_state": custom_state,
            "user_id": user_id,
            "stream_id": user_id,
            "tags": tags,
            "metadata": metadata,
            "parent_session_id": parent,
            "root_session_id": root,
            "mode": mode,
            "expires_at": expires_at,
            "tracing_context": documents,
            "workspace_ref": documents,
        }
        accepted, state = self.perform(
            key,
            lambda: self.model.create(key, owner_id=owner, **fields),
            lambda: self.store.create_session(key, owner=owner, **fields),
        )
        if accepted:
            self.compare_state(state, self.model.sessions[key])

    @operation(key=values.new_ids)
    def attach(self, key):
        session = self.model.sessions.get(key)
        if session is not None:
            assert self.call(lambda: self.store.attach(key)) == session.head
            self.unchanged()
            return
        assert self.call(lambda: self.store.attach(key)) == 1
        agent_type = self.store.load_state(key).agent_type
        effect = self.model.create(key, agent_type=agent_type, parent_session_id=None)
        self.adopt(key, effect)
        self.compare_all(key)

    @operation(key=values.doomed_ids)
    def delete_session(self, key):
        self.model.delete(key)
        assert self.call(lambda: self.store.delete_session(key)) is None
        self.compare_all(key)

    @operation(
        weight=4,
        source=values.session_ids,
        new=values.new_ids,
        checkpoint=st.none() | st.integers(0, 20),
        count=st.sampled_from([None, None, 0, 1, 2, 9]),
    )
    def clone_session(self, source, new, checkpoint, count):
        known = self.checkpoint_ids(source, other_sessions=checkpoint == 0)
        checkpoint_id = None if checkpoint is None else known[checkpoint % len(known)]
        accepted, state = self.perform_clone(source, new, checkpoint_id, count)
        if accepted:
            assert state == self.store.load_state(new)
            self.compare(source)

    def perform_clone(self, source, new, checkpoint_id, count):
        def clone() -> SessionState:
            return self.store.clone_session(source, new, checkpoint_id=checkpoint_id, message_count=count)

        try:
            effect = self.model.clone(source, new, checkpoint_id, count)
        except Refused as refusal:
            self.refused(refusal, clone, source)
            return False, None
        state = self.call(clone)
        branch = self.model.sessions[new]
        named = ("custom_state", "step_count", "forked_from", "agent_type", "mode", "version", "resume_count")
        fresh = (
            "pending_client_tool_calls",
            "suspended_awaiting_children",
            "suspended_step_id",
            "checkpoint_id",
        )
        for name in (*named, *fresh):
            assert exact(getattr(state, name)) == exact(branch.state[name]), name
        branch.state.update({name: value for name, value in vars_of(state).items() if name not in named})
        branch.state.update(created_at=None, updated_at=None)
        self.adopt(new, effect)
        self.compare_all(new)
        return True, state

    @operation(
        status=st.none() | values.statuses,
        user_id=values.users,
        owner=values.owners,
        tag=st.sampled_from([None, None, "t"]),
        parent=st.none() | values.session_ids,
        before=values.moments,
        after=st.none() | values.session_ids,
        limit=st.integers(1, 3),
    )
    def list_sessions(self, status, user_id, owner, tag, parent, before, after, limit):
        since = self.model.sessions[after].state["updated_at"] if after in self.model.sessions else None
        found, cursor = [], None
        while True:
            page = self.store.list_sessions(
                status=status,
                user_id=user_id,
                owner=owner,
                tag=tag,
                parent_session_id=parent,
                expires_before=before,
                updated_after=since,
                limit=limit,
                cursor=cursor,
            )
            assert len(page.items) == limit or page.next_cursor is None
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                break

        def wanted(state: dict[str, Any]) -> bool:
            return (
                status in (None, state["status"])
                and user_id in (None, state["user_id"])
                and owner in (None, state["owner_id"])
                and (tag is None or tag in state["tags"])
                and parent in (None, state["parent_session_id"])
                and (before is None or (state["expires_at"] is not None and state["expires_at"] < before))
                and (since is None or state["updated_at"] > since)
            )

        states = [session.state for session in self.model.sessions.values() if wanted(session.state)]
        states.sort(key=lambda state: (state["created_at"], state["session_id"]), reverse=True)
        assert [line.session_id for line in found] == [state["session_id"] for state in states]
        for line, state in zip(found, states, strict=True):
            for name in SUMMARY:
                assert getattr(line, name) == state[name], name

    @operation(key=values.session_ids, patch=values.patches, version=values.versions)
    def patch_metadata(self, key, patch, version):
        expected = self.expected(key, version)
        accepted, answer = self.perform(
            key,
            lambda: self.model.get(key).patch(patch, expected),
            lambda: self.store.patch_metadata(key, patch, expected_version=expected),
        )
        if accepted:
            assert answer == self.model.sessions[key].state["version"]
