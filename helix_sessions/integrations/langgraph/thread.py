"""Writes to a thread: checkpoints, and what tasks wrote after them."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """A checkpoint that is to be stored on its parent."""

    checkpoint: StoredCheckpoint
    values: Mapping[str, Any]
    versions: Mapping[str, Any]
    changed: Iterable[str]
    kind: Kind
    create: Create

    @property
    def namespace(self) -> str:
        return self.checkpoint.namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class PutWrites:
    """What a task wrote after a checkpoint, to be stored."""

    namespace: str
    checkpoint: str
    writes: Sequence[Write]
    create: Create


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

    def put(self, put: Put) -> None:
        """Store a checkpoint on its parent. `StaleState` if another run has put one since that was read."""
        namespace = put.namespace
        with self.heads.turn(self.id):
            head = self._head(namespace)
            if self._is_overtaken(put, head):  # or what is remembered is old
                head = self.reader().head(namespace)
            while True:
                if self._is_overtaken(put, head):
                    raise _stale(put.checkpoint.parent, head)
                try:
                    self._put_on(head, put)
                    return
                except (StaleState, SessionExists, SessionNotFound):
                    head = self.reader().head(namespace)

    def put_together(self, puts: Sequence[Put | PutWrites]) -> bool:
        """Store in one go what was to be stored one after the other, or nothing: `False` if what is known of
        the thread does not allow it. Only of one checkpoint, or of the writes to one."""
        checkpoints = [put for put in puts if isinstance(put, Put)]
        writes = [put for put in puts if isinstance(put, PutWrites)]
        if len({put.namespace for put in puts}) > 1 or len(checkpoints) > 1:
            return False
        with self.heads.turn(self.id):
            head = self.heads.get(self.id, puts[0].namespace)
            newest = None if head is None else head.checkpoint
            if head is None or newest is None or not all(_can_wait(newest, each) for each in writes):
                return False
            if not checkpoints:
                return self._put_writes_together(writes)
            for each in writes:
                newest = _with_writes(newest, each)
            if self._is_overtaken(checkpoints[0], head):
                return False
            try:
                self._put_on(replace(head, checkpoint=newest), checkpoints[0])
            except (StaleState, SessionExists, SessionNotFound):
                return False
            return True

    def _put_writes_together(self, puts: Sequence[PutWrites]) -> bool:
        if len({put.checkpoint for put in puts}) > 1:
            return False
        self.put_writes(replace(puts[0], writes=[write for put in puts for write in put.writes]))
        return True

    def _put_on(self, head: Head, put: Put) -> None:
        """Store a checkpoint on what is known, which the database refuses if it is not so any more."""
        draft = Draft(put.checkpoint, head, self.reader(), self.codec, says=self.says)
        draft.fill(put.values, put.versions, put.changed)
        if not head.version:
            put.create()
        done = self.store.put_notes(
            self.id,
            draft.notes,
            append_messages=draft.messages,
            run_ids=draft.run_ids,
            expected_version=head.version or 1,
        )
        after = draft.head_at(done.version, done.message_count)
        self.heads.set(self.id, put.namespace, after, before=head.version)

    def _is_overtaken(self, put: Put, head: Head) -> bool:
        """Whether another run has put a checkpoint since this one's run read or put its parent.

        A run goes on from what was put last. One that branches off an older checkpoint has read that when
        what is last now was last already. A checkpoint may be put again.
        """
        checkpoint, kind = put.checkpoint, put.kind
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

    def put_writes(self, put: PutWrites) -> None:
        """Keep what a task wrote after a checkpoint: with the checkpoint, if that is the newest."""
        with self.heads.turn(self.id):
            if self._are_apart(put) or not self._put_on_head(put):
                self._put_apart(put)

    def _are_apart(self, put: PutWrites) -> bool:
        """Whether what these replace, an interrupt for example, is kept apart: they go there too."""
        wanted = {
            keys.task_writes(put.namespace, put.checkpoint, write.task, write.special)
            for write in put.writes
            if write.special is not None
        }
        return bool(wanted) and bool(self.reader().notes(keys=wanted))

    def _put_on_head(self, put: PutWrites) -> bool:
        """Add writes to the newest checkpoint, or to those of one that is about to come; `False` if it is an
        older one, or if there are too many."""
        head = self._head(put.namespace)
        while head.checkpoint is not None and put.checkpoint >= head.checkpoint.id:
            newest = _with_writes(head.checkpoint, put)
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
                head = self.reader().head(put.namespace)
                continue
            after = replace(head, version=done.version, checkpoint=newest)
            self.heads.set(self.id, put.namespace, after, before=head.version)
            return True
        return False

    def _put_apart(self, put: PutWrites) -> None:
        head = self.heads.get(self.id, put.namespace)
        filed = head.recent.file_writes(put.writes) if head else put.writes
        notes = apart(put.namespace, put.checkpoint, filed, self.reader())
        while True:
            try:
                self.store.put_notes(self.id, notes, quietly=True)
                return
            except SessionNotFound:
                put.create()


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


def _can_wait(newest: StoredCheckpoint, put: PutWrites) -> bool:
    """Whether writes need no note of their own before the next checkpoint comes."""
    return (
        put.checkpoint >= newest.id
        and all(write.special is None for write in put.writes)
        and sum(write.size for write in put.writes) <= LONGEST
    )


def _with_writes(head: StoredCheckpoint, put: PutWrites) -> StoredCheckpoint:
    """The newest checkpoint with what was written after it, or after one that is about to come."""
    latest = head.latest or head.id
    if put.checkpoint == head.id:
        return replace(head, latest=latest, writes=stored.merged(head.writes, put.writes))
    early = {**head.early, put.checkpoint: stored.merged(head.early.get(put.checkpoint, ()), put.writes)}
    return replace(head, latest=latest, early=early)
