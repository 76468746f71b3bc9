"""Snapshots of workspaces, which are outside the database, and their providers."""

from helix_sessions.workspaces.base import Workspace, WorkspaceProvider
from helix_sessions.workspaces.registry import delete_snapshots, provider_of
from helix_sessions.workspaces.storage import StorageWorkspaces

__all__ = ["StorageWorkspaces", "Workspace", "WorkspaceProvider", "delete_snapshots", "provider_of"]
