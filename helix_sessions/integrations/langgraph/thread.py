"""Writes to a thread: checkpoints, and what tasks wrote after them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from helix_sessions.exceptions import SessionExists, SessionNotFound, StaleState
from helix_sessions.integrations.langgraph import keys, stored
from helix_sessions.integrations.langgraph.draft import Draft, apart
from helix_sessions.integrations.langgraph.heads import Head, Heads
from helix_sessions.integrations.langgraph.keys import ReadId
from helix_sessions.integrations.langgraph.reader import Reader
from helix_sessions.integrations.langgraph.stored import StoredCheckpoint, Write
from helix_sessions.integrations.langgraph.values import Codec
from helix_sessions.store import SessionStore

Create = Callable[[], None]

LONGEST = 16_384
"""A head whose note would be longer takes no more writes: they are kept apart."""


class Thread:
    """One thread, that is: the notes and messages of one session."""

    def __init__(self, store: SessionStore, thread: str, codec: Codec, heads: Heads) -> None:
        self.store = store
        self.id = thread
        self.codec = codec
        self.heads = heads

    def reader(self) -> Reader:
        return Reader(self.store, self.id, self.codec)

    def refresh(self, namespace: str) -> Head:
        """A namespace as it is now, whatever is remembered of it."""
        return self.reader().head(namespace)

    def put(
        self,
        checkpoint: StoredCheckpoint,
        values: Mapping[str, Any],
        versions: Mapping[str, Any],
        changed: Iterable[str],
        create: Create,
        *,
        fork: bool,
    ) -> None:
        """Store a checkpoint on its parent. `StaleState` if another run has put one since that was read."""
        namespace = checkpoint.namespace
        with self.heads.turn(self.id):
            head = self.heads.get_head(self.id, namespace) or self.refresh(namespace)
            refused: StaleState | None = None
            while True:
                if not fork and self._is_overtaken(checkpoint, head):
                    raise refused or _stale(checkpoint.parent, head)
                draft = Draft(checkpoint, head, self.reader(), self.codec)
                draft.fill(values, versions, changed)
                try:
                    if not head.version:
                        create()
                    done = self.store.put_notes(
                        self.id,
                        draft.notes,
                        append_messages=draft.messages,
                        run_ids=draft.run_ids,
                        expected_version=head.version or 1,
                    )
                    break
                except (StaleState, SessionExists, SessionNotFound) as error:
                    refused = error if isinstance(error, StaleState) else None
                    head = self.refresh(namespace)
            after = draft.head_at(done.version, done.message_count)
            self.heads.set_head(self.id, namespace, after, before=head.version)

    def _is_overtaken(self, checkpoint: StoredCheckpoint, head: Head) -> bool:
        """Whether another run has put a checkpoint since this one's run read or put its parent.

        A run goes on from what was put last. One that branches off an older checkpoint has read that when
        what is last now was last already.
        """
        parent = checkpoint.parent
        if head.checkpoint is None or head.latest in (parent, checkpoint.id):
            return False
        if parent is None:
            return self.heads.was_empty(self.id, checkpoint.namespace)
        if isinstance(parent, ReadId):
            return head.latest != parent.latest
        return self.reader().find(checkpoint.namespace, parent) is not None

    def put_writes(self, namespace: str, checkpoint: str, writes: list[Write], create: Create) -> None:
        """Keep what a task wrote after a checkpoint: with the checkpoint, if that is the newest."""
        with self.heads.turn(self.id):
            if not self._put_on_head(namespace, checkpoint, writes):
                self._put_apart(namespace, checkpoint, writes, create)

    def _put_on_head(self, namespace: str, checkpoint: str, writes: list[Write]) -> bool:
        """Add writes to the newest checkpoint, or to those of one that is about to come; `False` if it is an
        older one, or if there are too many."""
        head = self.heads.get_head(self.id, namespace) or self.refresh(namespace)
        while head.checkpoint is not None and checkpoint >= head.checkpoint.id:
            newest = _with_writes(head.checkpoint, checkpoint, writes)
            note = stored.note_of(newest)
            if len(note["packed"]) > LONGEST:
                return False
            key = keys.head(namespace)
            try:
                done = self.store.put_notes(
                    self.id, {key: note}, run_ids={key: newest.run_id}, expected_version=head.version
                )
            except (StaleState, SessionNotFound):
                head = self.refresh(namespace)
                continue
            after = replace(head, version=done.version, checkpoint=newest)
            self.heads.set_head(self.id, namespace, after, before=head.version)
            return True
        return False

    def _put_apart(self, namespace: str, checkpoint: str, writes: list[Write], create: Create) -> None:
        head = self.heads.get_head(self.id, namespace)
        notes = apart(
            namespace, checkpoint, stored.filed_writes(writes, head.recent) if head else writes, self.reader()
        )
        while True:
            try:
                self.store.put_notes(self.id, notes, quietly=True)
                return
            except SessionNotFound:
                create()


def _stale(parent: str | None, head: Head) -> StaleState:
    expected = parent.version if isinstance(parent, ReadId) else 0
    return StaleState(expected_version=expected, current_version=head.version, current_status=head.status)


def _with_writes(head: StoredCheckpoint, checkpoint: str, writes: list[Write]) -> StoredCheckpoint:
    head = replace(head, latest=head.latest or head.id)
    if checkpoint == head.id:
        return replace(head, writes=stored.merged(head.writes, writes))
    early = {**head.early, checkpoint: stored.merged(head.early.get(checkpoint, ()), writes)}
    return replace(head, early=early)
