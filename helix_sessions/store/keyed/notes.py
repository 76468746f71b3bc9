"""Notes: documents that the driver of a session keeps with it, under its own keys.

They are neither state nor history. A framework's adapter stores its own data there, and finds and removes it
by key or by prefix. They are branched, exported and deleted with it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from helix_sessions import models
from helix_sessions.content import documents, encryption
from helix_sessions.exceptions import InvalidInput, SessionNotFound
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.keyed import sql
from helix_sessions.types import JSON, UNSET, AppendResult, Messages, Note

_AFTER_EVERY_KEY = "\U0010ffff"
_KEYS_AT_ONCE = 500


def put_notes(
    store: Store,
    session_id: str,
    notes: Mapping[str, JSON],
    *,
    append_messages: Messages = (),
    run_id: str | None = None,
    run_ids: Mapping[str, str | None] | None = None,
    quietly: bool = False,
    expected_version: int | None = None,
) -> AppendResult:
    """Keep documents under their keys, in place of what is there, and append messages with them.

    `run_ids` are those of keys whose run is not `run_id`. `quietly` neither raises the version nor is
    logged, as staging is; messages cannot be appended so.
    """
    texts = _checked(notes)
    said = inputs.messages(append_messages)
    runs = _runs(texts, run_id, {} if run_ids is None else run_ids)
    if inputs.flag(quietly, "quietly") and (said or expected_version is not None):
        raise InvalidInput("What is kept quietly has no messages and no version.")

    def put(work: UnitOfWork) -> None:
        work.versioned = not quietly
        for role, text in said:
            work.message(role, text)
        if texts and not said and not quietly:
            work.event("notes_put", {"keys": list(texts)})
        for key, text in texts.items():
            work.put(models.Note, key=key, run_id=runs[key], document=text)

    if quietly:
        with store._write(session_id) as work:
            put(work)
    else:
        work, _ = store._decide(session_id, put, expected_version)
    session = work.session
    return AppendResult(
        first_position=session.message_count - len(said),
        message_count=session.message_count,
        version=session.version,
        head_seq=session.head_seq,
    )


def get_notes(
    store: Store,
    session_id: str,
    *,
    keys: Iterable[str] | None = None,
    prefix: str = "",
    last_first: bool = False,
    limit: int | None = None,
) -> list[Note]:
    """Notes by key: those of `keys` that there are, or those whose key begins with `prefix`."""
    row = store._read(session_id, ("session_id",))
    most = inputs.MAX_INTEGER if limit is None else inputs.integer(limit, "limit")
    found: list[tuple[Any, ...]] = []
    if keys is None:
        first = inputs.text(prefix, "prefix", limit=inputs.MAX_ID)
        query = sql.notes_in_range(store._dialect, inputs.flag(last_first, "last_first"))
        found = fetch(store._connection, query, [row.session_id, first, first + _AFTER_EVERY_KEY, most])
    else:
        wanted = sorted(set(_keys(keys)), reverse=last_first)
        for start in range(0, len(wanted), _KEYS_AT_ONCE):
            some = wanted[start : start + _KEYS_AT_ONCE]
            query = sql.notes_by_key(store._dialect, len(some))
            rows = fetch(store._connection, query, [row.session_id, *some], prepare=False)
            found += sorted(rows, reverse=last_first)
    return [_note(row.session_id, *values) for values in found[:most]]


def remove_notes(
    store: Store, session_id: str, keys: Iterable[str], *, expected_version: int | None = None
) -> int:
    """Remove the notes under these keys; returns how many there were."""
    wanted = sorted(set(_keys(keys)))
    with store._write(session_id, expected_version) as work:
        key = work.session.session_id
        rows = models.Note.objects.using(store.using).filter(session_id=key, key__among=wanted)
        count = rows.count()
        if count:
            statement, value = sql.remove_notes(work.dialect, wanted)
            work.statement(statement, [key, value])
            work.event("notes_removed", {"count": count})
    return count


def find_notes(store: Store, *, run_id: str) -> list[Note]:
    """The notes a run wrote, in whichever sessions, by session and key."""
    run = inputs.identifier(run_id, "run_id")
    rows = models.Note.objects.using(store.using).filter(run_id=run)
    if store._owner is not UNSET:
        rows = rows.filter(session__owner_id=store._owner)
    keys: dict[str, list[str]] = {}
    for session_id, key in rows.order_by("session_id", "key").values_list("session_id", "key"):
        keys.setdefault(session_id, []).append(key)
    return [note for session_id in keys for note in _notes_of_run(store, session_id, keys[session_id], run)]


def _notes_of_run(store: Store, session_id: str, keys: list[str], run_id: str) -> list[Note]:
    try:
        found = get_notes(store, session_id, keys=keys)
    except SessionNotFound:
        return []  # deleted meanwhile
    return [note for note in found if note.run_id == run_id]


def copy(work: UnitOfWork, source_id: str) -> None:
    """Copy the notes of another session to a new one: inside the database, but for content that has to be
    sealed for its new place."""
    notes = table(models.Note)
    if encryption.keyring() is None:
        work.statement(sql.COPY_NOTES, [work.session.session_id, source_id])
        return
    query = sql.notes_in_range(work.dialect, False)
    everything = [source_id, "", _AFTER_EVERY_KEY, inputs.MAX_INTEGER]
    for key, text, run in fetch(work.connection, query, everything):
        opened = notes.open_text("document", text, source_id, key)
        work.insert(models.Note, key=key, run_id=run, document=opened)


def _note(session_id: str, key: str, text: str, run_id: str | None) -> Note:
    opened = table(models.Note).open_text("document", text, session_id, key)
    return Note(session_id=session_id, key=key, document=documents.load(opened), run_id=run_id)


def _checked(notes: Any) -> dict[str, str]:
    if not isinstance(notes, Mapping):
        raise InvalidInput("Notes must be an object of documents by key.")
    return {_key(key): documents.dump(document) for key, document in notes.items()}


def _runs(keys: Iterable[str], run_id: Any, run_ids: Any) -> dict[str, str | None]:
    if not isinstance(run_ids, Mapping):
        raise InvalidInput("run_ids must be an object of run ids by key.")
    run = inputs.optional_identifier(run_id, "run_id")
    others = {key: inputs.optional_identifier(value, "run_id") for key, value in run_ids.items()}
    return {key: others.get(key, run) for key in keys}


def _key(value: Any) -> str:
    return inputs.identifier(value, "The key of a note")


def _keys(values: Any) -> list[str]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInput("keys must be a list of strings.")
    return [_key(value) for value in values]
