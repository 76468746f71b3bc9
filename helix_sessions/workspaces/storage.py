"""Workspaces in one of Django's storages: files, S3 and whatever else has a storage class."""

from collections.abc import Iterable

from django.core.files.storage import Storage

from helix_sessions.exceptions import InvalidInput
from helix_sessions.storages import files_below, folder_of, storage_named
from helix_sessions.workspaces.base import Workspace


class StorageWorkspaces:
    """Each session has a folder, and each entry of it, a file or a folder, is a snapshot.

    The folder follows from the session's id alone. What a `workspace_ref` says beside the provider's id is
    not looked at, so nobody can have another session's files deleted.
    """

    def __init__(self, storage: str = "default", prefix: str = "helix_sessions/workspaces") -> None:
        self.alias = storage
        self.prefix = prefix.strip("/")

    @property
    def storage(self) -> Storage:
        return storage_named(self.alias)

    def folder(self, session_id: str) -> str:
        """Where the snapshots of a session belong, for whoever writes them."""
        return f"{self.prefix}/{folder_of(session_id)}"

    def snapshot_list(self, session: Workspace) -> Iterable[str]:
        """The names of the folder's entries."""
        try:
            folders, files = self.storage.listdir(self.folder(session.session_id))
        except FileNotFoundError:
            return []
        return sorted(name for name in {*folders, *files} if name)

    def snapshot_delete(self, session: Workspace, snapshot_id: str) -> None:
        """Delete a file, or a folder with all that is in it."""
        if snapshot_id in ("", ".", "..") or "/" in snapshot_id or "\\" in snapshot_id:
            raise InvalidInput(f"{snapshot_id!r:.80} is not the name of a snapshot.")
        path = f"{self.folder(session.session_id)}/{snapshot_id}"
        files = _files_of(self.storage, path)
        for name in files:
            self.storage.delete(name)
        if path not in files:
            _remove_folders(self.storage, path)


def _files_of(storage: Storage, path: str) -> list[str]:
    try:
        below = files_below(storage, path)
    except NotADirectoryError:
        below = []
    return below or [path]


def _remove_folders(storage: Storage, path: str) -> None:
    """Empty folders are left only by storages on a file system, whose `delete` removes them."""
    try:
        folders, _ = storage.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in folders:
        _remove_folders(storage, f"{path}/{name}")
    storage.delete(path)
