"""Storages and workspaces that live as long as a test."""

from pathlib import Path
from typing import Any

import pytest

from tests.maintenance.workspaces import MEMORY


@pytest.fixture
def archive_storage(settings: Any, tmp_path: Path) -> Path:
    """The folder of the archive storage."""
    folder = tmp_path / "archives"
    settings.STORAGES = {
        **settings.STORAGES,
        "archives": {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": str(folder)},
        },
    }
    settings.HELIX_SESSIONS = {"ARCHIVE_STORAGE": "archives"}
    return folder


@pytest.fixture
def memory(settings: Any) -> Any:
    """A workspace provider under the id `memory`, whose snapshots and calls a test can see."""
    path = "tests.maintenance.workspaces.MemoryWorkspaces"
    settings.HELIX_SESSIONS = {
        **getattr(settings, "HELIX_SESSIONS", {}),
        "WORKSPACE_PROVIDERS": {"memory": path},
    }
    MEMORY.clear()
    return MEMORY
