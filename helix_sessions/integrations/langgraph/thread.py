"""Writes to a thread: checkpoints, and what tasks wrote after them."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock, RLock
from typing import Any

from helix_sessions.exceptions import SessionExists, SessionNotFound, StaleState
from helix_sessions.integrations.langgraph import documents as stored
from helix_sessions.integrations.langgraph import keys
from helix_sessions.integrations.langgraph.documents import StoredCheckpoint, Write
from helix_sessions.integrations.langgraph.draft import Draft, apart
from helix_sessions.integrations.langgraph.keys import ReadId
from helix_sessions.integrations.langgraph.reader import Head, Reader
from helix_sessions.integrations.langgraph.values import Codec
from helix_sessions.store import SessionStore

Create = Callable[[], None]

LONGEST = 16_384
EARLY = 16
"""A head whose note would be longer, or have early writes of more checkpoints, takes no more writes: they are
kept apart. So a saver that lags behind its graph does not write longer and longer notes."""
THREADS = 256
NAMESPACES = 16
"""So much is remembered: those written to last."""
ITEMS = 16_384
"""A head whose lists have more items is not remembered."""
TURNS = 64


@dataclass
class _Known:
    """What is known of a thread at a version of its session."""

    version: int = 0
    message_count: int = 0
    heads: OrderedDict[str, Head] = field(default_factory=OrderedDict)


class Heads:
    """The one thing a saver remembers: the heads that it wrote itself. Shared by the threads of a process.

    A head is used as it is remembered, and what is then written is refused by the database if the session has
    changed since. So nothing here has to be right, it only saves reading. It holds bytes, numbers and texts,
    nothing that a caller can reach.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._turns = [RLock() for _ in range(TURNS)]
        self._threads: OrderedDict[str, _Known] = OrderedDict()

    def turn(self, thread: str) -> Any:
        """One at a time of those who write to a thread here: they need not find out in the database."""
        return self._turns[hash(thread) % TURNS]

    def get(self, thread: str, namespace: str) -> Head | None:
        with self._lock:
            known = self._threads.get(thread, _Known())
            head = known.heads.get(namespace)
            return head and replace(head, version=known.version, message_count=known.message_count)

    def set(self, thread: str, namespace: str, head: Head, *, before: int) -> None:
        """Remember what a write made of a namespace. It took the session from the version `before`: what is
        known of other namespaces at that version still holds."""
        with self._lock:
            known = self._threads.pop(thread, None)
            if known is None or known.version != before:
                known = _Known()
            known.version, known.message_count = head.version, head.message_count
            known.heads.pop(namespace, None)
            if sum(len(each.numbers) for each in head.lists.values()) <= ITEMS:
                known.heads[namespace] = head
            while len(known.heads) > NAMESPACES:
                known.heads.popitem(last=False)
            self._threads[thread] = known
            while len(self._threads) > THREADS:
                self._threads.popitem(last=False)

    def forget(self, thread: str) -> None:
        with self._lock:
            self._threads.pop(thread, None)


class Thread:
    """One thread, that is: the notes and messages of one session."""

    def __init__(
        self, store: SessionStore, thread: str, codec: Codec, heads: Heads, *, agent_type: str | None
    ) -> None:
        """`agent_type`: that of sessions whose transcript is what the root graph's messages say; `None`: the
        transcript is another writer's."""
        self._agent_type = agent_type
        self.says = agent_type is not None
        self.store = store
        self.id = thread
        self.codec = codec
        self.heads = heads

    def reader(self) -> Reader:
        return Reader(self.store, self.id, self.codec, self._agent_type)

    def _head(self, namespace: str) -> Head:
        return self.heads.get(self.id, namespace) or self.reader().head(namespace)

    def put(
        self,
        checkpoint: StoredCheckpoint,
        values: Mapping[str, Any],
        versions: Mapping[str, Any],
        changed: Iterable[str],
        create: Create,
        *,
        kind: "Kind",
    ) -> None:
        """Store a checkpoint on its parent. `StaleState` if another run has put one since that was read."""
        namespace = checkpoint.namespace
        with self.heads.turn(self.id):
            head = self._head(namespace)
            if self._is_overtaken(checkpoint, kind, head):  # or what is remembered is old
                head = self.reader().head(namespace)
            while True:
                if self._is_overtaken(checkpoint, kind, head):
                    raise _stale(checkpoint.parent, head)
                draft = Draft(checkpoint, head, self.reader(), self.codec, says=self.says)
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
                except (StaleState, SessionExists, SessionNotFound):
                    head = self.reader().head(namespace)
            after = draft.head_at(done.version, done.message_count)
            self.heads.set(self.id, namespace, after, before=head.version)

    def _is_overtaken(self, checkpoint: StoredCheckpoint, kind: "Kind", head: Head) -> bool:
        """Whether another run has put a checkpoint since this one's run read or put its parent.

        A run goes on from what was put last. One that branches off an older checkpoint has read that when
        what is last now was last already. A checkpoint may be put again.
        """
        parent, namespace = checkpoint.parent, checkpoint.namespace
        if kind.is_fork or head.checkpoint is None or head.latest in (parent, checkpoint.id):
            return False
        if parent is None:
            overtaken = kind.is_first and namespace == ""
        elif isinstance(parent, ReadId):
            overtaken = head.latest != parent.latest
        else:
            # Also on one that is not there: refused, or removed under another run. A run may begin there.
            overtaken = not kind.is_first or self.reader().find(namespace, parent) is not None
        return overtaken and self.reader().find(namespace, checkpoint.id) is None

    def put_writes(self, namespace: str, checkpoint: str, writes: list[Write], create: Create) -> None:
        """Keep what a task wrote after a checkpoint: with the checkpoint, if that is the newest."""
        with self.heads.turn(self.id):
            if self._are_apart(namespace, checkpoint, writes) or not self._put_on_head(
                namespace, checkpoint, writes
            ):
                self._put_apart(namespace, checkpoint, writes, create)

    def _are_apart(self, namespace: str, checkpoint: str, writes: list[Write]) -> bool:
        """Whether what these replace, an interrupt for example, is kept apart: they go there too."""
        wanted = {
            keys.task_writes(namespace, checkpoint, write.task, write.special)
            for write in writes
            if write.special is not None
        }
        return bool(wanted) and bool(self.reader().notes(keys=wanted))

    def _put_on_head(self, namespace: str, checkpoint: str, writes: list[Write]) -> bool:
        """Add writes to the newest checkpoint, or to those of one that is about to come; `False` if it is an
        older one, or if there are too many."""
        head = self._head(namespace)
        while head.checkpoint is not None and checkpoint >= head.checkpoint.id:
            newest = _with_writes(head.checkpoint, checkpoint, writes)
            note = stored.note_of(newest)
            if len(note["packed"]) > LONGEST or len(newest.early) > EARLY:
                return False
            try:
                done = self.store.put_notes(
                    self.id,
                    {newest.key: note},
                    run_ids={newest.key: newest.run_id},
                    expected_version=head.version,
                )
            except (StaleState, SessionNotFound):
                head = self.reader().head(namespace)
                continue
            after = replace(head, version=done.version, checkpoint=newest)
            self.heads.set(self.id, namespace, after, before=head.version)
            return True
        return False

    def _put_apart(self, namespace: str, checkpoint: str, writes: list[Write], create: Create) -> None:
        head = self.heads.get(self.id, namespace)
        filed = head.recent.file_writes(writes) if head else writes
        notes = apart(namespace, checkpoint, filed, self.reader())
        while True:
            try:
                self.store.put_notes(self.id, notes, quietly=True)
                return
            except SessionNotFound:
                create()


@dataclass(frozen=True, slots=True)
class Kind:
    """What metadata say of a checkpoint that is put."""

    is_fork: bool
    """It copies another on purpose."""
    is_first: bool
    """It begins a thread, as far as its run knows."""

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> "Kind":
        source, step = metadata.get("source"), metadata.get("step")
        return cls(
            is_fork=source == "fork",
            is_first=source in ("input", "update") and isinstance(step, int) and step <= 0,
        )


_NOT_BEGUN = "Nothing of this one is stored: run it again."
_BEGAN = (
    "The input of this one is stored already, and the other may have seen it: look at the state, and go on "
    "with None instead of the same input."
)


def _stale(parent: str | None, head: Head) -> StaleState:
    """The error of a run that was overtaken, which says whether it may simply be run again."""
    at = parent.version if isinstance(parent, ReadId) else 0
    error = StaleState(expected_version=at, current_version=head.version, current_status=head.status)
    began = parent is not None and not isinstance(parent, ReadId)
    error.add_note(f"Another run has gone on with this thread. {_BEGAN if began else _NOT_BEGUN}")
    return error


def _with_writes(head: StoredCheckpoint, checkpoint: str, writes: list[Write]) -> StoredCheckpoint:
    head = replace(head, latest=head.latest or head.id)
    if checkpoint == head.id:
        return replace(head, writes=stored.merged(head.writes, writes))
    early = {**head.early, checkpoint: stored.merged(head.early.get(checkpoint, ()), writes)}
    return replace(head, early=early)
