"""What sessions keep outside the database: snapshots of workspaces, and the providers that hold them."""

from helix_sessions.workspaces.base import Workspace, WorkspaceProvider
from helix_sessions.workspaces.registry import delete_snapshots, provider_of
from helix_sessions.workspaces.storage import StorageWorkspaces

__all__ = ["StorageWorkspaces", "Workspace", "WorkspaceProvider", "delete_snapshots", "provider_of"]
