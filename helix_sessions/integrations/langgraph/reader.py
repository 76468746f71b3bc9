"""Reads a thread: its checkpoints, and their values and writes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from helix_sessions.content import documents
from helix_sessions.exceptions import CheckpointNotFound, FrameworkMismatch, SessionNotFound
from helix_sessions.integrations import forms
from helix_sessions.integrations.langgraph import documents as stored
from helix_sessions.integrations.langgraph import first_form, keys
from helix_sessions.integrations.langgraph.documents import (
    Items,
    Messages,
    Recent,
    Referring,
    Scalar,
    Span,
    StoredCheckpoint,
    Value,
    Write,
    long_texts,
    numbers_of,
    spans_of,
)
from helix_sessions.integrations.langgraph.values import Codec
from helix_sessions.store import SessionStore
from helix_sessions.types import JSON, Note, SessionHead

PendingWrite = tuple[str, str, Any]
"""A task, a channel, and what it wrote."""
_FIRST_ANCESTORS = 16
_NEAR = 100
"""Reading so many messages in between costs less than asking again."""


@dataclass(frozen=True, slots=True)
class StoredList:
    """The items of a list that is stored: their numbers, and their fingerprints one after another."""

    numbers: Any = ()
    fingerprints: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A namespace as it was at a version of its session."""

    version: int
    message_count: int
    status: str = ""
    checkpoint: StoredCheckpoint | None = None
    """The newest one."""
    lists: dict[str, StoredList] = field(default_factory=dict)
    """Those of its lists whose items are known."""
    recent: Recent = field(default_factory=Recent)

    @property
    def latest(self) -> str:
        """The checkpoint that was put last."""
        return "" if self.checkpoint is None else self.checkpoint.latest or self.checkpoint.id


class Reader:
    """Reads one thread for one call: what its checkpoints share is read once, every value is made anew."""

    def __init__(self, store: SessionStore, thread: str, codec: Codec, agent_type: str | None) -> None:
        self._agent_type = agent_type
        self._store = store
        self._thread = thread
        self._codec = codec
        self._checkpoints: dict[tuple[str, str], StoredCheckpoint] = {}
        self._apart: dict[str, list[Note]] | None = None
        self._texts: dict[int, str] = {}
        self._items: dict[str, dict[int, JSON]] = {}

    def open(self) -> SessionHead | None:
        """The thread's session, which is read before anything else of a thread; `None` if there is none."""
        try:
            return self._store.get_session_head(self._thread)
        except SessionNotFound:
            return None

    def head(self, namespace: str) -> Head:
        """A namespace as it is now. The version that a write will depend on is read first, so that a change
        in between is noticed."""
        session = self.open()
        if session is None:
            return Head(version=0, message_count=0)
        notes = self.notes(keys=[keys.head(namespace)])
        if not notes:  # it was removed, or is older than heads are
            notes = self.notes(prefix=keys.checkpoints(namespace), last_first=True, limit=1)
        if not notes and session.message_count:
            self._refuse_others(session)
        return Head(
            version=session.version,
            status=session.status,
            message_count=session.message_count,
            checkpoint=self.checkpoint_of(notes[0]) if notes else None,
        )

    def _refuse_others(self, session: SessionHead) -> None:
        """Refuse to begin a thread in what another agent said, of which a graph would know nothing."""
        forms.refuse_session_of_others(self._store, self._thread, "langgraph")
        is_others = self._agent_type not in (None, session.agent_type)
        if (
            is_others
            and not self.notes(prefix=keys.HEADS, limit=1)
            and not self.notes(prefix=keys.CHECKPOINTS, limit=1)
        ):
            raise FrameworkMismatch(
                f"Session {self._thread!r} has messages of an agent of the type {session.agent_type!r} and "
                "no checkpoints of LangGraph. `durable(graph)` goes on with what they say."
            )

    def find(self, namespace: str, *checkpoints: str) -> StoredCheckpoint | None:
        """The first of these checkpoints, if it is there; all are read at once."""
        missing = [each for each in checkpoints if (namespace, each) not in self._checkpoints]
        if missing:
            wanted = [keys.checkpoint(namespace, each) for each in missing]
            for note in self.notes(keys=[*wanted, keys.head(namespace)]):  # the head comes last
                self.checkpoint_of(note)
        return self._checkpoints.get((namespace, checkpoints[0]))

    def checkpoints(self, namespace: str | None = None) -> list[StoredCheckpoint]:
        """All checkpoints, newest first, of one namespace or of all, with all writes that are apart.

        Heads are read first: one that is followed meanwhile is then found among those that are filed.
        """
        heads = {"prefix": keys.HEADS} if namespace is None else {"keys": [keys.head(namespace)]}
        newest = self.notes(**heads)
        filed = self.notes(prefix=keys.checkpoints(namespace))
        found = {each.name: each for each in map(self.checkpoint_of, (*filed, *newest))}
        self._apart = self._writes_apart(keys.WRITES)
        return sorted(found.values(), key=lambda each: each.id, reverse=True)

    def ancestors(self, checkpoint: StoredCheckpoint) -> Iterator[StoredCheckpoint]:
        """Its parent, and so on up to the first; one that was put again below itself ends it. They are mostly
        the newest ones: more and more are read."""
        limit, more, seen = 0, True, {checkpoint.name}
        while checkpoint.parent is not None:
            name = (checkpoint.namespace, checkpoint.parent)
            if name in seen:
                return
            seen.add(name)
            while name not in self._checkpoints and more:
                limit = limit * 4 or _FIRST_ANCESTORS
                notes = self.notes(
                    prefix=keys.checkpoints(checkpoint.namespace), last_first=True, limit=limit
                )
                more = len(notes) == limit
                for note in notes:
                    self.checkpoint_of(note)
            if name not in self._checkpoints:
                return
            checkpoint = self._checkpoints[name]
            yield checkpoint

    def history(
        self, checkpoint: StoredCheckpoint, channels: Iterable[str]
    ) -> dict[str, tuple[list[PendingWrite], list[Any]]]:
        """For each channel what was written to it since it was last stored, oldest first, and what was stored
        then, if it was."""
        self._apart = self._writes_apart(keys.WRITES)
        found: dict[str, tuple[list[PendingWrite], list[Any]]] = {channel: ([], []) for channel in channels}
        left = set(found)
        for each in self.ancestors(checkpoint) if left else ():
            for write in reversed(self.writes(each)):
                if write[1] in left:
                    found[write[1]][0].insert(0, write)
            for channel in left & each.channels:
                value = self.stored_values(each)[channel]
                found[channel][1].append(self._value(each.namespace, channel, value))
            left -= each.channels
            if not left:
                break
        return found

    def checkpoint_of(self, note: Note) -> StoredCheckpoint:
        if stored.is_of_first_form(note):
            found = first_form.checkpoint_of(note, self._codec, self._message)
        else:
            found = stored.checkpoint_of(note)
        self._checkpoints[found.name] = found
        return found

    def writes_of(self, note: Note) -> tuple[Write, ...]:
        """The writes of a note that keeps them apart from their checkpoint."""
        if stored.is_of_first_form(note):
            return first_form.writes_of(note, self._codec, self._message)
        return stored.writes_of(note)

    def values(self, checkpoint: StoredCheckpoint) -> dict[str, Any]:
        """The channel values of a checkpoint."""
        return {
            channel: self._value(checkpoint.namespace, channel, value)
            for channel, value in self.stored_values(checkpoint).items()
        }

    def _value(self, namespace: str, channel: str, value: Value) -> Any:
        if isinstance(value, Messages | Items):
            return self.items(namespace, channel, value)
        return self.load(value)

    def stored_values(self, checkpoint: StoredCheckpoint) -> dict[str, Value]:
        """The values as they are stored, those that an earlier checkpoint holds included."""
        values = dict(checkpoint.values)
        for channel, holder in checkpoint.held.items():
            found = self.find(checkpoint.namespace, holder, *checkpoint.held.values())
            if found is None or channel not in found.values:
                raise CheckpointNotFound(f"What checkpoint {checkpoint.id!r} needs was removed meanwhile.")
            values[channel] = found.values[channel]
        return values

    def writes(self, checkpoint: StoredCheckpoint) -> list[PendingWrite]:
        """The pending writes of a checkpoint, in the order a step applies them.

        A task whose messages were truncated from the transcript has written nothing: it will run again.
        """
        prefix = keys.writes(*checkpoint.name)
        apart = self._writes_apart(prefix) if self._apart is None else self._apart
        more = [write for note in apart.get(prefix, ()) for write in self.writes_of(note)]
        tasks: dict[tuple[str, str], list[PendingWrite]] = defaultdict(list)
        gone: set[str] = set()
        for write in sorted(stored.merged(checkpoint.writes, more), key=lambda each: each.index):
            try:
                tasks[write.path, write.task].append((write.task, write.channel, self.load(write.value)))
            except CheckpointNotFound:
                gone.add(write.task)
        return [write for (_, task), writes in sorted(tasks.items()) if task not in gone for write in writes]

    def _writes_apart(self, prefix: str) -> dict[str, list[Note]]:
        """Writes that are not with their checkpoints, by the beginnings of their keys."""
        found: dict[str, list[Note]] = defaultdict(list)
        for note in self.notes(prefix=prefix):
            found[keys.checkpoint_of_writes(note.key)].append(note)
        return found

    def load(self, value: Scalar) -> Any:
        if isinstance(value, Referring):
            value = value.resolve(lambda position: long_texts(documents.load(self.text(position))))
        return self._codec.load(value)

    def items(self, namespace: str, channel: str, value: Messages | Items) -> list[Any]:
        if isinstance(value, Messages):
            return [self._codec.load_message(first_form.message(each)) for each in self._messages(value)]
        items = self._noted(namespace, channel, value)
        return [self._codec.load_item(first_form.item(each)) for each in items]

    def text(self, position: int) -> str:
        """The text of a message of the transcript."""
        if position not in self._texts:
            self._read(position, position + 1)
        if position not in self._texts:
            raise self._truncated()
        return self._texts[position]

    def _message(self, position: int, known_by: str) -> dict[str, JSON]:
        """A message of the transcript, if its text has this digest."""
        text = self.text(position)
        if digest(text) != known_by:
            raise self._truncated()
        message: dict[str, JSON] = documents.load(text)
        return message

    def _messages(self, value: Messages) -> list[Any]:
        positions = numbers_of(value.spans)
        missing = sorted({position for position in positions if position not in self._texts})
        for first, end in _near(spans_of(missing)):
            self._read(first, end)
        if positions and digest(self.text(positions[-1])) != value.digest:
            raise self._truncated()
        return documents.load_all([self.text(position) for position in positions])

    def _noted(self, namespace: str, channel: str, value: Items) -> list[Any]:
        """Documents of items. Each is loaded anew, because checkpoints may share one."""
        prefix = keys.items(namespace, channel)
        if prefix not in self._items:
            notes = self.notes(prefix=prefix)
            self._items[prefix] = {keys.number_of(note.key): documents.write(note.document) for note in notes}
        with suppress(KeyError):
            return documents.load_all([self._items[prefix][number] for number in numbers_of(value.spans)])
        raise CheckpointNotFound(f"Items of {channel!r} were removed meanwhile.")

    def _read(self, first: int, end: int) -> None:
        page = self._store.get_message_texts(self._thread, offset=first, limit=end - first)
        self._texts.update(enumerate(page.texts, first))

    def notes(self, **which: Any) -> list[Note]:
        with suppress(SessionNotFound):
            return self._store.get_notes(self._thread, **which)
        return []

    def _truncated(self) -> CheckpointNotFound:
        return CheckpointNotFound(
            f"The transcript of {self._thread!r} was truncated: this checkpoint's messages are gone."
        )


def digest(text: str) -> str:
    """By which the last message of a list is known again."""
    return documents.digest(text)[:12]


def _near(spans: Iterable[Span]) -> list[Span]:
    """Ranges, joined where they are near each other."""
    joined: list[Span] = []
    for first, end in spans:
        if joined and first - joined[-1][1] <= _NEAR:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((first, end))
    return joined
