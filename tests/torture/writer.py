"""A writer: the only one of its session, making random calls and believing only what was acknowledged."""

import json
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from django.db import InterfaceError, OperationalError, connection

from helix_sessions.exceptions import StoreUnavailable
from helix_sessions.store import SessionStore
from tests.torture.calls import CALLS, Intent, after, owned, perform
from tests.torture.expected import Expected, assert_healthy, observed, wait_until_gone

CALLS_PER_SESSION = 50
LOST = (OperationalError, InterfaceError, StoreUnavailable)
"""What a caller sees when the connection goes, and it does not know whether its call took place; and while
there is none."""

Figures = Counter[str]


class Writer:
    """What it believes, the call whose outcome it does not know, and where it writes both down."""

    def __init__(self, name: str, choice: random.Random, journal: Path | None = None) -> None:
        self.name = name
        self.store = SessionStore()
        self.choice = choice
        self.number = 0
        self.session = ""
        self.expected = Expected()
        self.unknown: Intent | None = None
        self.backend: int | None = None
        self.figures: Figures = Counter()
        self._journal = None
        if journal is not None:
            self._remember(journal)
            self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def close(self) -> None:
        if self._journal is not None:
            os.close(self._journal)

    # What is known

    def _remember(self, journal: Path) -> None:
        """Go on where the process that wrote this journal was killed."""
        text = journal.read_text() if journal.exists() else ""
        for line in text.splitlines(keepends=True):
            if not line.endswith("\n"):
                break  # cut off by the kill, in the middle of writing it down
            entry = json.loads(line)
            if "backend" in entry:
                self.backend = entry["backend"]
            elif "call" in entry:
                self._intend(entry)
            elif "again" in entry:
                self.figures["of these had taken place"] += entry["took place"]
            else:
                self._acknowledge(settled="settled" in entry)

    def _write_down(self, entry: dict[str, Any]) -> None:
        if self._journal is not None:
            os.write(self._journal, json.dumps(entry).encode() + b"\n")

    def _intend(self, intent: Intent) -> None:
        if intent["session"] != self.session:
            self.session, self.expected = intent["session"], Expected()
        self.number = intent["n"]
        self.unknown = intent

    def _acknowledge(self, *, settled: bool) -> None:
        assert self.unknown is not None
        self.expected = after(self.expected, self.unknown)
        self.unknown = None
        self.figures["calls"] += 1
        self.figures["settled"] += settled

    # What is done

    def note_backend(self) -> None:
        """Write down which server process works for this one."""
        if connection.vendor == "postgresql":
            connection.ensure_connection()
            self.backend = connection.connection.info.backend_pid
            self._write_down({"backend": self.backend})

    def go(self) -> None:
        """Make one call. When its outcome stays unknown, `unknown` says so."""
        intent = self._choose()
        self._write_down(intent)
        self._intend(intent)
        perform(self.store, intent, self.expected)
        self._write_down({"done": intent["n"]})
        self._acknowledge(settled=False)

    def settle(self, took_place: bool) -> None:
        """Make the call whose outcome is unknown once more, as it was; `check` saw whether it took place."""
        if self.unknown is not None:
            self._write_down({"again": self.unknown["n"], "took place": took_place})
            perform(self.store, self.unknown, self.expected, again=True)
            self._write_down({"settled": self.unknown["n"]})
            self._acknowledge(settled=True)
            self.figures["of these had taken place"] += took_place

    def check(self) -> bool:
        """Whatever was acknowledged is there, and the unknown call is there whole or not at all: which?"""
        if not self.session:
            return False
        found = observed(self.store, self.session)
        wrong = self.expected.differences(found)
        took_place = False
        if wrong and self.unknown is not None:
            took_place = not after(self.expected, self.unknown).differences(found)
        assert not wrong or took_place, f"{self.session}, {self.unknown}: expected and found {wrong}"
        if found.exists:
            assert_healthy(self.store, self.session, *found.branches)
        return took_place

    def go_on_after_losing_the_connection(self) -> None:
        """Connect again as soon as that is possible, look, settle what is unknown, look again."""
        while True:
            connection.close()
            try:
                wait_until_gone(self.backend)
                self.note_backend()
                self.settle(self.check())
                assert not self.check()
            except LOST:
                self.figures["lost again"] += 1
                time.sleep(0.01)
            else:
                return

    def _choose(self) -> Intent:
        self.number += 1
        fresh = self.number % CALLS_PER_SESSION == 1
        session = f"{self.name}-{self.number}" if fresh else self.session
        expected = Expected() if fresh else self.expected
        possible = [name for name, call in CALLS.items() if call.possible(expected)]
        name = "create_session" if fresh else self.choice.choice(possible)
        intent = {"n": self.number, "call": name, "session": session, "version": expected.version}
        intent |= {"from": expected.status, "to": self.choice.choice(["active", "paused"])}
        intent["run"] = expected.running
        intent["waits"] = next(iter(expected.waiting), None)
        intent["branch"] = next(iter(expected.branches), None)
        if keep := [at for at, [role, _] in enumerate(expected.messages) if role != "tool"]:
            intent["keep"] = self.choice.choice(keep)  # a call is not parted from its result
        if CALLS[name].needs_state:
            intent["state"] = owned(self.store.load_state(session))
        return intent
