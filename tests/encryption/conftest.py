"""Everything here runs with encryption switched on."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from helix_sessions.conf import Conf
from tests.contract.conftest import session  # noqa: F401
from tests.maintenance.conftest import archive_storage, memory  # noqa: F401

KEYS = {name: b64encode(name.encode().ljust(32, b"k")).decode() for name in ("old", "new")}


@pytest.fixture(autouse=True)
def encrypted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Encryption with the key `old`; called, with other keys: `encrypted("old", "new", active="new")`.
    As the setting's default, so that it holds whatever else a test sets."""

    def use(*keys: str, active: str | None = None) -> None:
        given: dict[str, Any] = {"keys": {name: KEYS[name] for name in keys}, "active": active}
        monkeypatch.setattr(Conf, "ENCRYPTION", given if keys else {})

    use("old", active="old")
    return use
