"""The demo's secret key: made once, readable by its owner only."""

import os
import secrets
from contextlib import suppress
from pathlib import Path


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)


def secret_key_from_file(path: Path) -> str:
    """Return the key in `path`, making both on the first call."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError), open(path, "x", opener=_owner_only) as file:
        file.write(secrets.token_urlsafe(50))
    return path.read_text()
