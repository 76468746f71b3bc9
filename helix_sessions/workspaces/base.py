"""The workspace of a session, and the interface of a provider of snapshots."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A session's workspace, as a provider sees it."""

    session_id: str
    agent_type: str
    ref: dict[str, Any]
    """The session's `workspace_ref`: `{"provider_id": "...", ...}`. All but the provider's id belongs to the
    provider. The author of the session wrote it, so a provider must not trust it."""


class WorkspaceProvider(Protocol):
    """A provider of snapshots. Calls may be repeated, also by two processes at once."""

    def snapshot_list(self, session: Workspace) -> Iterable[str]:
        """The ids of all snapshots of this session's workspace."""
        ...

    def snapshot_delete(self, session: Workspace, snapshot_id: str) -> None:
        """Delete one snapshot. Idempotent."""
        ...
