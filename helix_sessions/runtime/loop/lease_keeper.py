"""Keeps what this process drives: leases are renewed, and requests to stop and decisions of others are
noticed while agents work.

One thread serves all sessions of the process. It lives as long as something is driven, or a worker drives one
session after the other. Where commits of other processes are announced it looks when one is, and otherwise
now and then.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connections

from helix_sessions.exceptions import Fenced, SessionNotFound
from helix_sessions.models import Session
from helix_sessions.runtime.loop.stops import Stop
from helix_sessions.store import SessionStore
from helix_sessions.stream.hub import hub
from helix_sessions.types import Fragment, Lease, RunOutcome

_log = logging.getLogger("helix_sessions.runner")

LOOK_SECONDS = 0.5
"""How often requests to stop are looked for: one query for all sessions of the process."""

driving: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("helix_sessions_driving", default=())
"""The sessions around the code that is running: a tool cannot wait for the session it is a tool of."""


@dataclass(eq=False)
class OwnedSession:
    """A session that this process drives."""

    store: SessionStore
    session_id: str
    lease_ttl: float
    stop: Stop = field(default_factory=Stop)
    done: threading.Event = field(default_factory=threading.Event)
    outcome: RunOutcome | None = None
    lease: Lease | None = None
    lost: bool = False
    """Another owner has the session, or its run was ended; this driver can write nothing any more."""
    leaving: bool = False
    """This process is about to end: at the next boundary another worker goes on."""
    knocked: bool = False
    """A caller in this process asked for a look while it was driven."""
    stale_request: datetime | None = None
    """A request to stop that was made before this process took the session: it is not for this one."""
    closing: Callable[[], bool] = bool
    renew_at: float = 0.0
    noticed: Callable[[], None] | None = None

    @property
    def place(self) -> tuple[str, str]:
        return self.store.using, self.session_id

    def poke(self, first_seq: int | None) -> None:
        """The session was written; by its driver, unless the code that did it is not driven itself."""
        if self.noticed is not None and not (first_seq is not None and self.place in driving.get()):
            self.noticed()

    def offer(self, fragment: Fragment) -> None:
        """Fragments are for readers."""

    def detach(self) -> None:
        """Nothing is held for readers."""


class LeaseKeeper:
    """What this process drives at the moment."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._driven: dict[tuple[str, str], OwnedSession] = {}
        self._kept: set[OwnedSession] = set()
        self._stays = 0
        """How many callers drive one session after the other."""
        self._noticed = False
        self._thread: threading.Thread | None = None

    def enter(self, owned: OwnedSession, *, knocks: bool = False) -> OwnedSession:
        """Begin to drive a session, unless this process does already; who drives it now. With `knocks`
        that one looks once more when it has ended."""
        with self._changed:
            if os.getpid() != self._pid:  # after a fork: nothing of it is ours, and the thread is not there
                self._pid, self._driven, self._kept, self._thread = os.getpid(), {}, set(), None
                self._stays = 0
            other = self._driven.setdefault(owned.place, owned)
            other.knocked |= knocks and other is not owned
            return other

    def find(self, using: str, session_id: str) -> OwnedSession | None:
        """Who drives a session in this process."""
        with self._changed:
            return self._driven.get((using, session_id)) if os.getpid() == self._pid else None

    def leave(self, owned: OwnedSession, outcome: RunOutcome | None) -> bool:
        """The end of `enter`; whether a caller asked for a look meanwhile."""
        with self._changed:
            self._driven.pop(owned.place, None)
            knocked = owned.knocked
        owned.outcome = outcome
        owned.done.set()
        return knocked

    def leave_all(self) -> None:
        """Hand every session over at its next boundary."""
        with self._changed:
            for owned in self._driven.values():
                owned.leaving = True

    def keep(self, owned: OwnedSession, lease: Lease) -> None:
        """Renew the lease from now on, and notice what others do."""
        owned.lease = lease
        owned.renew_at = time.monotonic() + owned.lease_ttl / 3
        owned.noticed = self._notice
        with self._changed:
            self._kept.add(owned)
            if owned.lease_ttl / 3 < LOOK_SECONDS:  # before the thread would look
                self._noticed = True
                self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="helix-keeper", daemon=True)
                self._thread.start()
        hub.watch(owned.place, owned)

    def let_go(self, owned: OwnedSession) -> None:
        """Renew it no more."""
        hub.unwatch(owned.place, owned)
        owned.noticed = None
        with self._changed:
            self._kept.discard(owned)
            self._let_thread_end()

    @contextmanager
    def staying(self) -> Iterator[None]:
        """Keep the thread from one session to the next: making it, and its connection, costs as much as
        driving a session."""
        with self._changed:
            self._stays += 1
        try:
            yield
        finally:
            with self._changed:
                self._stays = max(0, self._stays - 1)
                self._let_thread_end()

    @property
    def _is_needed(self) -> bool:
        return bool(self._kept or self._stays)

    def _let_thread_end(self) -> None:
        if not self._is_needed:
            self._changed.notify_all()

    def _notice(self) -> None:
        with self._changed:
            self._noticed = True
            self._changed.notify_all()

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    shortest = min((owned.lease_ttl / 3 for owned in self._kept), default=LOOK_SECONDS)
                    self._changed.wait_for(
                        lambda: self._noticed or not self._is_needed, min(LOOK_SECONDS, shortest)
                    )
                    kept, self._noticed = list(self._kept), False
                    if not self._is_needed:
                        self._thread = None
                        return
                if not kept:
                    connections.close_all()  # it may be long
                    continue
                self._renew(kept)
                self._look(kept)
        finally:
            connections.close_all()
            with self._changed:
                if self._thread is threading.current_thread():  # it died, and the next keep needs another
                    self._thread = None

    def _renew(self, kept: list[OwnedSession]) -> None:
        for owned in kept:
            if owned.lease is None or owned.lost or time.monotonic() < owned.renew_at:
                continue
            try:
                owned.lease = owned.store.renew_lease(owned.lease, owned.lease_ttl)
                owned.renew_at = time.monotonic() + owned.lease_ttl / 3
            except Fenced:
                self._lose(owned)
            except SessionNotFound:
                pass  # deleted, or not committed yet: its next writer finds out
            except Exception:
                _log.exception("The lease of session %r could not be renewed.", owned.session_id)
                connections.close_all()

    def _lose(self, owned: OwnedSession) -> None:
        if owned in self._kept:
            owned.lost = True
            owned.stop.set(at_once=True)

    def _look(self, kept: list[OwnedSession]) -> None:
        for using in {owned.store.using for owned in kept}:
            here = {owned.session_id: owned for owned in kept if owned.store.using == using}
            try:
                for key, *found in _rows(using, list(here)):
                    self._see(here[key], *found)
            except Exception:
                _log.exception("Requests to stop could not be looked for.")
                connections.close_all()

    def _see(self, owned: OwnedSession, fence: int, token: str | None, asked: Any) -> None:
        lease = owned.lease
        if lease is not None and (lease.fence, lease.token) != (fence, token):
            self._lose(owned)
        elif asked not in (None, owned.stale_request):
            owned.stop.set()


def _rows(using: str, keys: list[str]) -> Any:
    rows = Session.objects.using(using).filter(session_id__in=keys)
    return rows.values_list("session_id", "fence", "lease_token", "interrupt_requested_at")


keeper = LeaseKeeper()
