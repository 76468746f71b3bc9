"""A workspace provider in memory."""

from collections.abc import Callable, Iterable

from helix_sessions.workspaces import Workspace


class Memory:
    """What the provider holds, and what happens when it is called."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.snapshots: dict[str, list[str]] = {}
        self.broken: set[str] = set()
        self.before_delete: Callable[[Workspace], object] = lambda workspace: None


MEMORY = Memory()


class MemoryWorkspaces:
    """Fails for the sessions in `MEMORY.broken`."""

    def snapshot_list(self, session: Workspace) -> Iterable[str]:
        if session.session_id in MEMORY.broken:
            raise ConnectionError("secret words of a provider")
        return list(MEMORY.snapshots.get(session.session_id, ()))

    def snapshot_delete(self, session: Workspace, snapshot_id: str) -> None:
        MEMORY.before_delete(session)
        held = MEMORY.snapshots.get(session.session_id, [])
        if snapshot_id in held:
            held.remove(snapshot_id)
