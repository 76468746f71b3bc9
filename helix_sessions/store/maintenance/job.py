"""The base of maintenance jobs: pages by key, a loop that can be stopped, a summary, errors per item."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.models.session_querysets import SessionQuerySet

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Summary = TypeVar("Summary", bound="DataclassInstance")
Item = TypeVar("Item")
Row = TypeVar("Row")

PAGE = 200


class Job(Generic[Summary]):
    """One run of a job: a loop over items that can be stopped between two of them, and its summary.

    After each item the loop sleeps `rest` times as long as the item took, so that it does not crowd out other
    work. `on_progress` gets the summary after each item, and `should_stop` is called before each.
    """

    def __init__(
        self,
        summary: Summary,
        log: logging.Logger | None = None,
        *,
        dry_run: bool = False,
        rest: float = 0.0,
        on_progress: Callable[[Summary], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> None:
        self.summary = summary
        self.dry_run = dry_run
        self.is_stopped = False
        self._log = log or logging.getLogger("helix_sessions")
        self._rest = rest
        self._on_progress = on_progress
        self._should_stop = should_stop

    def over(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, until there are no more or the job is stopped."""
        for item in items:
            if self._should_stop is not None and self._should_stop():
                self.is_stopped = True
                return
            began = time.monotonic()
            yield item
            if self._on_progress is not None:
                self._on_progress(self.summary)
            if self._rest:
                time.sleep(self._rest * (time.monotonic() - began))

    def count(self, **more: int) -> None:
        """Add to counts of the summary."""
        self.summary = replace(
            self.summary, **{name: getattr(self.summary, name) + number for name, number in more.items()}
        )

    @contextmanager
    def attempt(self, failure: str, *, ignore: type[Exception] | tuple[()] = ()) -> Iterator[None]:
        """Count and log an error in the block instead of raising it. What `ignore` names is no error."""
        try:
            yield
        except ignore:
            return
        except Exception as error:
            self.count(errors=1)
            report(self._log, failure, error)


def report(log: logging.Logger, failure: str, error: Exception) -> None:
    """Log an error by ids and codes. The text of a provider's or a driver's error may quote what people
    wrote, so only its type is logged, and the rest at level DEBUG."""
    if isinstance(error, HelixSessionsError):
        log.error("%s: %s (%s)", failure, error, error.code)
    else:
        log.error("%s: %s", failure, type(error).__name__)
        log.debug("%s", failure, exc_info=error)


def pages(page_after: Callable[[Row | None], list[Row]], size: int) -> Iterator[list[Row]]:
    """Pages, each after the last row of the one before. The last one is not full, and may be empty."""
    last = None
    while True:
        page = page_after(last)
        yield page
        if len(page) < size:
            return
        last = page[-1]


def pages_of_ids(rows: SessionQuerySet, size: int = PAGE, after: str = "") -> Iterator[list[str]]:
    """Pages of the ids of sessions, in the order of the ids."""
    ids: Any = rows.order_by("session_id").values_list("session_id", flat=True)

    def page_after(last: str | None) -> list[str]:
        return list(ids.filter(session_id__gt=after if last is None else last)[:size])

    return pages(page_after, size)


def ids_of(rows: SessionQuerySet, size: int = PAGE, after: str = "") -> Iterator[str]:
    """The ids of sessions, in their order, read in pages."""
    for page in pages_of_ids(rows, size, after):
        yield from page
