"""Filters of a search: conditions on the keys of a value, checked, and what they mean.

The same meaning on every database: a key that is missing counts as null; numbers are compared with numbers,
strings with strings, by code points; `true` is not 1.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidInput
from helix_sessions.store.engine import inputs

OPERATORS = {"$eq": "=", "$ne": "<>", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
"""Each with what it is in SQL."""

MAX_CONDITIONS = 64


class Condition(NamedTuple):
    """What must hold for the value under a key."""

    key: str
    operator: str
    operand: Any


def checked(value: Any) -> tuple[Condition, ...]:
    """The conditions of a filter, all of which must hold."""
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise InvalidInput("filter must be an object of conditions by key.")
    documents.check(dict(value))
    found = tuple(each for key, wanted in value.items() for each in _conditions(key, wanted))
    if len(found) > MAX_CONDITIONS:
        raise InvalidInput(f"filter has {len(found)} conditions; {MAX_CONDITIONS} are allowed.")
    return found


def _conditions(key: str, wanted: Any) -> list[Condition]:
    if not (isinstance(wanted, Mapping) and any(str(name).startswith("$") for name in wanted)):
        return [Condition(key, "$eq", wanted)]
    for operator, operand in wanted.items():
        if operator not in OPERATORS:
            raise InvalidInput(f"filter does not know the operator {inputs.shown(operator)}.")
        if operator not in ("$eq", "$ne") and _kind(operand) is None:
            raise InvalidInput(f"{operator} compares with a number or a string.")
    return [Condition(key, operator, operand) for operator, operand in wanted.items()]


def holds(conditions: tuple[Condition, ...], value: Mapping[str, Any]) -> bool:
    """Whether a value fits."""
    return all(_holds(value.get(one.key), one.operator, one.operand) for one in conditions)


def _holds(found: Any, operator: str, operand: Any) -> bool:
    if operator == "$eq":
        return equal(found, operand)
    if operator == "$ne":
        return not equal(found, operand)
    if _kind(found) is not _kind(operand):
        return False
    if operator in ("$gt", "$gte"):
        return bool(found > operand or (operator == "$gte" and found == operand))
    return bool(found < operand or (operator == "$lte" and found == operand))


def equal(one: Any, other: Any) -> bool:
    """Whether two documents are the same: the order of keys and the form of numbers aside."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def _kind(value: Any) -> str | None:
    if isinstance(value, bool):
        return None
    return "number" if isinstance(value, int | float) else "string" if isinstance(value, str) else None


def written(conditions: tuple[Condition, ...]) -> str:
    """Conditions as one text, for a function of the database."""
    return documents.write([list(one) for one in conditions])


def holds_written(text: str, value: str) -> bool:
    """`holds`, of texts."""
    return holds(tuple(Condition(*one) for one in documents.load(text)), documents.load(value))
