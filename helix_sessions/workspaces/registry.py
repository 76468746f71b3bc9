"""Which provider keeps a session's workspace: `HELIX_SESSIONS["WORKSPACE_PROVIDERS"]`."""

from typing import Any, cast

from django.utils.module_loading import import_string

from helix_sessions.conf import conf
from helix_sessions.exceptions import NotConfigured
from helix_sessions.workspaces.base import Workspace, WorkspaceProvider


def provider_of(ref: Any) -> WorkspaceProvider | None:
    """The provider that a `workspace_ref` names; `None` when it names none.

    A name that is not in the settings raises `NotConfigured`: its snapshots would be left behind.
    """
    provider_id = ref.get("provider_id") if isinstance(ref, dict) else None
    if provider_id is None:
        return None
    entry = conf.WORKSPACE_PROVIDERS.get(provider_id) if isinstance(provider_id, str) else None
    if entry is None:
        raise NotConfigured(f"HELIX_SESSIONS['WORKSPACE_PROVIDERS'] has no provider {provider_id!r:.80}.")
    path, options = (entry, {}) if isinstance(entry, str) else entry
    try:
        return cast(WorkspaceProvider, import_string(path)(**options))
    except ImportError as error:
        raise NotConfigured(f"The workspace provider {provider_id!r} cannot be imported: {error}") from error


def delete_snapshots(session: Workspace, *, dry_run: bool = False) -> int:
    """Delete the snapshots of a session's workspace; return how many."""
    provider = provider_of(session.ref)
    if provider is None:
        return 0
    snapshots = list(provider.snapshot_list(session))
    if not dry_run:
        for snapshot_id in snapshots:
            provider.snapshot_delete(session, snapshot_id)
    return len(snapshots)
