"""One test item for one rule, however many rows the rule is tried on.

`each` stands where `pytest.mark.parametrize` could: the test is called once for each row, and every call
finds the database as the fixtures left it. All rows are tried, and those that fail are named together.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from itertools import product
from typing import Any, NamedTuple

import pytest
from django.conf import settings
from django.core.cache import cache
from django.db import connection, transaction
from django.test import override_settings

MOST = 20
"""After so many failures the rest is not tried: something is wrong with all of them."""

committed = False
"""Whether the item that runs commits what it writes; set by `conftest.py`."""

Test = Callable[..., None]
Ids = Callable[[Any], str] | Iterable[object] | None


class Row(NamedTuple):
    """What the test is given, and what a failure calls it."""

    name: str
    values: Mapping[str, Any]


class Column(NamedTuple):
    """The rows of one `each`."""

    names: tuple[str, ...]
    rows: tuple[Row, ...]


def each(names: str | Iterable[str], rows: Iterable[Any], *, ids: Ids = None) -> Callable[[Test], Test]:
    """Call the test with each of the rows, as `pytest.mark.parametrize` does, in one item.

    A failure calls a row by its values, or as `ids` says: what it makes of the row, or one name for each.
    Several `each` are multiplied.
    """
    column = _column(names, rows, ids)

    def decorate(test: Test) -> Test:
        original, inner = getattr(test, "_each", (test, ()))
        columns = (column, *inner)
        taken = {name for one in columns for name in one.names}
        signature = inspect.signature(original)

        @wraps(original)
        def every_row(*instance: Any, **fixtures: Any) -> None:
            __tracebackhide__ = True
            _try_all(original, instance, fixtures, columns)

        kept = [given for name, given in signature.parameters.items() if name not in taken]
        every_row.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        every_row._each = original, columns  # type: ignore[attr-defined]
        return every_row

    return decorate


def _try_all(test: Test, instance: Any, fixtures: dict[str, Any], columns: tuple[Column, ...]) -> None:
    failed: list[tuple[str, BaseException]] = []
    count = skipped = 0
    for rows in product(*(column.rows for column in columns)):
        name = ", ".join(row.name for row in rows)
        given = {key: value for row in rows for key, value in row.values.items()}
        count += 1
        try:
            with _as_before(fixtures) as own:
                test(*instance, **own, **given)
        except pytest.skip.Exception:
            skipped += 1
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"row: {name}")
            failed.append((name, error))
            if len(failed) == MOST or "from pytest-timeout" in str(error):
                break
    assert count, "There are no rows."
    if len(failed) == 1:
        raise failed[0][1]
    if failed:
        listed = "\n".join(f"- {name}: {_summary(error)}" for name, error in failed)
        _, first = failed[0]
        raise AssertionError(f"{len(failed)} of {count} rows failed:\n{listed}") from first
    if skipped == count:
        pytest.skip("every row was skipped")


@contextmanager
def _as_before(fixtures: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The fixtures for one row; what it writes, caches, patches and sets is undone."""
    from tests.resets import Snapshot

    cache.clear()
    with ExitStack() as stack:
        if connection.in_atomic_block:
            stack.enter_context(rolled_back())
        elif committed:
            stack.callback(Snapshot().restore)
        own: dict[str, Any] = {}
        if "monkeypatch" in fixtures:
            own["monkeypatch"] = stack.enter_context(pytest.MonkeyPatch.context())
        if "settings" in fixtures:
            own["settings"] = _Settings(stack)
        yield {**fixtures, **own}


@contextmanager
def rolled_back() -> Iterator[None]:
    """Undo what the block writes."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


class _Settings:
    """What pytest-django's fixture of this name is for a whole item."""

    def __init__(self, stack: ExitStack) -> None:
        object.__setattr__(self, "_stack", stack)

    def __getattr__(self, name: str) -> Any:
        return getattr(settings, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._stack.enter_context(override_settings(**{name: value}))


def _column(names: str | Iterable[str], rows: Iterable[Any], ids: Ids) -> Column:
    split = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)
    given = list(rows)
    if callable(ids):
        labels = [ids(row) for row in given]
    elif ids is not None:
        labels = [str(label) for label in ids]
    else:
        labels = [_shown(row) if len(split) == 1 else "-".join(map(_shown, row)) for row in given]
    values = ([row] if len(split) == 1 else row for row in given)
    return Column(
        split,
        tuple(
            Row(label, dict(zip(split, row, strict=True))) for label, row in zip(labels, values, strict=True)
        ),
    )


def _shown(value: Any) -> str:
    if isinstance(value, type) or inspect.isfunction(value):
        return value.__name__
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:
        text = f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= 80 else f"{text[:77]}…"


def _summary(error: BaseException) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {' '.join(lines[:2])}"
