"""Which sessions go before others. An input may be more or less urgent than its session; that holds until the
session comes to rest."""

from helix_sessions.store.engine.unit_of_work import UnitOfWork


def admit(work: UnitOfWork, priority: int | None) -> None:
    """The locked session is about to be given an input of this priority, by default its own. Work that it has
    already keeps what it has."""
    session = work.session
    wanted = session.base_priority if priority is None else priority
    at_rest = session.run_id is None and session.runnable_at is None and not session.pending_inputs
    _set(work, wanted if at_rest else max(session.priority, wanted))


def rest(work: UnitOfWork) -> None:
    """The locked session has nothing to do any more."""
    _set(work, work.session.base_priority)


def _set(work: UnitOfWork, priority: int) -> None:
    if work.session.priority != priority:
        work.change(priority=priority)
