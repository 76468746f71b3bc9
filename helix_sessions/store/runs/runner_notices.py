"""Telling whoever runs sessions that one has something to do.

The store does not know the runners. `HELIX_SESSIONS["WAKER"]` names a function that does; it is called after
the commit, and what it fails at is logged: the input is durable, and a sweep finds it.
"""

import logging

from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.module_loading import import_string

from helix_sessions.conf import conf
from helix_sessions.store.engine.connection import after_commit

_log = logging.getLogger("helix_sessions.waking")


def wake_after_commit(connection: BaseDatabaseWrapper, session_id: str, agent_type: str) -> None:
    """Call the waker with the session, once the transaction around this has committed."""
    if not conf.WAKER:
        return
    alias = connection.alias

    def wake() -> None:
        try:
            import_string(conf.WAKER)(session_id, agent_type=agent_type, using=alias)
        except Exception:
            _log.exception("Session %r could not be woken; a sweep will find it.", session_id)

    after_commit(connection, wake)
