"""What can be done with memories, as checked values. Nothing here asks the database."""

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

from helix_sessions.exceptions import InvalidDocument, InvalidInput
from helix_sessions.messages import words
from helix_sessions.store.engine import inputs
from helix_sessions.store.memory import filters, names, vectors
from helix_sessions.store.memory.filters import Condition
from helix_sessions.store.memory.names import Namespace

MAX_OPERATIONS = 10_000
_LONGEST_TTL = timedelta(days=366 * 100).total_seconds()


class Put(NamedTuple):
    namespace: Namespace
    key: str
    memory_id: str
    value: str
    """The text of the document."""
    texts: tuple[str, ...]
    """What a search finds it by; each has a vector where there is an embedder."""
    ttl: float | None


class Get(NamedTuple):
    namespace: Namespace
    key: str
    memory_id: str
    refresh: bool = False
    """Whether its time begins anew."""


class Delete(NamedTuple):
    namespace: Namespace
    key: str
    memory_id: str


class Search(NamedTuple):
    prefix: Namespace
    query: str | None
    conditions: tuple[Condition, ...]
    limit: int
    offset: int
    refresh: bool = False


class ListNamespaces(NamedTuple):
    prefixes: tuple[Namespace, ...]
    """Patterns, all of which must fit."""
    suffixes: tuple[Namespace, ...]
    max_depth: int | None
    limit: int
    offset: int


Operation: TypeAlias = Put | Get | Delete | Search | ListNamespaces


def put(namespace: Any, key: Any, value: Any, *, ttl: Any = None, index: Any = None) -> Put:
    if not isinstance(value, Mapping):
        raise InvalidDocument(f"The value of a memory must be an object, not {type(value).__name__}.")
    text = inputs.mapping(value, "The value of a memory")
    return written(namespace, key, text, _texts(value, index), ttl)


def written(namespace: Any, key: Any, text: str, texts: Iterable[str], ttl: Any) -> Put:
    """A put whose document is written already, and whose texts are chosen."""
    place, name = names.namespace(namespace), names.key(key)
    return Put(place, name, names.memory_id(place, name), text, tuple(texts), _ttl(ttl))


def get(namespace: Any, key: Any, *, refresh: bool = False) -> Get:
    place, name = names.namespace(namespace), names.key(key)
    return Get(place, name, names.memory_id(place, name), refresh)


def delete(namespace: Any, key: Any) -> Delete:
    place, name = names.namespace(namespace), names.key(key)
    return Delete(place, name, names.memory_id(place, name))


def search(
    prefix: Any,
    *,
    query: Any = None,
    filter: Any = None,
    limit: Any = 10,
    offset: Any = 0,
    refresh: bool = False,
) -> Search:
    if query is not None and not isinstance(query, str):
        raise InvalidInput(f"query must be a string, not {type(query).__name__}.")
    return Search(
        names.prefix(prefix),
        query if query and query.strip() else None,
        filters.checked(filter),
        inputs.integer(limit, "limit"),
        inputs.integer(offset, "offset"),
        refresh,
    )


def list_namespaces(
    *, prefix: Any = None, suffix: Any = None, max_depth: Any = None, limit: Any = 100, offset: Any = 0
) -> ListNamespaces:
    prefixes, suffixes = ([] if pattern is None else [pattern] for pattern in (prefix, suffix))
    return listing(prefixes, suffixes, max_depth=max_depth, limit=limit, offset=offset)


def listing(
    prefixes: Iterable[Any], suffixes: Iterable[Any], *, max_depth: Any, limit: Any, offset: Any
) -> ListNamespaces:
    """A listing with any number of patterns."""
    return ListNamespaces(
        tuple(names.prefix(pattern) for pattern in prefixes),
        tuple(names.prefix(pattern, "The suffix") for pattern in suffixes),
        inputs.optional_integer(max_depth, "max_depth", minimum=1),
        inputs.integer(limit, "limit"),
        inputs.integer(offset, "offset"),
    )


_BY_NAME: dict[str, Callable[..., Operation]] = {
    "put": put,
    "get": get,
    "delete": delete,
    "search": search,
    "list_namespaces": list_namespaces,
}


def of_batch(values: Any) -> list[Operation]:
    """The operations of a batch: objects with `op` and the arguments of the call of that name."""
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise InvalidInput("operations must be a list of objects.")
    found = [_operation(value) for value in values]
    if len(found) > MAX_OPERATIONS:
        raise InvalidInput(f"A batch has {len(found):,} operations; {MAX_OPERATIONS:,} are allowed.")
    return found


def _operation(value: Any) -> Operation:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"An operation must be an object, not {type(value).__name__}.")
    arguments = dict(value)
    name = inputs.choice(arguments.pop("op", None), tuple(_BY_NAME), "op")
    if "refresh" in arguments:
        raise InvalidInput(f"{name} takes no refresh.")
    try:
        return _BY_NAME[name](**arguments)
    except TypeError as error:
        raise InvalidInput(f"{name}: {error}.") from None


def _texts(value: Mapping[str, Any], index: Any) -> list[str]:
    """What of a value is found by a search: all its texts together, or those of each key by themselves."""
    if index is None:
        return _joined(value)
    if index is False:
        return []
    if isinstance(index, str | Mapping) or not isinstance(index, Iterable):
        raise InvalidInput("index must be None, False or a list of keys of the value.")
    keys = list(dict.fromkeys(inputs.text(key, "A key of index") for key in index))
    if len(keys) > vectors.MAX_PER_MEMORY:
        raise InvalidInput(f"index has {len(keys)} keys; {vectors.MAX_PER_MEMORY} are allowed.")
    return [text for key in keys if key in value for text in _joined(value[key])]


def _joined(value: Any) -> list[str]:
    text = "\n".join(words.texts_in(value))
    return [text] if text.strip() else []


def _ttl(value: Any) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not 0 < value <= _LONGEST_TTL:
        raise InvalidInput("ttl must be a positive number of seconds.")
    return float(value)


def texts_to_embed(operations: Iterable[Operation]) -> list[str]:
    """The texts of operations that need vectors, in their order."""
    found: list[str] = []
    for one in operations:
        if isinstance(one, Put):
            found.extend(one.texts)
        elif isinstance(one, Search) and one.query is not None:
            found.append(one.query)
    return found
