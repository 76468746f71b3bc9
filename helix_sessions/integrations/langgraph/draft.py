"""What a put is about to store: what changed in the checkpoint, and where the rest is.

Lists that grow are stored item by item, once, and a checkpoint says which items it has. The items of the root
graph's `messages` are messages of the transcript, by their positions. Those of other long lists are notes, by
numbers. So a step stores what it added, and not the list.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from helix_sessions.content import documents
from helix_sessions.integrations.langgraph import documents as stored
from helix_sessions.integrations.langgraph import keys
from helix_sessions.integrations.langgraph.documents import (
    Items,
    Messages,
    Span,
    StoredCheckpoint,
    Value,
    Write,
    numbers_of,
    spans_of,
)
from helix_sessions.integrations.langgraph.reader import Head, Reader, StoredList, digest
from helix_sessions.integrations.langgraph.values import FINGERPRINT, Codec
from helix_sessions.types import JSON

LONG = 2048
"""A list whose serialized form has more bytes is stored item by item."""


class Draft:
    """Notes and messages, and the head that they will make."""

    def __init__(
        self, checkpoint: StoredCheckpoint, head: Head, reader: Reader, codec: Codec, *, says: bool
    ) -> None:
        self.notes: dict[str, Any] = {}
        self.run_ids: dict[str, str | None] = {}
        self.messages: list[dict[str, JSON]] = []
        self._says = says
        self._codec = codec
        self._reader = reader
        self._head = head
        self._namespace = checkpoint.namespace
        parent = None if checkpoint.parent is None else str(checkpoint.parent)
        self._checkpoint = replace(checkpoint, parent=parent)
        self._parent = None if parent is None else self._find(parent)
        self._known_lists = head.lists if self._parent is head.checkpoint else {}
        self._lists: dict[str, StoredList] = {}
        self._numbers = dict(head.checkpoint.numbers) if head.checkpoint else {}

    def _find(self, checkpoint: str) -> StoredCheckpoint | None:
        newest = self._head.checkpoint
        if newest is not None and newest.id == checkpoint:
            return newest
        return self._reader.find(self._namespace, checkpoint)

    def fill(self, values: Mapping[str, Any], versions: Mapping[str, Any], changed: Iterable[str]) -> None:
        """Store the values that changed, and say of the others which checkpoint holds them."""
        unchanged = self._unchanged(versions) - {*changed}
        held = {}
        if (
            self._parent is not None
        ):  # which may also hold a delta channel's snapshot, that is not in the values
            held = {channel: self._parent.held.get(channel, self._parent.id) for channel in unchanged}
        self._lists = {channel: each for channel, each in self._known_lists.items() if channel in unchanged}
        filled: dict[str, Value] = {}
        for channel, value in values.items():
            if channel in unchanged:
                continue
            if type(value) is not list:
                filled[channel] = self._codec.dump(value)
            elif channel == "messages" and self._namespace == "" and self._says:
                filled[channel] = self._messages(channel, value)
            else:
                filled[channel] = self._list(channel, value)
        self._checkpoint = replace(self._checkpoint, values=filled, held=held)
        self._recent = self._head.recent.and_then(self._head.message_count, self.messages)
        self._place()

    def _unchanged(self, versions: Mapping[str, Any]) -> set[str]:
        """The channels whose value the parent has in the same version."""
        if self._parent is None:
            return set()
        then = self._reader.load(self._parent.checkpoint).get("channel_versions", {})
        return {
            name for name in self._parent.channels if name in versions and then.get(name) == versions[name]
        }

    def _messages(self, channel: str, items: list[Any]) -> Messages:
        """A list as positions in the transcript, to which what is new is appended."""
        spans = self._store_items(channel, items, self._earlier(channel) or StoredList(), self._say)
        return Messages(spans, digest(self._text(spans[-1][1] - 1)) if spans else "")

    def _say(self, item: Any) -> int:
        self.messages.append(self._codec.dump_message(item))
        return self._head.message_count + len(self.messages) - 1

    def _text(self, position: int) -> str:
        new = position - self._head.message_count
        return documents.dump(self.messages[new]) if new >= 0 else self._reader.text(position)

    def _list(self, channel: str, items: list[Any]) -> Value:
        """Any other list: whole while it is short, then item by item."""
        earlier = self._earlier(channel)
        if earlier is None:
            whole = self._codec.dump(items)
            if len(whole.data) <= LONG:
                return whole
        return Items(self._store_items(channel, items, earlier or StoredList(), partial(self._note, channel)))

    def _note(self, channel: str, item: Any) -> int:
        if channel not in self._numbers:
            last = self._reader.notes(prefix=keys.items(self._namespace, channel), last_first=True, limit=1)
            self._numbers[channel] = keys.number_of(last[0].key) + 1 if last else 0
        number = self._numbers[channel]
        self._numbers[channel] += 1
        self.notes[keys.item(self._namespace, channel, number)] = self._codec.dump_item(item)
        return number

    def _store_items(
        self, channel: str, items: list[Any], earlier: StoredList, store: Callable[[Any], int]
    ) -> tuple[Span, ...]:
        """Store the items that are new; the numbers of all."""
        fingerprints = self._fingerprints(items)
        found = zip(items, _numbers_in(earlier, fingerprints), strict=True)
        spans = spans_of([store(item) if number is None else number for item, number in found])
        self._lists[channel] = StoredList(numbers_of(spans), fingerprints)
        return spans

    def _earlier(self, channel: str) -> StoredList | None:
        """The parent's list, if its items are stored one by one."""
        if self._parent is None or channel not in self._parent.channels:
            return None
        if channel in self._known_lists:
            return self._known_lists[channel]
        value = self._reader.stored_values(self._parent)[channel]
        if not isinstance(value, Messages | Items):
            return None
        items = self._reader.items(self._namespace, channel, value)
        return StoredList(numbers_of(value.spans), self._fingerprints(items))

    def _fingerprints(self, items: Iterable[Any]) -> bytes:
        return b"".join(map(self._codec.fingerprint, items))

    def _place(self) -> None:
        """Make the checkpoint the head and file the one that was, or file it if it is older than the head."""
        new, newest = self._checkpoint, self._head.checkpoint
        if newest is not None and new.id < newest.id:
            before = self._reader.find(self._namespace, new.id)
            self._file(replace(new, writes=before.writes if before else ()))
            self._newest = replace(newest, latest=new.id, numbers=self._numbers)
            self._lists = dict(self._head.lists)
        else:
            self._newest = replace(new, latest=new.id, numbers=self._numbers)
            if newest is not None and newest.id == new.id:  # put again
                self._newest = replace(self._newest, writes=newest.writes, early=newest.early)
            elif newest is not None:
                self._file(newest)
                self._take_early(newest.early)
        self._keep(self._newest)

    def _file(self, checkpoint: StoredCheckpoint) -> None:
        self._keep(self._recent.file(checkpoint))

    def _keep(self, checkpoint: StoredCheckpoint) -> None:
        self.notes[checkpoint.key] = stored.note_of(checkpoint)
        self.run_ids[checkpoint.key] = checkpoint.run_id

    def _take_early(self, early: Mapping[str, tuple[Write, ...]]) -> None:
        """Writes that came before their checkpoint go to it; those of one that never came are kept apart."""
        new = self._newest.id
        for checkpoint, writes in early.items():
            if checkpoint < new:
                self.notes |= apart(self._namespace, checkpoint, writes, self._reader)
        coming = {checkpoint: writes for checkpoint, writes in early.items() if checkpoint > new}
        self._newest = replace(self._newest, writes=early.get(new, ()), early=coming)

    def head_at(self, version: int, message_count: int) -> Head:
        """The head once all this is stored."""
        return Head(
            version=version,
            message_count=message_count,
            checkpoint=self._newest,
            lists=self._lists,
            recent=self._recent,
        )


def apart(namespace: str, checkpoint: str, writes: Iterable[Write], reader: Reader) -> dict[str, JSON]:
    """Notes of their own for writes, with what their tasks have written there before."""
    tasks: dict[str, list[Write]] = defaultdict(list)
    for write in writes:
        tasks[keys.task_writes(namespace, checkpoint, write.task, write.special)].append(write)
    before = {note.key: reader.writes_of(note) for note in reader.notes(keys=tasks)}
    return {
        key: stored.note_of_writes(stored.merged(before.get(key, ()), more)) for key, more in tasks.items()
    }


def _numbers_in(earlier: StoredList, fingerprints: bytes) -> list[int | None]:
    """For each item of a list the number that an earlier list has it under, or `None`."""
    if fingerprints.startswith(earlier.fingerprints):  # as it mostly does
        more = len(fingerprints) // FINGERPRINT - len(earlier.numbers)
        return [*earlier.numbers, *[None] * more]
    left: defaultdict[bytes, list[int]] = defaultdict(list)
    for number, each in zip(earlier.numbers, _each(earlier.fingerprints), strict=True):
        left[each].append(number)
    return [left[each].pop(0) if left[each] else None for each in _each(fingerprints)]


def _each(fingerprints: bytes) -> list[bytes]:
    starts = range(0, len(fingerprints), FINGERPRINT)
    return [fingerprints[start : start + FINGERPRINT] for start in starts]
