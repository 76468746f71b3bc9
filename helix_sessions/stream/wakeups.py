"""What a commit does for those who wait: one wake-up for each session it wrote to."""

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.stream.hub import hub


class Wakeups:
    """The sessions a transaction wrote to. Called after its commit, outside of it."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._sessions: dict[str, int | None] = {}

    def add(self, session_id: str, first_seq: int | None) -> None:
        self._sessions.setdefault(session_id, first_seq)

    def __call__(self) -> None:
        for session_id, first_seq in self._sessions.items():
            hub.announce(self._alias, session_id, first_seq)


def wake_after_commit(connection: BaseDatabaseWrapper, session_id: str, first_seq: int | None) -> None:
    """Wake the session's readers when the transaction commits; `first_seq` is its first new event.

    A wake-up already waiting serves this write too. It cannot be undone without this write: whichever
    savepoint it waits for, this write is inside of it.
    """
    if connection.in_atomic_block:
        waiting = connection.run_on_commit
        last = waiting[-1][1] if waiting else None
        if not isinstance(last, Wakeups):
            last = Wakeups(connection.alias)
            connection.on_commit(last, robust=True)
        last.add(session_id, first_seq)
    else:
        hub.announce(connection.alias, session_id, first_seq)
