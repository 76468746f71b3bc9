"""What to install when a framework is missing."""

from collections.abc import Iterator
from contextlib import contextmanager


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
