"""What a saver remembers of the threads it works on: how far they had come, and the lists it has seen.

Nothing here is needed to be right, only to be quick, with one exception: a checkpoint that is put on one that
was read is refused if somebody else has put one meanwhile, and what was read when is remembered here.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock, RLock
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from langchain_core.messages import BaseMessage

from helix_sessions.integrations.langgraph.messages import are_same, is_same, mark_of
from helix_sessions.integrations.langgraph.trees import NOTHING_SAID, Said
from helix_sessions.types import JSON

T = TypeVar("T")

THREADS = 4096
CHECKPOINTS = 128
DESKS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How a thread was when a checkpoint of it was read or put."""

    version: int
    message_count: int
    latest: str | None
    """The newest checkpoint of the namespace."""


@dataclass(slots=True, kw_only=True)
class Listed:
    """A list as it is stored: its items, and the place of each."""

    items: list[Any] = field(default_factory=list)
    marks: list[Any] = field(default_factory=list)
    places: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, items: list[Any], places: list[int]) -> "Listed":
        return cls(items=list(items), marks=[mark_of(item) for item in items], places=list(places))

    def find(self, items: list[Any]) -> list[int | None]:
        """For each item the place where it is stored already, or `None`."""
        same = self._unchanged(items)
        found: list[int | None] = [*self.places[:same]]
        by_id = {_name(item): index for index, item in enumerate(self.items[same:], same)}
        for item in items[same:]:
            index = by_id.get(_name(item))
            known_already = index is not None and is_same(item, self.items[index], self.marks[index])
            found.append(self.places[index] if index is not None and known_already else None)
        return found

    def _unchanged(self, items: list[Any]) -> int:
        """How many items from the first on are the ones that were marked. Mostly all of them are, so that is
        asked first, of the whole list at once."""
        length = min(len(items), len(self.items))
        if are_same(items[:length], self.items[:length], self.marks[:length]):
            return length
        pairs = zip(items, self.items, self.marks, strict=False)
        return next((index for index, pair in enumerate(pairs) if not is_same(*pair)), length)

    def after(self, items: list[Any], places: list[int]) -> "Listed":
        """The list that these items are; what is marked already is not marked again."""
        same = len(self.places)
        if places[:same] == self.places:
            marks = [*self.marks, *map(mark_of, items[same:])]
        else:
            marked = dict(zip(self.places, self.marks, strict=True))
            marks = [
                marked[place] if place in marked else mark_of(item)
                for item, place in zip(items, places, strict=True)
            ]
        return Listed(items=list(items), marks=marks, places=list(places))


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A checkpoint as it is stored, and its lists by channel."""

    document: dict[str, JSON]
    lists: dict[str, Listed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """The newest checkpoint of a namespace as it is stored, and the thread's version then."""

    version: int
    document: dict[str, JSON]
    said: Said = NOTHING_SAID
    """The messages that are new with it."""


class Memory:
    """Bounded, and shared by the threads of a process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._turns: WeakValueDictionary[str, _Turn] = WeakValueDictionary()
        self._desks: _Recent[dict[str, Desk]] = _Recent(DESKS)
        self._seen: _Recent[dict[tuple[str, str | None], Seen]] = _Recent(THREADS)
        self._known: _Recent[Known] = _Recent(CHECKPOINTS)

    @contextmanager
    def turn(self, thread: str) -> Iterator[None]:
        """One at a time of those who write to a thread here: they need not find out in the database."""
        with self._lock:
            turn = self._turns.setdefault(thread, _Turn())
        with turn.lock:
            yield

    def desk(self, thread: str, namespace: str) -> Desk | None:
        with self._lock:
            return (self._desks.get(thread) or {}).get(namespace)

    def lay(self, thread: str, namespace: str, desk: Desk) -> None:
        with self._lock:
            desks = self._desks.get(thread) or {}
            desks.pop(namespace, None)
            desks[namespace] = desk
            while len(desks) > CHECKPOINTS:
                del desks[next(iter(desks))]
            self._desks.put(thread, desks)

    def seen(self, thread: str, namespace: str, checkpoint: str | None) -> Seen | None:
        with self._lock:
            return (self._seen.get(thread) or {}).get((namespace, checkpoint))

    def see(self, thread: str, namespace: str, checkpoint: str | None, seen: Seen) -> None:
        with self._lock:
            entries = self._seen.get(thread) or {}
            entries.pop((namespace, checkpoint), None)
            entries[namespace, checkpoint] = seen
            while len(entries) > CHECKPOINTS:
                del entries[next(iter(entries))]
            self._seen.put(thread, entries)

    def moved(self, thread: str, namespace: str | None, version: int, message_count: int) -> None:
        """A put in one namespace, or one that changed no checkpoint, took the thread from one version to the
        next; it concerns no other namespace."""
        with self._lock:
            entries = self._seen.get(thread) or {}
            for key, seen in entries.items():
                if key[0] != namespace and seen.version == version - 1:
                    entries[key] = replace(seen, version=version, message_count=message_count)
            desks = self._desks.get(thread) or {}
            for name, desk in desks.items():
                if name != namespace and desk.version == version - 1:
                    desks[name] = replace(desk, version=version)

    def known(self, thread: str, namespace: str, checkpoint: str | None) -> Known | None:
        with self._lock:
            return self._known.get((thread, namespace, checkpoint))

    def know(self, thread: str, namespace: str, checkpoint: str, known: Known) -> None:
        with self._lock:
            self._known.put((thread, namespace, checkpoint), known)

    def forget(self, thread: str) -> None:
        with self._lock:
            self._seen.drop(lambda key: key == thread)
            self._desks.drop(lambda key: key == thread)
            self._known.drop(lambda key: key[0] == thread)


class _Turn:
    def __init__(self) -> None:
        self.lock = RLock()


class _Recent(Generic[T]):
    """The values used last, so many of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, key: Hashable, value: T) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._most:
            self._values.popitem(last=False)

    def drop(self, doomed: Any) -> None:
        for key in [key for key in self._values if doomed(key)]:
            del self._values[key]


def _name(item: Any) -> Hashable:
    """By what an item that moved within its list is looked for."""
    return item.id if isinstance(item, BaseMessage) and item.id else id(item)
