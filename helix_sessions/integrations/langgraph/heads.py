"""The one thing a saver remembers: the heads that it wrote itself.

A head is used as it is remembered, and what is then written is refused by the database if the session has
changed since. So nothing here has to be right, it only saves reading. It holds bytes, numbers and texts,
nothing that a caller can reach.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock, RLock
from weakref import WeakValueDictionary

from helix_sessions.integrations.langgraph.lists import StoredList
from helix_sessions.integrations.langgraph.references import Recent
from helix_sessions.integrations.langgraph.stored import StoredCheckpoint
from helix_sessions.integrations.langgraph.values import Serialized

THREADS = 256
"""So many threads are remembered, those written to last."""
BYTES = 262_144
"""So much is remembered of one thread, and no head that alone is larger."""
EMPTY = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A namespace as it was at a version of its session."""

    version: int
    status: str = ""
    message_count: int
    checkpoint: StoredCheckpoint | None
    """The newest one."""
    lists: Mapping[str, StoredList] = field(default_factory=dict)
    """Those of its lists whose items are known."""
    recent: Recent = field(default_factory=Recent)

    @property
    def latest(self) -> str:
        """The checkpoint that was put last."""
        return "" if self.checkpoint is None else self.checkpoint.latest or self.checkpoint.id

    def size(self) -> int:
        stored = [] if self.checkpoint is None else [*self.checkpoint.values.values()]
        if self.checkpoint is not None:
            early = [write for writes in self.checkpoint.early.values() for write in writes]
            stored += [write.value for write in (*self.checkpoint.writes, *early)]
        return (
            sum(len(value.data) for value in stored if isinstance(value, Serialized))
            + sum(len(each.fingerprints) for each in self.lists.values())
            + sum(len(text) for _, texts in self.recent.messages for text in texts)
        )


class Heads:
    """The heads of some threads. Shared by the threads of a process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._turns: WeakValueDictionary[str, _Turn] = WeakValueDictionary()
        self._threads: OrderedDict[str, _Thread] = OrderedDict()
        self._empty: OrderedDict[tuple[str, str], None] = OrderedDict()

    @contextmanager
    def turn(self, thread: str) -> Iterator[None]:
        """One at a time of those who write to a thread here: they need not find out in the database."""
        with self._lock:
            turn = self._turns.setdefault(thread, _Turn())
        with turn.lock:
            yield

    def get_head(self, thread: str, namespace: str) -> Head | None:
        with self._lock:
            known = self._threads.get(thread)
            head = None if known is None else known.heads.get(namespace)
            if known is None or head is None:
                return None
            return replace(head, version=known.version, message_count=known.message_count)

    def set_head(self, thread: str, namespace: str, head: Head, *, before: int) -> None:
        """Remember what a write made of a namespace. It took the session from the version `before`: what is
        known of other namespaces at that version still holds."""
        with self._lock:
            known = self._threads.pop(thread, None)
            if known is None or known.version != before:
                known = _Thread()
            known.version, known.message_count = head.version, head.message_count
            known.heads.pop(namespace, None)
            known.heads[namespace] = head
            while sum(each.size() for each in known.heads.values()) > BYTES:
                known.heads.popitem(last=False)
            self._threads[thread] = known
            if len(self._threads) > THREADS:
                self._threads.popitem(last=False)

    def forget(self, thread: str) -> None:
        with self._lock:
            self._threads.pop(thread, None)
            for key in [key for key in self._empty if key[0] == thread]:
                del self._empty[key]

    def set_empty(self, thread: str, namespace: str, empty: bool) -> None:
        """Note whether a reader was told that there is nothing. This saves no reading: see `was_empty`."""
        with self._lock:
            self._empty.pop((thread, namespace), None)
            if empty:
                self._empty[thread, namespace] = None
                if len(self._empty) > EMPTY:
                    self._empty.popitem(last=False)

    def was_empty(self, thread: str, namespace: str) -> bool:
        """Whether a run that begins a namespace does so because there was nothing in it."""
        with self._lock:
            return (thread, namespace) in self._empty


class _Turn:
    def __init__(self) -> None:
        self.lock = RLock()


class _Thread:
    """The heads of a session at one version."""

    def __init__(self) -> None:
        self.version = 0
        self.message_count = 0
        self.heads: OrderedDict[str, Head] = OrderedDict()
