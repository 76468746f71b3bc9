"""Instructions that operators write in the admin."""

from helix_sessions.runtime.sources.texts import TextSource
from helix_sessions.store import SessionStore
from helix_sessions.types import JSON, SessionState


class StoredInstructions(TextSource):
    """The instructions of the session's agent type, from the database; without any, those of `*`."""

    def __init__(self, key: str = "instructions", *, store: SessionStore | None = None) -> None:
        super().__init__(key)
        self.store = store or SessionStore()

    def observe(self, session: SessionState) -> JSON:
        own = self.store.get_instructions(session.agent_type)
        return own if own is not None else self.store.get_instructions("*")
