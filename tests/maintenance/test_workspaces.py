"""Workspaces in Django's storages."""

from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import InMemoryStorage, storages

from helix_sessions.content.storages import folder_of
from helix_sessions.exceptions import InvalidInput, NotConfigured
from helix_sessions.store import SessionStore
from helix_sessions.types import CleanupSummary
from helix_sessions.workspaces import StorageWorkspaces, Workspace, provider_of
from tests.maintenance.test_cleanup import make
from tests.rows import each

PROVIDER = ("helix_sessions.workspaces.StorageWorkspaces", {"storage": "workspaces", "prefix": "ws"})


@pytest.fixture(params=["files", "memory"])
def workspaces(request: Any, settings: Any, tmp_path: Path) -> StorageWorkspaces:
    """The provider `files` over a storage of either kind."""
    backends = {
        "files": {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": str(tmp_path)},
        },
        "memory": {"BACKEND": f"{InMemoryStorage.__module__}.InMemoryStorage"},
    }
    settings.STORAGES = {**settings.STORAGES, "workspaces": backends[request.param]}
    settings.HELIX_SESSIONS = {"WORKSPACE_PROVIDERS": {"files": PROVIDER}}
    provider = provider_of({"provider_id": "files"})
    assert isinstance(provider, StorageWorkspaces)
    return provider


def put(provider: StorageWorkspaces, session_id: str, *names: str) -> None:
    for name in names:
        provider.storage.save(f"{provider.folder(session_id)}/{name}", ContentFile(b"snapshot"))


@pytest.mark.django_db
def test_cleanup_deletes_files_and_folders_of_the_session_alone(
    store: SessionStore, workspaces: StorageWorkspaces
) -> None:
    make(store, "a", workspace_ref={"provider_id": "files"})
    put(workspaces, "a", "one.tar", "two/part-1", "two/deep/part-2")
    put(workspaces, "b", "one.tar")
    assert store.expired_session_cleanup() == CleanupSummary(detected=1, marked=1, snapshots_deleted=2)
    of = {key: Workspace(session_id=key, agent_type="x", ref={}) for key in "ab"}
    assert list(workspaces.snapshot_list(of["a"])) == []
    assert list(workspaces.snapshot_list(of["b"])) == ["one.tar"]
    workspaces.snapshot_delete(of["a"], "one.tar")  # gone already


@pytest.mark.django_db
@each("hostile", ["..", "../b", "b/../../b", ".", "/etc", "%2e%2e", "b\\..\\b"])
def test_an_id_or_a_reference_leads_to_nobody_elses_files(
    store: SessionStore, workspaces: StorageWorkspaces, hostile: str
) -> None:
    put(workspaces, "b", "one.tar")
    make(
        store, hostile, workspace_ref={"provider_id": "files", "prefix": "ws", "path": "b", "session_id": "b"}
    )
    assert store.expired_session_cleanup() == CleanupSummary(detected=1, marked=1)
    assert workspaces.storage.exists(f"{workspaces.folder('b')}/one.tar")
    with pytest.raises(InvalidInput):
        workspaces.snapshot_delete(Workspace(session_id="a", agent_type="x", ref={}), "../b")


def test_folders_are_told_apart_and_short() -> None:
    ids = ["a", "A", "a/b", "a_b", "a.b", "a%2Fb", "..", "é", "\U0001f40d" * 255, "a" * 255, "a" * 254]
    folders = [folder_of(key) for key in ids]
    assert len({folder.lower() for folder in folders}) == len(ids)
    assert all(len(folder) <= 100 for folder in folders)
    assert not any(set(folder) & set("/\\.%") for folder in folders)


def test_a_provider_that_is_not_there(settings: Any) -> None:
    settings.HELIX_SESSIONS = {"WORKSPACE_PROVIDERS": {"gone": "no.such.Class"}}
    for ref in ({"provider_id": "gone"}, {"provider_id": "other"}, {"provider_id": 7}):
        with pytest.raises(NotConfigured):
            provider_of(ref)
    assert provider_of(None) is provider_of("x") is provider_of({}) is None


def test_a_storage_that_is_not_there() -> None:
    with pytest.raises(NotConfigured):
        StorageWorkspaces(storage="nowhere").storage  # noqa: B018
    assert "default" in storages.backends
