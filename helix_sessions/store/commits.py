"""The step commit: state, staged writes, messages and checkpoint in one transaction."""

from helix_sessions import documents
from helix_sessions.store import checkpoints, frames, inputs, snapshots, staging, states
from helix_sessions.store.base import StoreBase
from helix_sessions.store.checkpoints import MetaLike
from helix_sessions.store.unit import Work, check_version
from helix_sessions.types import CommitResult, Messages, SessionState


class Commits(StoreBase):
    """The step commit."""

    def save_state_and_promote_staging(
        self,
        session_id: str,
        state: SessionState,
        append_messages: Messages = (),
        checkpoint_meta: MetaLike = None,
        *,
        expected_version: int | None = None,
    ) -> CommitResult:
        """Write the state with the staged writes on top, append the messages, make the checkpoint.

        A caller that lost the answer repeats the call with the same checkpoint id and gets it again.
        """
        columns, text = frames.owned_columns(state), frames.custom_state(state)
        messages = inputs.messages(append_messages)
        meta = checkpoints.check_meta(checkpoint_meta)
        version = inputs.expected_version(expected_version)
        fingerprint = ""
        if meta.checkpoint_id is not None:
            said = [f"{role} {content}" for role, content in messages]
            fingerprint = documents.digest("commit", repr(columns), text, meta.step_id or "", *said)

        def commit(work: Work) -> CommitResult | None:
            made = checkpoints.replay(work, meta, fingerprint)
            if made is not None:
                return made
            check_version(work, version)
            states.put(work, state, columns)
            for role, content in messages:
                work.message(role, content)
            custom, promoted = staging.promote(work, state.custom_state, meta.step_id)
            snapshots.record(work, custom, documents.dump(custom) if promoted else text)
            work.event("state_saved", {"step_count": state.step_count})
            checkpoints.record(work, meta, "staging" if promoted else "save", fingerprint)
            return None

        work, made = self._decide(session_id, commit)
        return made or checkpoints.result_of(work)
