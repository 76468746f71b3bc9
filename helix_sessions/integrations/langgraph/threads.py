"""One thread's checkpoints and writes as notes of its session: written, read, removed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from helix_sessions import documents
from helix_sessions.exceptions import SessionExists, SessionNotFound, StaleState
from helix_sessions.integrations.extras import needed_from
from helix_sessions.integrations.langgraph import lists, places
from helix_sessions.integrations.langgraph.codec import Codec
from helix_sessions.integrations.langgraph.memory import Known, Listed, Memory, Seen
from helix_sessions.store import SessionStore
from helix_sessions.types import JSON

with needed_from("langgraph"):
    from langgraph.checkpoint.base import WRITES_IDX_MAP, writes_sort_key

Document = dict[str, Any]
Write = tuple[str, str, Any]


class Draft:
    """What a put is about to store."""

    def __init__(self, seen: Seen) -> None:
        self.messages: list[dict[str, JSON]] = []
        self.notes: Document = {}
        self.lists: dict[str, Listed] = {}
        self._first = seen.message_count

    def say(self, message: dict[str, JSON]) -> int:
        """The position that a new message will have."""
        self.messages.append(message)
        return self._first + len(self.messages) - 1


class Thread:
    """The documents of one thread."""

    def __init__(self, store: SessionStore, thread: str, codec: Codec, memory: Memory) -> None:
        self.store = store
        self.id = thread
        self.codec = codec
        self.memory = memory

    def look(self, namespace: str) -> tuple[Seen, Document | None]:
        """How the thread is now, and its newest checkpoint. What is compared later is read first, so that a
        change meanwhile is noticed."""
        try:
            head = self.store.get_session_head(self.id)
            prefix = places.checkpoints(namespace)
            notes = self.store.get_notes(self.id, prefix=prefix, last_first=True, limit=1)
        except SessionNotFound:
            return Seen(version=0, message_count=0, latest=None), None
        newest = notes[0].document if notes else None
        seen = Seen(
            version=head.version,
            message_count=head.message_count,
            latest=None if newest is None else str(newest["id"]),
        )
        return seen, newest

    def find(self, namespace: str, checkpoint: str) -> Document | None:
        try:
            notes = self.store.get_notes(self.id, keys=[places.checkpoint(namespace, checkpoint)])
        except SessionNotFound:
            return None
        return notes[0].document if notes else None

    def documents(self, namespace: str | None = None) -> list[Document]:
        """The checkpoints, newest first, of one namespace or of all."""
        try:
            notes = self.store.get_notes(self.id, prefix=places.checkpoints(namespace))
        except SessionNotFound:
            return []
        return sorted((note.document for note in notes), key=lambda found: str(found["id"]), reverse=True)

    def values(self, document: Document, reader: lists.Reader) -> tuple[Document, dict[str, Listed]]:
        """The channel values of a checkpoint, and those of them that are stored as lists."""
        namespace = document.get("ns", "")
        values: Document = {}
        listed: dict[str, Listed] = {}
        for channel, stored in self.stored_values(document).items():
            if "m" in stored:
                values[channel], found = reader.transcript(stored)
            elif "n" in stored:
                values[channel], found = reader.noted(namespace, channel, stored)
            else:
                values[channel] = self.codec.decode(stored)
                continue
            listed[channel] = Listed.of(values[channel], found)
        return values, listed

    def stored_values(self, document: Document) -> Document:
        """The values as they are stored, those that an earlier checkpoint holds included."""
        held = document.get("held", {})
        if not held:
            values: Document = document["values"]
            return values
        namespace = document.get("ns", "")
        keys = {holder: places.checkpoint(namespace, holder) for holder in set(held.values())}
        found = {note.key: note.document for note in self.store.get_notes(self.id, keys=keys.values())}
        return {
            **document["values"],
            **{channel: found[keys[holder]]["values"][channel] for channel, holder in held.items()},
        }

    def writes(self, namespace: str, checkpoint: str) -> list[Write]:
        """The pending writes of a checkpoint, in the order a step applies them."""
        found: list[tuple[tuple[str, str, int], Write]] = []
        for note in self.store.get_notes(self.id, prefix=places.writes(namespace, checkpoint)):
            task, path = note.document["task"], note.document.get("path", "")
            for index, channel, value in note.document["writes"]:
                place = writes_sort_key(path, task, index)
                found.append((place, (task, channel, self.codec.decode(value))))
        return [write for _, write in sorted(found, key=lambda each: each[0])]

    def put_writes(
        self,
        namespace: str,
        checkpoint: str,
        writes: Sequence[tuple[str, Any]],
        task: str,
        path: str,
        create: Callable[[], None],
    ) -> None:
        prefix = f"{places.writes(namespace, checkpoint)}{task.replace('|', '%7C')}|"
        notes: Document = {}
        for index, (channel, value) in enumerate(writes):
            special = WRITES_IDX_MAP.get(channel)
            key = f"{prefix}{'' if special is None else special}"
            note = notes.setdefault(key, {"task": task, **({"path": path} if path else {}), "writes": []})
            note["writes"].append([index if special is None else special, channel, self.codec.encode(value)])
        while notes:
            try:
                self.store.put_notes(self.id, notes, quietly=True)
                return
            except SessionNotFound:
                create()

    def put(
        self,
        namespace: str,
        parent: str | None,
        document: Document,
        values: Mapping[str, Any],
        changed: Mapping[str, Any],
        run_id: str | None,
        create: Callable[[], None],
    ) -> None:
        """Store a checkpoint on its parent. Refused if somebody else put one since the parent was read."""
        expected = self.memory.seen(self.id, namespace, parent)
        known = self.memory.known(self.id, namespace, parent) if expected else None
        seen = expected or self.look(namespace)[0]
        known = known or self._stored(namespace, parent)
        while True:
            draft = self._drafted(namespace, document, values, changed, known, seen)
            key = places.checkpoint(namespace, document["id"])
            try:
                if not seen.version:
                    create()
                done = self.store.put_notes(
                    self.id,
                    {**draft.notes, key: document},
                    append_messages=draft.messages,
                    run_id=run_id,
                    expected_version=seen.version or 1,
                )
                break
            except (StaleState, SessionExists, SessionNotFound):
                now, _ = self.look(namespace)
                if expected is not None and now.latest != expected.latest:
                    self.store.check_session_version(self.id, seen.version)
                seen, known = now, self._stored(namespace, parent)  # it may have been rewritten
        latest = max(document["id"], seen.latest or "")
        after = Seen(version=done.version, message_count=done.message_count, latest=latest)
        self.memory.moved(self.id, namespace, done.version - 1, after)
        self.memory.see(self.id, namespace, document["id"], after)
        self.memory.know(self.id, namespace, document["id"], Known(document=document, lists=draft.lists))

    def remember(self, document: Document, listed: dict[str, Listed]) -> None:
        known = Known(document=document, lists=listed)
        self.memory.know(self.id, document.get("ns", ""), document["id"], known)

    def _stored(self, namespace: str, checkpoint: str | None) -> Known | None:
        document = None if checkpoint is None else self.find(namespace, checkpoint)
        if document is None:
            return None
        _, listed = self.values(document, lists.Reader(self.store, self.id, self.codec))
        return Known(document=document, lists=listed)

    def _drafted(
        self,
        namespace: str,
        document: Document,
        values: Mapping[str, Any],
        changed: Mapping[str, Any],
        known: Known | None,
        seen: Seen,
    ) -> Draft:
        """Fill in the values: what changed here, what did not where it is, lists by their items' places."""
        draft = Draft(seen)
        before = known.document if known else {}
        unchanged = _unchanged(before, document) - set(changed)
        document.update(values={}, held={})
        for channel, value in values.items():
            earlier = known.lists.get(channel) if known else None
            if channel in unchanged:
                if earlier is not None:
                    draft.lists[channel] = earlier
                document["held"][channel] = before.get("held", {}).get(channel, before["id"])
            elif lists.is_transcript(namespace, channel, value):
                document["values"][channel] = self._said(draft, channel, value, earlier or Listed())
            elif type(value) is list:
                document["values"][channel] = self._listed(draft, namespace, channel, value, earlier)
            else:
                document["values"][channel] = self.codec.encode(value)
        if not document["held"]:
            del document["held"]
        return draft

    def _said(self, draft: Draft, channel: str, items: list[Any], earlier: Listed) -> Document:
        """A list as positions in the transcript, to which what is new is appended."""
        numbers: list[int] = []
        text = ""
        for item, place in zip(items, earlier.find(items), strict=True):
            if place is None:
                message = self.codec.encode_message(item)
                place, text = draft.say(message), ""
                if len(numbers) == len(items) - 1:
                    text = documents.dump(message)
            numbers.append(place)
        draft.lists[channel] = earlier.after(items, numbers)
        if items and not text:
            text = documents.dump(self.codec.encode_message(items[-1]))
        return {"m": lists.spans_of(numbers), "d": lists.digest(text)} if items else {"m": [], "d": ""}

    def _listed(
        self, draft: Draft, namespace: str, channel: str, items: list[Any], earlier: Listed | None
    ) -> Document:
        """Any other list: whole while it is short, then item by item."""
        if earlier is None:
            whole: Document = self.codec.encode(items)
            if len(documents.write(whole)) <= lists.LONG:
                return whole
            earlier = Listed()
        after = self._next_number(namespace, channel)
        numbers: list[int] = []
        for item, place in zip(items, earlier.find(items), strict=True):
            if place is None:
                place = after
                after += 1
                draft.notes[places.item(namespace, channel, place)] = self.codec.encode(item)
            numbers.append(place)
        draft.lists[channel] = earlier.after(items, numbers)
        return {"n": lists.spans_of(numbers)}

    def _next_number(self, namespace: str, channel: str) -> int:
        prefix = places.items(namespace, channel)
        try:
            taken = self.store.get_notes(self.id, prefix=prefix, last_first=True, limit=1)
        except SessionNotFound:
            return 0
        return int(taken[0].key.removeprefix(prefix)) + 1 if taken else 0

    def remove(self, doomed: Callable[[list[Document]], set[tuple[str, str]]]) -> None:
        """Remove checkpoints, given by namespace and id, with their writes and what only they needed.

        Values that a checkpoint which stays finds in one that goes are moved over first.
        """
        while True:
            seen, _ = self.look("")
            found = self.documents()
            going = doomed(found)
            if not going:
                return
            staying = [one for one in found if (one.get("ns", ""), one["id"]) not in going]
            try:
                self._remove(going, staying, seen.version)
                break
            except StaleState:
                continue
            except SessionNotFound:
                break
        self.memory.forget(self.id)

    def _remove(self, going: set[tuple[str, str]], staying: list[Document], version: int) -> None:
        moved: dict[str | None, Document] = {}
        for document in staying:
            namespace = document.get("ns", "")
            lost = {name for name, holder in document.get("held", {}).items() if (namespace, holder) in going}
            if lost:
                stored = self.stored_values(document)
                document["values"].update({name: stored[name] for name in lost})
                document["held"] = {n: h for n, h in document["held"].items() if n not in lost}
                run_id = self.codec.decode(document["metadata"]).get("run_id")
                key = places.checkpoint(namespace, document["id"])
                moved.setdefault(str(run_id) if run_id else None, {})[key] = document
        for run_id, notes in moved.items():
            put = self.store.put_notes(self.id, notes, run_id=run_id, expected_version=version)
            version = put.version
        keys = [places.checkpoint(*gone) for gone in going]
        for gone in going:
            keys += [note.key for note in self.store.get_notes(self.id, prefix=places.writes(*gone))]
        keys += self._unneeded_items(staying)
        self.store.remove_notes(self.id, keys, expected_version=version)

    def _unneeded_items(self, staying: list[Document]) -> Iterator[str]:
        needed = {
            places.item(document.get("ns", ""), channel, number)
            for document in staying
            for channel, stored in document["values"].items()
            if "n" in stored
            for number in lists.numbers_of(stored["n"])
        }
        for note in self.store.get_notes(self.id, prefix="i|"):
            if note.key not in needed:
                yield note.key


def channels_of(document: Document) -> set[str]:
    """The channels that have a value at a checkpoint."""
    return {*document["values"], *document.get("held", ())}


def _unchanged(before: Document, document: Document) -> set[str]:
    """The channels whose value the checkpoint before has in the same version."""
    if not before:
        return set()
    then, now = (each["checkpoint"].get("channel_versions", {}) for each in (before, document))
    return {name for name in channels_of(before) if name in now and then.get(name) == now[name]}
