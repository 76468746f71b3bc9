"""Sessions that are created when they are first needed."""

from typing import Any

from helix_sessions.exceptions import SessionExists, SessionNotFound
from helix_sessions.store.events import Events
from helix_sessions.store.states import States
from helix_sessions.types import SessionState


class Ensured(States, Events):
    """Sessions, there or not."""

    def ensure_session(
        self, session_id: str | None = None, *, agent_type: str, **fields: Any
    ) -> SessionState:
        """The session with this id as it is now, whatever the fields; created with them when there is none.

        `fields` are those of `create_session`.
        """
        while session_id is not None:  # whoever else creates or deletes it in between
            try:
                return self.load_state(session_id)
            except SessionNotFound:
                pass
            try:
                return self.create_session(session_id, agent_type=agent_type, **fields)
            except SessionExists:
                self._refuse_if_taken(session_id)
        return self.create_session(None, agent_type=agent_type, **fields)
