"""What to install when a framework is missing, or too old."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from helix_sessions.exceptions import NotConfigured


@contextmanager
def needed_from(extra: str) -> Iterator[None]:
    """Imports of a framework; without it the error names the extra that brings it."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"This module needs packages that are not installed ({error}). "
            f'Install them with: pip install "django-helix-sessions[{extra}]"'
        ) from error


def check_version(package: str, lowest: str) -> None:
    """Refuse to drive agents of a framework that is older than what was tested."""
    try:
        found = version(package)
    except PackageNotFoundError:
        return
    if _numbers(found) < _numbers(lowest):
        raise NotConfigured(f"Agents of {package} {found} cannot be driven. Install {lowest} or newer.")


def _numbers(found: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", found)[:3]]
