"""Workspaces in one of Django's storages: files, S3 and others."""

from collections.abc import Iterable

from django.core.files.storage import Storage

from helix_sessions.content.storages import folder_of, storage_named
from helix_sessions.exceptions import InvalidInput
from helix_sessions.workspaces.base import Workspace


class StorageWorkspaces:
    """Each session has a folder, and each entry of it, a file or a folder, is a snapshot.

    The folder follows from the session's id alone. Other keys of a `workspace_ref` are ignored, so that a
    session cannot delete the files of another.
    """

    def __init__(self, storage: str = "default", prefix: str = "helix_sessions/workspaces") -> None:
        self.alias = storage
        self.prefix = prefix.strip("/")

    @property
    def storage(self) -> Storage:
        return storage_named(self.alias)

    def folder(self, session_id: str) -> str:
        """The folder of a session's snapshots, for the code that writes them."""
        return f"{self.prefix}/{folder_of(session_id)}"

    def snapshot_list(self, session: Workspace) -> Iterable[str]:
        """The names of the folder's entries."""
        folders, files = _entries(self.storage, self.folder(session.session_id))
        return sorted({*folders, *files})

    def snapshot_delete(self, session: Workspace, snapshot_id: str) -> None:
        """Delete a file, or a folder with its contents."""
        if snapshot_id in ("", ".", "..") or "/" in snapshot_id or "\\" in snapshot_id:
            raise InvalidInput(f"{snapshot_id!r:.80} is not the name of a snapshot.")
        folder = self.folder(session.session_id)
        folders, files = _entries(self.storage, folder)
        if snapshot_id in files:
            self.storage.delete(f"{folder}/{snapshot_id}")
        if snapshot_id in folders:
            _delete_folder(self.storage, f"{folder}/{snapshot_id}")


def _entries(storage: Storage, folder: str) -> tuple[list[str], list[str]]:
    """The folders and the files in a folder. Some storages list the folder itself, without a name."""
    try:
        folders, files = storage.listdir(folder)
    except FileNotFoundError:
        return [], []
    return [name for name in folders if name], [name for name in files if name]


def _delete_folder(storage: Storage, folder: str) -> None:
    folders, files = _entries(storage, folder)
    for name in files:
        storage.delete(f"{folder}/{name}")
    for name in folders:
        _delete_folder(storage, f"{folder}/{name}")
    storage.delete(folder)  # the folder itself exists only on a file system
