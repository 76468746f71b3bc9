"""Checkpoints that are removed from a thread, while it goes on."""

from collections.abc import Callable, Iterator
from typing import Any

from helix_sessions.exceptions import SessionNotFound, StaleState
from helix_sessions.integrations.langgraph import lists, places
from helix_sessions.integrations.langgraph.desk import name_of
from helix_sessions.integrations.langgraph.threads import Thread

Document = dict[str, Any]


def remove(thread: Thread, doomed: Callable[[list[Document]], set[tuple[str, str]]]) -> None:
    """Remove checkpoints, given by namespace and id, with their writes and what only they needed.

    Values that a checkpoint which stays finds in one that goes are moved over first.
    """
    while True:
        seen, _ = thread.look("")
        found = thread.documents()
        going = doomed(found)
        if not going:
            return
        staying = [one for one in found if (one.get("ns", ""), one["id"]) not in going]
        try:
            _remove(thread, going, staying, seen.version)
            break
        except StaleState:
            continue
        except SessionNotFound:
            break
    thread.memory.forget(thread.id)


def _remove(thread: Thread, going: set[tuple[str, str]], staying: list[Document], version: int) -> None:
    desks = {name_of(note.document) for note in thread.store.get_notes(thread.id, prefix=places.DESKS)}
    moved: Document = {}
    run_ids: dict[str, str | None] = {}
    for document in staying:
        namespace = document.get("ns", "")
        lost = {name for name, holder in document.get("held", {}).items() if (namespace, holder) in going}
        if lost:
            stored = thread.stored_values(document)
            document["values"].update({name: stored[name] for name in lost})
            document["held"] = {n: h for n, h in document["held"].items() if n not in lost}
            key = places.checkpoint(namespace, document["id"])
            key = places.desk(namespace) if name_of(document) in desks else key
            moved[key], run_ids[key] = document, thread.run_of(document)
    if moved:
        put = thread.store.put_notes(thread.id, moved, run_ids=run_ids, expected_version=version)
        version = put.version
    keys = [places.checkpoint(*gone) for gone in going]
    keys += [places.desk(namespace) for namespace, _ in going & desks]
    for gone in going:
        keys += [note.key for note in thread.store.get_notes(thread.id, prefix=places.writes(*gone))]
    keys += _unneeded_items(thread, staying)
    thread.store.remove_notes(thread.id, keys, expected_version=version)


def _unneeded_items(thread: Thread, staying: list[Document]) -> Iterator[str]:
    needed = {
        places.item(document.get("ns", ""), channel, number)
        for document in staying
        for channel, stored in document["values"].items()
        if "n" in stored
        for number in lists.numbers_of(stored["n"])
    }
    for note in thread.store.get_notes(thread.id, prefix="i|"):
        if note.key not in needed:
            yield note.key
