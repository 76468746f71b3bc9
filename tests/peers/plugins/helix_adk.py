"""Puts our services where the tests of Google's ADK have one of their own.

Tests find ours under the names of ADK's services, and as `session_service`, a fixture or a parameter. Of a
test that is repeated for several services one variant is run. Tests that make no service are not counted.
"""

import os
from typing import Any

import django
import pytest
from django.conf import settings
from google.adk.sessions import BaseSessionService

django.setup()

from helix_adk_exclusions import EXCLUDED  # type: ignore[import-not-found]  # noqa: E402
from helix_counting import Counting  # type: ignore[import-not-found]  # noqa: E402

from helix_sessions.integrations.google_adk import (  # noqa: E402
    DjangoArtifactService,
    DjangoMemoryService,
    DjangoSessionService,
)

settings.STORAGES = {
    **settings.STORAGES,
    "blobs": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": os.environ["HELIX_PEER_BLOBS"]},
    },
}
settings.HELIX_SESSIONS = {**settings.HELIX_SESSIONS, "BLOB_STORAGE": "blobs", "BLOB_THRESHOLD": 8}


class Made:
    """Ours, to be made as theirs are."""

    count = 0

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__()
        Made.count += 1

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> "Made":
        return self

    async def __aexit__(self, *error: Any) -> None:
        pass


class Sessions(Made, DjangoSessionService):
    pass


class Artifacts(Made, DjangoArtifactService):
    pass


class Memories(Made, DjangoMemoryService):
    pass


REPLACED = {
    "InMemorySessionService": Sessions,
    "DatabaseSessionService": Sessions,
    "SqliteSessionService": Sessions,
    "InMemoryArtifactService": Artifacts,
    "InMemoryMemoryService": Memories,
}
FIXTURE = "session_service"
VARIANTS = ("service_type", FIXTURE)
THEIRS = ("FILE", "GCS")
"""The variants whose services are not replaced: they keep artifacts in files, and in buckets."""
ABOUT_THEIRS = ("test_file_", "test_gcs_")


def opened(*given: Any, **fixtures: Any) -> Sessions:
    return Sessions()


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One variant of the fixture: ours."""
    for fixture in metafunc._arg2fixturedefs.get(FIXTURE, ()):
        fixture.params, fixture.func, fixture.argnames = ["ours"], opened, ()  # type: ignore[misc]
        fixture.ids = None  # type: ignore[misc]
    module = vars(metafunc.module)
    for name, ours in REPLACED.items():
        if name in module:
            module[name] = ours


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept, left_out, seen = [], [], set()
    for item in items:
        if not isinstance(item, pytest.Function) or not set(REPLACED) & set(vars(item.module)):
            left_out.append(item)
            continue
        row = _row(item)
        variant = getattr(row.get("service_type"), "name", "")
        if variant in THEIRS or item.originalname.startswith(ABOUT_THEIRS):
            left_out.append(item)
            continue
        others = sorted((name, str(value)) for name, value in row.items() if name not in VARIANTS)
        if (item.path, item.originalname, str(others)) in seen:
            left_out.append(item)
            continue
        seen.add((item.path, item.originalname, str(others)))
        reason = EXCLUDED.get(item.path.name, {}).get(item.originalname)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
        kept.append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A service in a table of parameters was made before ours had its name."""
    row = _row(item)
    if isinstance(row.get(FIXTURE), BaseSessionService):
        row[FIXTURE] = opened()


def _row(item: pytest.Item) -> dict[str, Any]:
    return vars(item.callspec)["params"] if hasattr(item, "callspec") else {}


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Counting("services", lambda: Made.count))
