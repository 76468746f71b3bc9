"""Telling the workers that a session has something to do.

The store does not know the runners. They wait for a poke under `RUNNERS`, which goes the way of live events:
after the commit, and many in one. `HELIX_SESSIONS["WAKER"]` names a function that is called after the commit,
too, and what it fails at is logged: the fact is in the row, and a worker finds it.
"""

import logging
from collections.abc import Callable

from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.module_loading import import_string

from helix_sessions.conf import conf
from helix_sessions.store.engine.connection import after_commit
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.stream.hub import hub

RUNNERS = "\trunners"
"""What workers watch in the hub, in place of a session: no id of a session holds a control character."""

_log = logging.getLogger("helix_sessions.runner_notices")


def notify_runners(work: UnitOfWork) -> None:
    """Tell the runners of the locked session, once what is written has committed."""
    session = work.session
    work.notices["runners"] = _notice(work.connection.alias, session.session_id, session.agent_type)


def notify_runners_after_commit(connection: BaseDatabaseWrapper, session_id: str, agent_type: str) -> None:
    """Tell the runners of a session, once the transaction around this has committed."""
    after_commit(connection, _notice(connection.alias, session_id, agent_type))


def _notice(alias: str, session_id: str, agent_type: str) -> Callable[[], None]:
    def notify() -> None:
        hub.announce(alias, RUNNERS, None)
        if not conf.WAKER:
            return
        try:
            import_string(conf.WAKER)(session_id, agent_type=agent_type, using=alias)
        except Exception:
            _log.exception("Session %r could not be woken; a worker will find it.", session_id)

    return notify
