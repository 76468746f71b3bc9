"""What a put is about to store: what changed in the checkpoint, and where the rest is."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from helix_sessions.content import documents
from helix_sessions.integrations.langgraph import keys, lists, stored
from helix_sessions.integrations.langgraph.heads import Head
from helix_sessions.integrations.langgraph.lists import StoredList, numbers_of, spans_of
from helix_sessions.integrations.langgraph.reader import Reader
from helix_sessions.integrations.langgraph.stored import Items, Messages, Span, StoredCheckpoint, Value, Write
from helix_sessions.integrations.langgraph.values import Codec
from helix_sessions.types import JSON


class Draft:
    """Notes and messages, and the head that they will make."""

    def __init__(self, checkpoint: StoredCheckpoint, head: Head, reader: Reader, codec: Codec) -> None:
        self.notes: dict[str, Any] = {}
        self.run_ids: dict[str, str | None] = {}
        self.messages: list[dict[str, JSON]] = []
        self._codec = codec
        self._reader = reader
        self._head = head
        parent = None if checkpoint.parent is None else str(checkpoint.parent)
        self._checkpoint = replace(checkpoint, parent=parent)
        self._parent = self._read_parent()
        self._lists: dict[str, StoredList] = {}
        self._numbers = dict(head.checkpoint.numbers) if head.checkpoint else {}

    def _read_parent(self) -> StoredCheckpoint | None:
        parent, newest = self._checkpoint.parent, self._head.checkpoint
        if parent is None:
            return None
        if newest is not None and newest.id == parent:
            return newest
        return self._reader.find(self._checkpoint.namespace, parent)

    def fill(self, values: Mapping[str, Any], versions: Mapping[str, Any], changed: Iterable[str]) -> None:
        """Store the values that changed, and say of the others which checkpoint holds them."""
        unchanged = self._unchanged(versions) - {*changed}
        filled: dict[str, Value] = {}
        held: dict[str, str] = {}
        for channel, value in values.items():
            if self._parent is not None and channel in unchanged:
                held[channel] = self._parent.held.get(channel, self._parent.id)
                if channel in self._known_lists:
                    self._lists[channel] = self._known_lists[channel]
            elif lists.is_transcript(self._checkpoint.namespace, channel, value):
                filled[channel] = self._messages(channel, value)
            elif type(value) is list:
                filled[channel] = self._list(channel, value)
            else:
                filled[channel] = self._codec.dump(value)
        self._checkpoint = replace(self._checkpoint, values=filled, held=held)
        said = enumerate(self.messages, self._head.message_count)
        self._recent = self._head.recent.and_then(said)
        self._place()

    def _unchanged(self, versions: Mapping[str, Any]) -> set[str]:
        """The channels whose value the parent has in the same version."""
        if self._parent is None:
            return set()
        then = self._reader.load(self._parent.checkpoint).get("channel_versions", {})
        return {
            name for name in self._parent.channels if name in versions and then.get(name) == versions[name]
        }

    @property
    def _known_lists(self) -> Mapping[str, StoredList]:
        """The lists of the parent whose items are known."""
        return self._head.lists if self._parent is self._head.checkpoint else {}

    def _messages(self, channel: str, items: list[Any]) -> Messages:
        """A list as positions in the transcript, to which what is new is appended."""
        spans = self._store_items(channel, items, self._earlier(channel) or StoredList(), self._say)
        return Messages(spans, lists.digest(self._text(spans[-1][1] - 1)) if spans else "")

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
            if len(whole.data) <= lists.LONG:
                return whole
        return Items(self._store_items(channel, items, earlier or StoredList(), partial(self._note, channel)))

    def _note(self, channel: str, item: Any) -> int:
        namespace = self._checkpoint.namespace
        if channel not in self._numbers:
            last = self._reader.notes(prefix=keys.items(namespace, channel), last_first=True, limit=1)
            self._numbers[channel] = keys.number_of(last[0].key) + 1 if last else 0
        number = self._numbers[channel]
        self._numbers[channel] += 1
        self.notes[keys.item(namespace, channel, number)] = self._codec.dump_item(item)
        return number

    def _store_items(
        self, channel: str, items: list[Any], earlier: StoredList, store: Callable[[Any], int]
    ) -> tuple[Span, ...]:
        """Store the items that are new; the numbers of all."""
        fingerprints = self._fingerprints(items)
        found = zip(items, earlier.find(fingerprints), strict=True)
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
        items = self._reader.items(self._parent.namespace, channel, value)
        return StoredList(numbers_of(value.spans), self._fingerprints(items))

    def _fingerprints(self, items: Iterable[Any]) -> bytes:
        return b"".join(map(self._codec.fingerprint, items))

    def _place(self) -> None:
        """Make the checkpoint the head and file the one that was, or file it if it is older than the head."""
        new, newest = self._checkpoint, self._head.checkpoint
        if newest is not None and new.id < newest.id:
            before = self._reader.find(new.namespace, new.id)
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
        key = keys.head(new.namespace)
        self.notes[key] = stored.note_of(self._newest)
        self.run_ids[key] = self._newest.run_id

    def _file(self, checkpoint: StoredCheckpoint) -> None:
        key = keys.checkpoint(checkpoint.namespace, checkpoint.id)
        self.notes[key] = stored.note_of(stored.filed(checkpoint, self._recent))
        self.run_ids[key] = checkpoint.run_id

    def _take_early(self, early: Mapping[str, tuple[Write, ...]]) -> None:
        """Writes that came before their checkpoint go to it; those of one that never came are kept apart."""
        namespace, new = self._newest.namespace, self._newest.id
        for checkpoint, writes in early.items():
            if checkpoint < new:
                self.notes |= apart(namespace, checkpoint, writes, self._reader)
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
    return {key: stored.writes_note(stored.merged(before.get(key, ()), more)) for key, more in tasks.items()}
