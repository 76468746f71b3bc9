from pathlib import Path
from typing import Any

import pytest

from helix_sessions.content import blobs


@pytest.fixture(autouse=True)
def blob_storage(settings: Any, tmp_path: Path) -> Path:
    """Attachments of more than 100 bytes go to a folder of this test."""
    place = {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": str(tmp_path)}}
    settings.STORAGES = {**settings.STORAGES, "blobs": place}
    settings.HELIX_SESSIONS = {
        **settings.HELIX_SESSIONS,
        "BLOB_STORAGE": "blobs",
        "BLOB_THRESHOLD": 100,
        "BLOB_GRACE": 0,
    }
    blobs.cache.clear()
    return tmp_path


@pytest.fixture
def files(blob_storage: Path) -> Any:
    """The files of the storage, by name."""
    return lambda: sorted(path.name for path in blob_storage.rglob("*") if path.is_file())
