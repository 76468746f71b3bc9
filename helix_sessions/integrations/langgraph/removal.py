"""Checkpoints that are removed from a thread, while it goes on."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from helix_sessions.exceptions import SessionNotFound, StaleState
from helix_sessions.integrations.langgraph import keys
from helix_sessions.integrations.langgraph.documents import (
    Items,
    Scalar,
    StoredCheckpoint,
    note_of,
    numbers_of,
)
from helix_sessions.integrations.langgraph.reader import Reader
from helix_sessions.integrations.langgraph.thread import Thread

Name = tuple[str, str]
"""The namespace and the id of a checkpoint."""


def prune(thread: Thread) -> None:
    """Remove all checkpoints but the newest of each namespace, and those it cannot be read without. A
    namespace that is one call of a subgraph goes with the checkpoint that made the call."""
    _remove(thread, lambda reader, found: {each.name for each in found} - _needed(reader, found))


def remove(thread: Thread, doomed: set[Name]) -> None:
    """Remove these checkpoints, their writes, and the items that only they have."""
    _remove(thread, lambda reader, found: doomed & {each.name for each in found})


def _needed(reader: Reader, found: Sequence[StoredCheckpoint]) -> set[Name]:
    """The newest of each namespace, and the ancestors its delta channels are rebuilt from."""
    names = {each.name for each in found}
    newest = {each.namespace: each for each in reversed(found)}
    metadata = {namespace: reader.load(each.metadata) for namespace, each in newest.items()}
    needed: set[Name] = set()
    for namespace in sorted(newest):  # the graph comes before its subgraphs
        if _is_over(namespace, metadata[namespace], names, needed):
            continue
        line = [newest[namespace], *reader.ancestors(newest[namespace])]
        missing = _deltas(reader, line, metadata[namespace]) - line[0].channels
        needed.add(line[0].name)
        for each in line[1:] if missing else ():
            needed.add(each.name)
            missing -= each.channels
            if not missing:
                break
    return needed


def _deltas(reader: Reader, line: Sequence[StoredCheckpoint], metadata: Mapping[str, Any]) -> set[str]:
    """The delta channels of a checkpoint, the first in its line: those that it counts the steps of, and those
    without a value whose last one is a snapshot."""
    counted = set(metadata.get("counters_since_delta_snapshot") or ())
    unknown = {*reader.load(line[0].checkpoint)["channel_versions"]} - counted - line[0].channels
    for each in line[1:] if unknown else ():
        for channel in unknown & each.channels:
            value = reader.stored_values(each)[channel]
            if isinstance(value, Scalar) and type(reader.load(value)).__name__ == "_DeltaSnapshot":
                counted.add(channel)
        unknown -= each.channels
    return counted


def _is_over(
    namespace: str, metadata: Mapping[str, Any], found: Container[Name], needed: Container[Name]
) -> bool:
    """Whether a namespace is a call, which has a task's id after a colon, made by a checkpoint that goes. The
    checkpoint of a call that goes on may not be stored yet."""
    caller = ("", (metadata.get("parents") or {}).get(""))
    return ":" in namespace and caller in found and caller not in needed


def _remove(thread: Thread, choose: Callable[[Reader, Sequence[StoredCheckpoint]], set[Name]]) -> None:
    while True:
        reader = thread.reader()
        session = reader.open()
        found = reader.checkpoints() if session else []
        going = choose(reader, found)
        if session is None or not going:
            return
        try:
            _remove_at(thread, reader, found, going, session.version)
            break
        except StaleState:
            continue
        except SessionNotFound:
            break
    thread.heads.forget(thread.id)


def _remove_at(
    thread: Thread, reader: Reader, found: Sequence[StoredCheckpoint], going: set[Name], version: int
) -> None:
    """Values that a checkpoint which stays finds in one that goes are moved over first."""
    staying = [_on_its_own(reader, each, going) for each in found if each.name not in going]
    moved = [each for each in staying if each not in found]
    if moved:
        notes = {each.key: note_of(each) for each in moved}
        run_ids = {each.key: each.run_id for each in moved}
        version = thread.store.put_notes(thread.id, notes, run_ids=run_ids, expected_version=version).version
    gone = {each.key for each in found if each.name in going} | {keys.checkpoint(*name) for name in going}
    gone |= {note.key for name in going for note in reader.notes(prefix=keys.writes(*name))}
    gone |= {note.key for note in reader.notes(prefix=keys.ITEMS)} - _items(staying)
    thread.store.remove_notes(thread.id, gone, expected_version=version)


def _on_its_own(reader: Reader, checkpoint: StoredCheckpoint, going: set[Name]) -> StoredCheckpoint:
    """A checkpoint that needs none of those that go."""
    if (checkpoint.namespace, checkpoint.parent) in going:
        checkpoint = replace(checkpoint, parent=None)
    lost = {name for name, holder in checkpoint.held.items() if (checkpoint.namespace, holder) in going}
    if not lost:
        return checkpoint
    values = reader.stored_values(checkpoint)
    return replace(
        checkpoint,
        values={**checkpoint.values, **{name: values[name] for name in lost}},
        held={name: holder for name, holder in checkpoint.held.items() if name not in lost},
    )


def _items(checkpoints: Sequence[StoredCheckpoint]) -> set[str]:
    """The keys of the items that these checkpoints have."""
    return {
        keys.item(each.namespace, channel, number)
        for each in checkpoints
        for channel, value in each.values.items()
        if isinstance(value, Items)
        for number in numbers_of(value.spans)
    }
