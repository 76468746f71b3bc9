"""Steps are committed, again too, and checkpoints made."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from helix_sessions.exceptions import CheckpointNotFound, SessionNotFound
from helix_sessions.types import CheckpointMeta, SessionState
from tests.contract.machine import values
from tests.contract.machine.harness import Harness, exact, operation
from tests.contract.machine.model import NOTHING, OWNED, Effect, Session, vars_of


class Commits(Harness):
    """Calls that make checkpoints."""

    def commit_like(
        self,
        key: str,
        content: Any,
        meta: dict[str, Any],
        decide: Callable[[Session], Effect],
        function: Callable[[], Any],
    ) -> None:
        """A call that is repeated with the same checkpoint id, or not."""
        replayed = None

        def decide_or_replay() -> Effect:
            nonlocal replayed
            session = self.model.get(key)
            replayed = session.replayed(meta, content)
            return NOTHING if replayed else decide(session)

        accepted, answer = self.perform(key, decide_or_replay, function)
        if not accepted:
            return
        session = self.model.sessions[key]
        if replayed is not None:
            assert answer == replace(replayed, replayed=True)
            return
        assert answer.replayed is False
        assert (answer.version, answer.message_count, answer.head_seq) == (
            session.state["version"],
            len(session.messages),
            session.head,
        )
        assert answer.checkpoint_id == session.state["checkpoint_id"]
        if meta.get("checkpoint_id") == answer.checkpoint_id:
            session.commits.setdefault(answer.checkpoint_id, (content, answer))

    @operation(
        weight=5,
        key=values.session_ids,
        edits=values.edits,
        tweak=values.tweaks,
        messages=values.message_lists,
        checkpoint_id=st.none() | values.checkpoint_ids,
        step=st.none() | values.steps,
        run_id=st.sampled_from([None, None, "r1"]),
        metadata=values.metadata,
        version=values.versions,
        as_dict=st.booleans(),
    )
    def save_state_and_promote_staging(
        self, key, edits, tweak, messages, checkpoint_id, step, run_id, metadata, version, as_dict
    ):
        session = self.model.sessions.get(key)
        base = SessionState(**session.state) if session else SessionState(session_id="x", agent_type="x")
        meta = {"checkpoint_id": checkpoint_id, "step_id": step, "run_id": run_id, "metadata": metadata}
        self.commit(
            key, self.edited(base, edits, tweak), messages, meta, self.expected(key, version), as_dict
        )

    def commit(self, key, state, messages, meta, expected, as_dict=False):
        self.last_commit = (key, state, messages, meta)
        owned = vars_of(state)
        owned = {name: owned[name] for name in OWNED}
        self.commit_like(
            key,
            ("commit", exact(owned), exact(messages), meta["step_id"]),
            meta,
            lambda session: session.commit(vars_of(state), messages, meta, expected),
            lambda: self.store.save_state_and_promote_staging(
                key, state, messages, meta if as_dict else CheckpointMeta(**meta), expected_version=expected
            ),
        )

    last_commit: tuple[Any, ...] | None = None

    @operation(
        weight=3,
        change=st.sampled_from(["nothing", "nothing", "state", "messages", "step", "metadata"]),
        version=values.versions,
    )
    def repeat_the_last_commit(self, change, version):
        """The same content, or other content, under the same checkpoint id, whatever happened since."""
        if self.last_commit is None:
            return
        key, state, messages, meta = self.last_commit
        if meta["checkpoint_id"] is None:
            return
        match change:
            case "state":
                state = replace(state, output=["other"])
            case "messages":
                messages = [*messages, {"role": "user", "content": "other"}]
            case "step":
                meta = {**meta, "step_id": "other"}
            case "metadata":
                meta = {**meta, "metadata": {"other": 1}}
        self.commit(key, state, messages, meta, self.expected(key, version))

    @operation(
        weight=3,
        key=values.session_ids,
        step=values.steps,
        checkpoint_id=st.none() | values.checkpoint_ids,
        metadata=values.metadata,
        version=values.versions,
    )
    def promote_staging(self, key, step, checkpoint_id, metadata, version):
        expected = self.expected(key, version)
        meta = {"checkpoint_id": checkpoint_id, "metadata": metadata}
        self.commit_like(
            key,
            ("promote", step),
            meta,
            lambda session: session.promote(step, meta, expected),
            lambda: self.store.promote_staging(key, step, meta, expected_version=expected),
        )

    @operation(
        weight=2,
        key=values.session_ids,
        checkpoint_id=st.none() | values.checkpoint_ids,
        step=st.none() | values.steps,
        metadata=values.metadata,
        version=values.versions,
    )
    def create_checkpoint(self, key, checkpoint_id, step, metadata, version):
        expected = self.expected(key, version)
        meta = {"checkpoint_id": checkpoint_id, "step_id": step, "metadata": metadata}
        content = ("create", step)

        def decide() -> Effect:
            session = self.model.get(key)
            made = session.commits.get(checkpoint_id or "")
            if made is None:
                return session.create_checkpoint(meta, expected)
            session.replayed(meta, content)
            return NOTHING

        accepted, answer = self.perform(
            key, decide, lambda: self.store.create_checkpoint(key, meta, expected_version=expected)
        )
        if accepted:
            session = self.model.sessions[key]
            assert answer == self.store.get_checkpoint(key, answer.checkpoint_id)
            assert checkpoint_id in (None, answer.checkpoint_id)
            if checkpoint_id is not None:
                session.commits.setdefault(checkpoint_id, (content, None))

    @operation(
        key=values.session_ids,
        number=st.integers(0, 20),
        limit=st.integers(1, 3),
        offset=st.sampled_from([None, 0, 1, 3]),
    )
    def read_checkpoints(self, key, number, limit, offset):
        session = self.model.sessions.get(key)
        if session is None:
            with pytest.raises(SessionNotFound):
                self.store.get_checkpoint(key, "c1")
            with pytest.raises(SessionNotFound):
                self.store.list_checkpoints(key)
            return
        wanted = self.checkpoint_ids(key)[number % (len(session.checkpoints) + 1)]
        if wanted == "nowhere":
            with pytest.raises(CheckpointNotFound):
                self.store.get_checkpoint(key, wanted)
        else:
            [made] = [it for it in session.checkpoints if it["checkpoint_id"] == wanted]
            assert exact(self.store.get_checkpoint(key, wanted).state) == exact(made["state"])
        page = self.store.list_checkpoints(key, limit=limit, offset=offset)
        found = list(page.items)
        while page.next_cursor is not None:
            assert len(page.items) == limit
            page = self.store.list_checkpoints(key, limit=limit, cursor=page.next_cursor)
            found += page.items
        expected = [it["checkpoint_id"] for it in reversed(session.checkpoints)][offset or 0 :]
        assert [it.checkpoint_id for it in found] == expected
