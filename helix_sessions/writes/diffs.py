"""The writes that turn one document into another."""

import marshal
from collections.abc import Iterator
from itertools import islice, takewhile
from math import copysign
from typing import Any, TypeAlias

from helix_sessions.writes.steps import Path, Write

Pair: TypeAlias = tuple[Path, Any, Any]

# Down to here whole branches are compared first; doing so at every depth would cost the square of it.
_SHORTCUT_DEPTH = 8

# Up to so many edits of a list are kept as edits, however short the list.
_FEW_EDITS = 4


def diff(old: dict[str, Any], new: dict[str, Any]) -> list[Write]:
    """Writes such that `apply_writes(old, diff(old, new))` is `new` exactly; none when they are the same.

    Exactly: `1`, `1.0` and `true` differ, and so do two orders of the same keys. The values in the writes are
    those of `new`, not copies. Time grows with the size of the documents; the writes need not be the fewest.
    """
    writes: list[Write] = []
    pairs: list[Pair] = [([], old, new)]
    while pairs:
        path, before, after = pairs.pop()
        if before is after or (0 < len(path) <= _SHORTCUT_DEPTH and _same(before, after)):
            continue
        if isinstance(after, dict):
            found, inner = _diff_objects(path, before, after)
        else:
            found, inner = _diff_lists(path, before, after)
        writes += found
        pairs += reversed(inner)
    return writes


def _diff_objects(path: Path, old: dict[str, Any], new: dict[str, Any]) -> tuple[list[Write], list[Pair]]:
    kept = _kept_keys(old, new)
    if not kept:
        return ([_set(path, new)] if old or new else []), []
    writes, inner = [], []
    for key in kept:
        if _alike(old[key], new[key]):
            inner.append(([*path, key], old[key], new[key]))
        elif not _same_scalar(old[key], new[key]):
            writes.append(_set([*path, key], new[key]))
    writes += [{"op": "delete", "path": [*path, key]} for key in old if key not in kept]
    writes += [_set([*path, key], new[key]) for key in islice(new, len(kept), None)]
    return writes, inner


def _kept_keys(old: dict[str, Any], new: dict[str, Any]) -> dict[str, None]:
    """The keys that can stay where they are.

    A key that is set anew goes to the end, so these are the first keys of `new`, as many as follow one
    another in `old` too. All others are deleted and, if they are in `new`, set again.
    """
    kept: dict[str, None] = {}
    in_old = iter(old)
    for key in new:
        if key not in old or key not in in_old:  # the second looks on from the last key found
            break
        kept[key] = None
    return kept


def _diff_lists(path: Path, old: list[Any], new: list[Any]) -> tuple[list[Write], list[Pair]]:
    start = tail = 0
    common = min(len(old), len(new))
    if len(old) != len(new) and len(path) <= _SHORTCUT_DEPTH:
        start = _count_same(zip(old, new, strict=False))
        tail = _count_same(islice(zip(reversed(old), reversed(new), strict=False), common - start))
    # Pairs are compared in place; what one list has more lies behind them, before the common tail.
    paired = common - tail
    writes, inner = [], []
    for index in range(start, paired):
        if _alike(old[index], new[index]):
            inner.append(([*path, index], old[index], new[index]))
        elif not _same_scalar(old[index], new[index]):
            writes.append(_set([*path, index], new[index]))
    extra = list(new[paired : len(new) - tail])
    if extra and not tail:
        writes.append({"op": "append", "path": path, "values": extra})
    else:
        writes += [
            {"op": "insert", "path": [*path, paired + offset], "value": value}
            for offset, value in enumerate(extra)
        ]
    writes += [{"op": "delete", "path": [*path, paired]} for _ in range(len(old) - tail - paired)]
    if len(writes) > max(_FEW_EDITS, len(new) // 2):
        return [_set(path, new)], []
    return writes, inner


def _set(path: Path, value: Any) -> Write:
    return {"op": "set", "path": path, "value": value}


def _alike(old: Any, new: Any) -> bool:
    """Whether both are objects, or both lists."""
    if isinstance(old, dict):
        return isinstance(new, dict)
    return isinstance(old, list) and isinstance(new, list | tuple)


def _same_scalar(old: Any, new: Any) -> bool:
    if type(old) is not type(new) or isinstance(old, dict | list | tuple):
        return False
    if isinstance(old, float) and copysign(1, old) != copysign(1, new):
        return False
    return bool(old == new)


def _count_same(pairs: Iterator[tuple[Any, Any]]) -> int:
    """How many pairs at the beginning hold the same value."""
    return sum(1 for _ in takewhile(lambda pair: _same(*pair), pairs))


def _same(old: Any, new: Any) -> bool:
    """Whether both are known to be the same in value, type and order of keys; `False` may mean not known.

    Version 2 of the marshal format writes equal bytes for such values alone, far faster than a walk.
    """
    try:
        return marshal.dumps(old, 2) == marshal.dumps(new, 2)
    except ValueError:
        return False
