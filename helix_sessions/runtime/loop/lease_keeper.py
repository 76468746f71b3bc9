"""Keeps what this process drives: leases are renewed and requests to stop are noticed while agents work.

One thread serves all sessions of the process. It lives as long as something is driven.
"""

import logging
import os
import threading
import time
from dataclasses import dataclass, field

from django.db import connections

from helix_sessions.exceptions import Fenced, SessionNotFound
from helix_sessions.runtime.loop.stops import Stop
from helix_sessions.store import SessionStore
from helix_sessions.types import Lease, RunOutcome

_log = logging.getLogger("helix_sessions.runner")

LOOK_SECONDS = 0.5
"""How often requests to stop are looked for: one query for all sessions of the process."""


@dataclass(eq=False)
class Driven:
    """A session that this process drives."""

    store: SessionStore
    session_id: str
    lease_ttl: float
    stop: Stop = field(default_factory=Stop)
    done: threading.Event = field(default_factory=threading.Event)
    outcome: RunOutcome | None = None
    lease: Lease | None = None
    lost: bool = False
    """Another owner has the session; nothing of this one's can be written any more."""
    leaving: bool = False
    """This process is about to end: at the next boundary somebody else goes on."""
    renew_at: float = 0.0

    @property
    def place(self) -> tuple[str, str]:
        return self.store.using, self.session_id


class HandedOver(Exception):
    """This process ends, and has left the session to the next that looks for it."""


class Keeper:
    """What this process drives at the moment."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._driven: dict[tuple[str, str], Driven] = {}
        self._kept: set[Driven] = set()
        self._thread: threading.Thread | None = None

    def enter(self, driven: Driven) -> Driven:
        """Begin to drive a session, unless this process does already; who drives it now."""
        with self._changed:
            if os.getpid() != self._pid:  # after a fork: nothing of it is ours, and the thread is not there
                self._pid, self._driven, self._kept, self._thread = os.getpid(), {}, set(), None
            return self._driven.setdefault(driven.place, driven)

    def find(self, using: str, session_id: str) -> Driven | None:
        """Who drives a session in this process."""
        with self._changed:
            return self._driven.get((using, session_id)) if os.getpid() == self._pid else None

    def leave(self, driven: Driven, outcome: RunOutcome | None) -> None:
        """The end of `enter`."""
        with self._changed:
            self._driven.pop(driven.place, None)
        driven.outcome = outcome
        driven.done.set()

    def leave_all(self) -> None:
        """Hand every session over at its next boundary."""
        with self._changed:
            for driven in self._driven.values():
                driven.leaving = True

    def keep(self, driven: Driven, lease: Lease) -> None:
        """Renew the lease from now on."""
        driven.lease = lease
        driven.renew_at = time.monotonic() + driven.lease_ttl / 3
        with self._changed:
            self._kept.add(driven)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="helix-keeper", daemon=True)
                self._thread.start()

    def let_go(self, driven: Driven) -> None:
        """Renew it no more."""
        with self._changed:
            self._kept.discard(driven)
            self._changed.notify_all()

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    shortest = min((driven.lease_ttl / 3 for driven in self._kept), default=LOOK_SECONDS)
                    self._changed.wait_for(lambda: not self._kept, min(LOOK_SECONDS, shortest))
                    kept = list(self._kept)
                    if not kept:
                        self._thread = None
                        return
                self._renew(kept)
                self._look(kept)
        finally:
            connections.close_all()
            with self._changed:
                if self._thread is threading.current_thread():  # it died, and the next keep needs another
                    self._thread = None

    def _renew(self, kept: list[Driven]) -> None:
        for driven in kept:
            if driven.lease is None or driven.lost or time.monotonic() < driven.renew_at:
                continue
            try:
                driven.lease = driven.store.renew_lease(driven.lease, driven.lease_ttl)
                driven.renew_at = time.monotonic() + driven.lease_ttl / 3
            except Fenced:
                if driven in self._kept:
                    driven.lost = True
                    driven.stop.set()
            except SessionNotFound:
                pass  # deleted, or not committed yet: whoever writes to it will know
            except Exception:
                _log.exception("The lease of session %r could not be renewed.", driven.session_id)
                connections.close_all()

    def _look(self, kept: list[Driven]) -> None:
        for using in {driven.store.using for driven in kept}:
            here = {driven.session_id: driven for driven in kept if driven.store.using == using}
            try:
                rows = SessionStore(using).query_sessions().interrupted_by_request()
                for key in rows.filter(session_id__in=list(here)).values_list("session_id", flat=True):
                    here[key].stop.set()
            except Exception:
                _log.exception("Requests to stop could not be looked for.")
                connections.close_all()


keeper = Keeper()
