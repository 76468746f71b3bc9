"""Memories as lines of an export, and back."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from django.utils import timezone

from helix_sessions.content import documents, encryption
from helix_sessions.exceptions import HelixSessionsError, InvalidExport, MemoryExists
from helix_sessions.messages import words
from helix_sessions.models import Memory
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import fetch, transaction_on
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.ids import new_id
from helix_sessions.store.engine.tables import aware
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.memory import names, operations, rows, sql, vectors
from helix_sessions.store.memory.names import Namespace
from helix_sessions.store.memory.rows import Written
from helix_sessions.types import UNSET

KIND = "memory"
_PAGE = 200
_FIELDS = {
    *("kind", "namespace", "key", "value", "searchable", "ttl"),
    *("created_at", "updated_at", "expires_at", "vectors"),
}


def lines(using: str, prefix: Namespace) -> Iterator[str]:
    """The memories of all namespaces that begin so, each as a line of JSON. Their documents are the stored
    text."""
    bounds = names.bounds(prefix)
    last = ""
    while True:
        with transaction_on(using) as connection:
            text = sql.page(dialect_of(connection), within=bounds is not None)
            now = rows.moment(connection, timezone.now())
            page = fetch(connection, text, [last, now, *(bounds or ()), _PAGE])
            near = rows.vectors_of(connection, [row[0] for row in page]) if page else {}
        yield from (_line(row, near.get(row[0], [])) for row in page)
        if len(page) < _PAGE:
            return
        last = page[-1][0]


def remove_unchanged(using: str, taken: Iterable[str]) -> int:
    """Remove the memories of these lines, unless they were put again since; returns how many were removed."""
    ids: list[str] = []
    with locking_transaction(using) as connection:
        for line in taken:
            found = json.loads(line)
            memory_id = names.memory_id(names.namespace(found["namespace"]), found["key"])
            same = Memory._default_manager.using(using).filter(
                memory_id=memory_id, updated_at=_moment(found["updated_at"])
            )
            ids += same.select_for_update().values_list("memory_id", flat=True)
        return rows.remove(connection, ids)


def _line(row: Any, near: list[vectors.Vector]) -> str:
    memory_id, namespace, key, value, created_at, updated_at, expires_at, ttl, searchable, _ = row
    fields = {
        "kind": documents.write(KIND),
        "namespace": documents.write(list(names.parts_of(namespace))),
        "key": documents.write(key),
        "value": encryption.open_text(rows.place(memory_id, "value"), value).replace("\n", " "),
        "searchable": documents.write(encryption.open_text(rows.place(memory_id, "searchable"), searchable)),
        "ttl": None if ttl is None else documents.write(ttl),
        "created_at": documents.write(aware(created_at).isoformat()),
        "updated_at": documents.write(aware(updated_at).isoformat()),
        "expires_at": None if expires_at is None else documents.write(aware(expires_at).isoformat()),
        "vectors": documents.write([list(vector) for vector in near]) if near else None,
    }
    parts = [f'"{name}":{text}' for name, text in fields.items() if text is not None]
    return f"{{{','.join(parts)}}}"


class MemoryImporter:
    """Memories on their way into the database, a page in each transaction. If `confined`, those of no owner
    stay out."""

    def __init__(self, using: str, on_collision: str, owner: Any, *, confined: bool = False) -> None:
        self.using = using
        self.on_collision = on_collision
        self.owner = owner
        self.confined = confined
        self.written = self.skipped = 0
        self._page: dict[str, Written] = {}

    def add(self, found: Mapping[str, str]) -> None:
        """Take a record; `InvalidExport` if it cannot come in."""
        try:
            memory = self._read(found)
        except (HelixSessionsError, TypeError, ValueError, KeyError) as error:
            raise InvalidExport(f"A memory cannot come in: {error}") from None
        if memory is None:
            self.skipped += 1
            return
        if memory.memory_id in self._page or len(self._page) >= _PAGE:
            self.flush()
        self._page[memory.memory_id] = memory

    def flush(self) -> None:
        """Write what was taken."""
        if not self._page:
            return
        with locking_transaction(self.using) as connection:
            taken = rows.read(connection, list(self._page), timezone.now())
            written = []
            for memory_id, memory in self._page.items():
                if memory_id in taken and self.on_collision == "fail":
                    raise MemoryExists(f"There is a memory with the key {memory.key!r} already.")
                if memory_id in taken and self._stays(taken[memory_id], memory):
                    self.skipped += 1
                    continue
                renews = memory_id in taken and self.on_collision == "renew"
                written.append(_renewed(memory) if renews else memory)
            rows.write(connection, written)
        self.written += len(written)
        self._page = {}

    def _stays(self, here: Any, memory: Written) -> bool:
        if self.on_collision == "newer":
            return aware(here[sql.READ.index("updated_at")]) >= memory.updated_at
        return self.on_collision == "skip"

    def _read(self, found: Mapping[str, str]) -> Written | None:
        unknown = set(found) - _FIELDS
        if unknown:
            raise InvalidExport(f"it has a {min(unknown)!r:.80}; was this made by a newer version?")
        value = documents.load_foreign(found["value"])
        if not isinstance(value, dict):
            raise InvalidExport("its value is not an object")
        namespace = self._namespace(json.loads(found["namespace"]))
        if namespace is None:
            return None
        given = json.loads(found.get("vectors", "[]"))
        expires_at = json.loads(found.get("expires_at", "null"))
        put = operations.written(
            namespace,
            json.loads(found["key"]),
            found["value"],
            [inputs.text(json.loads(found.get("searchable", '""')), "searchable")],
            json.loads(found.get("ttl", "null")),
        )
        return Written(
            put.memory_id,
            names.stored(put.namespace),
            put.key,
            put.value,
            words.searchable(put.texts),
            put.ttl,
            _moment(json.loads(found["created_at"])),
            _moment(json.loads(found["updated_at"])),
            None if expires_at is None else _moment(expires_at),
            vectors.checked(given, len(given))[: vectors.MAX_PER_MEMORY],
        )

    def _namespace(self, given: Any) -> Namespace | None:
        """Where a memory goes. That of an owner follows the owner; without one it stays out, for the key may
        be another person's here."""
        namespace = names.namespace(given)
        if namespace[0] != names.OWNER or len(namespace) < 2:
            return None if self.confined else namespace
        if self.owner is UNSET:
            return namespace
        if self.owner is None:
            return None
        return names.namespace((*names.owner_namespace(self.owner), *namespace[2:]))


def _renewed(memory: Written) -> Written:
    """The memory under another key."""
    key = new_id()
    memory_id = names.memory_id(names.parts_of(memory.namespace), key)
    return memory._replace(key=key, memory_id=memory_id)


def _moment(value: Any) -> datetime:
    return inputs.moment(datetime.fromisoformat(value), "A time")
