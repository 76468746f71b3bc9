"""One thread's checkpoints and writes as notes of its session: written, read, removed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from helix_sessions import documents
from helix_sessions.exceptions import CheckpointNotFound, SessionExists, SessionNotFound, StaleState
from helix_sessions.integrations.extras import needed_from
from helix_sessions.integrations.langgraph import lists, places
from helix_sessions.integrations.langgraph.codec import Codec
from helix_sessions.integrations.langgraph.desk import (
    filed,
    merged,
    name_of,
    opened,
    packed,
    task_of,
    with_writes,
)
from helix_sessions.integrations.langgraph.drafts import Draft
from helix_sessions.integrations.langgraph.memory import Desk, Known, Listed, Memory, Seen
from helix_sessions.integrations.langgraph.trees import NOTHING_SAID, Said, digest
from helix_sessions.store import SessionStore

with needed_from("langgraph"):
    from langgraph.checkpoint.base import WRITES_IDX_MAP, writes_sort_key

Document = dict[str, Any]
Write = tuple[str, str, Any]

FEW = 16
"""So many messages are remembered, to be found in writes that come late."""

LONGEST = 16_384
"""A desk whose document would have more characters takes no more writes: they are kept apart."""


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
            notes = self.store.get_notes(self.id, keys=[places.desk(namespace)])
            if not notes:
                prefix = places.checkpoints(namespace)
                notes = self.store.get_notes(self.id, prefix=prefix, last_first=True, limit=1)
        except SessionNotFound:
            return Seen(version=0, message_count=0, latest=None), None
        newest = opened(notes[0]) if notes else None
        seen = Seen(
            version=head.version,
            message_count=head.message_count,
            latest=None if newest is None else str(newest["id"]),
        )
        if newest is not None:
            self.memory.lay(self.id, namespace, Desk(version=seen.version, document=newest))
        return seen, newest

    def find(self, namespace: str, checkpoint: str) -> Document | None:
        try:
            return self._found(namespace, [checkpoint]).get(checkpoint)
        except SessionNotFound:
            return None

    def _found(self, namespace: str, checkpoints: Iterable[str]) -> dict[str, Document]:
        """Checkpoints of a namespace by their ids; the newest too, which was read on the way."""
        keys = [places.checkpoint(namespace, each) for each in checkpoints]
        notes = self.store.get_notes(self.id, keys=[*keys, places.desk(namespace)])  # the desk comes last
        return {found["id"]: found for found in map(opened, notes)}

    def documents(self, namespace: str | None = None) -> list[Document]:
        """The checkpoints, newest first, of one namespace or of all."""
        try:
            notes = self.store.get_notes(self.id, prefix=places.checkpoints(namespace))
            if namespace is None:
                notes += self.store.get_notes(self.id, prefix=places.DESKS)
            else:
                notes += self.store.get_notes(self.id, keys=[places.desk(namespace)])
        except SessionNotFound:
            return []
        found = {name_of(document): document for document in map(opened, notes)}
        return sorted(found.values(), key=lambda document: str(document["id"]), reverse=True)

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
                values[channel] = self.codec.decode(stored, reader.message)
                continue
            listed[channel] = Listed.of(values[channel], found)
        return values, listed

    def stored_values(self, document: Document) -> Document:
        """The values as they are stored, those that an earlier checkpoint holds included."""
        held = document.get("held", {})
        if not held:
            values: Document = document["values"]
            return values
        found = self._found(document.get("ns", ""), set(held.values()))
        return {
            **document["values"],
            **{channel: found[holder]["values"][channel] for channel, holder in held.items()},
        }

    def writes(self, document: Document, reader: lists.Reader) -> list[Write]:
        """The pending writes of a checkpoint, in the order a step applies them.

        A task whose messages were truncated from the transcript has written nothing: it will run again.
        """
        prefix = places.writes(document.get("ns", ""), document["id"])
        apart = [note.document for note in self.store.get_notes(self.id, prefix=prefix)]
        found: list[tuple[tuple[str, str, int], Write]] = []
        for wrote in merged(document.get("wrote", []), apart):
            task, path = wrote["task"], wrote.get("path", "")
            with suppress(CheckpointNotFound):
                found += [
                    (
                        writes_sort_key(path, task, index),
                        (task, channel, self.codec.decode(value, reader.message)),
                    )
                    for index, channel, value in wrote["writes"]
                ]
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
        wrote: dict[int | None, Document] = {}
        for index, (channel, value) in enumerate(writes):
            special = WRITES_IDX_MAP.get(channel)
            one = wrote.setdefault(special, {"task": task, **({"path": path} if path else {}), "writes": []})
            one["writes"].append([index if special is None else special, channel, self.codec.compose(value)])
        with self.memory.turn(self.id):
            if wrote and not self._put_on_desk(namespace, checkpoint, [*wrote.values()]):
                desk = self.memory.desk(self.id, namespace)
                said = NOTHING_SAID if desk is None else desk.said
                self._put_apart(self._apart(namespace, checkpoint, wrote.values(), said), create)

    def _apart(self, namespace: str, checkpoint: str, wrote: Iterable[Document], said: Said) -> Document:
        """Writes as notes of their own."""
        return {
            places.task_writes(namespace, checkpoint, *task_of(one)): packed(self.codec, one, said)
            for one in wrote
        }

    def _put_on_desk(self, namespace: str, checkpoint: str, wrote: list[Document]) -> bool:
        """Add writes to the newest checkpoint, or to those of one that is about to come; `False` if it is an
        older one, or if there are too many."""
        desk = self.memory.desk(self.id, namespace) or self._look_at_desk(namespace)
        while desk is not None and checkpoint >= desk.document["id"]:
            document = with_writes(desk.document, checkpoint, wrote)
            if len(documents.write(document)) > LONGEST:
                return False
            try:
                put = self.store.put_notes(
                    self.id,
                    {places.desk(namespace): document},
                    run_id=self.run_of(document),
                    expected_version=desk.version,
                )
            except (StaleState, SessionNotFound):
                desk = self._look_at_desk(namespace)
                continue
            self.memory.moved(self.id, None, put.version, put.message_count)
            self.memory.lay(self.id, namespace, replace(desk, version=put.version, document=document))
            return True
        return False

    def _look_at_desk(self, namespace: str) -> Desk | None:
        seen, newest = self.look(namespace)
        return None if newest is None else Desk(version=seen.version, document=newest)

    def _put_apart(self, notes: Document, create: Callable[[], None]) -> None:
        while True:
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
        with self.memory.turn(self.id):
            expected = self.memory.seen(self.id, namespace, parent)
            known = self.memory.known(self.id, namespace, parent) if expected else None
            seen, newest = self._now(namespace, expected)
            known = known or self._stored(namespace, parent)
            while True:
                if expected is not None and seen.latest != expected.latest:
                    self.store.check_session_version(self.id, expected.version)
                draft = self._drafted(namespace, document, values, changed, known, seen)
                run_ids = self._place(draft, namespace, document, newest)
                try:
                    if not seen.version:
                        create()
                    done = self.store.put_notes(
                        self.id,
                        draft.notes,
                        append_messages=draft.messages,
                        run_id=run_id,
                        run_ids=run_ids,
                        expected_version=seen.version or 1,
                    )
                    break
                except (StaleState, SessionExists, SessionNotFound):
                    seen, newest = self.look(namespace)
                    known = self._stored(namespace, parent)  # it may have been rewritten
            newest = document if newest is None or document["id"] >= newest["id"] else newest
            after = Seen(version=done.version, message_count=done.message_count, latest=newest["id"])
            self.memory.moved(self.id, namespace, done.version, done.message_count)
            before = self.memory.desk(self.id, namespace)
            said = (before.said if before else NOTHING_SAID).then(draft.said, FEW)
            self.memory.lay(self.id, namespace, Desk(version=done.version, document=newest, said=said))
            self.memory.see(self.id, namespace, document["id"], after)
            self.memory.know(self.id, namespace, document["id"], Known(document=document, lists=draft.lists))

    def _now(self, namespace: str, expected: Seen | None) -> tuple[Seen, Document | None]:
        """How the thread is, and its newest checkpoint: as this process left it, if that is known."""
        desk = self.memory.desk(self.id, namespace)
        if expected is not None and desk is not None and desk.version == expected.version:
            return expected, desk.document
        return self.look(namespace)

    def _place(
        self, draft: Draft, namespace: str, document: Document, newest: Document | None
    ) -> dict[str, str | None]:
        """Lay the checkpoint on the desk and file the one that was there; the runs that are not its own.

        One that is older than the newest is filed, and one that is put again keeps its writes.
        """
        here = document["id"]
        before = newest
        if newest is not None and here < newest["id"]:
            before = self.find(namespace, here)
            draft.notes[places.checkpoint(namespace, here)] = document
        else:
            draft.notes[places.desk(namespace)] = document
        if before is None:
            return {}
        if before["id"] == here:
            document.update({name: before[name] for name in ("wrote", "early") if name in before})
            return {}
        for other, wrote in before.get("early", {}).items():
            if other == here:
                document["wrote"] = wrote
            else:
                draft.notes.update(self._apart(namespace, other, wrote, draft.said))
        key = places.checkpoint(namespace, before["id"])
        draft.notes[key] = filed(self.codec, before, draft.said)
        return {key: self.run_of(before)}

    def run_of(self, document: Document) -> str | None:
        run_id = self.codec.decode(document["metadata"]).get("run_id")
        return str(run_id) if run_id else None

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
                document["values"][channel] = self.codec.compose(value)
        if not document["held"]:
            del document["held"]
        return draft

    def _said(self, draft: Draft, channel: str, items: list[Any], earlier: Listed) -> Document:
        """A list as positions in the transcript, to which what is new is appended."""
        found = earlier.find(items)
        new = found.index(None) if None in found else len(found)
        numbers: list[int] = found[:new]  # type: ignore[assignment]
        text = ""
        for item, place in zip(items[new:], found[new:], strict=True):
            if place is None:
                message = self.codec.encode_message(item)
                place, text = draft.say(message), ""
                if len(numbers) == len(items) - 1:
                    text = documents.dump(message)
            numbers.append(place)
        draft.lists[channel] = earlier.after(items, numbers)
        if items and not text:
            text = documents.dump(self.codec.encode_message(items[-1]))
        return {"m": lists.spans_of(numbers), "d": digest(text)} if items else {"m": [], "d": ""}

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


def channels_of(document: Document) -> set[str]:
    """The channels that have a value at a checkpoint."""
    return {*document["values"], *document.get("held", ())}


def _unchanged(before: Document, document: Document) -> set[str]:
    """The channels whose value the checkpoint before has in the same version."""
    if not before:
        return set()
    then, now = (each["checkpoint"].get("channel_versions", {}) for each in (before, document))
    return {name for name in channels_of(before) if name in now and then.get(name) == now[name]}
