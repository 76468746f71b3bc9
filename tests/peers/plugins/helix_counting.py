"""Counts the tests of a peer that made one of our objects, and empties the database after each of them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections


class Counting:
    """Hooks of pytest, for a plugin to register. `made` says how many objects there were so far."""

    def __init__(self, what: str, made: Callable[[], int]) -> None:
        self._what = what
        self._made = made
        self._counted: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Each test leaves an empty database. One that makes nothing of ours is not counted."""
        before = self._made()
        result = yield
        if self._made() > before:
            self._counted.add(item.nodeid)
            call_command("flush", interactive=False, verbosity=0)
        connections.close_all()
        return result

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        found = {
            outcome: len({report.nodeid for report in terminalreporter.getreports(outcome)} & self._counted)
            for outcome in ("passed", "failed", "error", "xfailed", "xpassed")
        }
        left_out = len(terminalreporter.getreports("skipped"))
        said = ", ".join(f"{count} {outcome}" for outcome, count in found.items() if count)
        terminalreporter.write_line(f"With our {self._what}: {said}; {left_out} left out.")
