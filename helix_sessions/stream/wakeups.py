"""Notifies the readers after a commit: one wake-up for each session it wrote to."""

import logging

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.stream.hub import hub

logger = logging.getLogger("helix_sessions.stream")


class Wakeups:
    """The sessions that a transaction wrote to. Called after its commit, outside of it."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._sessions: dict[str, int | None] = {}

    def add(self, session_id: str, first_seq: int | None) -> None:
        self._sessions.setdefault(session_id, first_seq)

    def __call__(self) -> None:
        for session_id, first_seq in self._sessions.items():
            _announce(self._alias, session_id, first_seq)


def notify_readers_after_commit(
    connection: BaseDatabaseWrapper, session_id: str, first_seq: int | None
) -> None:
    """Notify the session's readers when the transaction commits; `first_seq` is its first new event.

    A wake-up already waiting serves this write too. It cannot be undone without this write: whichever
    savepoint it waits for, this write is inside of it.
    """
    if connection.in_atomic_block:
        waiting = connection.run_on_commit
        last = waiting[-1][1] if waiting else None
        if not isinstance(last, Wakeups):
            last = Wakeups(connection.alias)
            connection.on_commit(last)
        last.add(session_id, first_seq)
    else:
        _announce(connection.alias, session_id, first_seq)


def _announce(alias: str, session_id: str, first_seq: int | None) -> None:
    """Wake a session's readers. The write is committed by now: its caller is not told of a failure."""
    try:
        hub.announce(alias, session_id, first_seq)
    except Exception:
        logger.exception("Readers of session %r could not be woken; they poll.", session_id)
