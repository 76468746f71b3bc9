"""What came of calls made at the same time."""

from collections.abc import Iterable
from typing import Any


def split(outcomes: Iterable[Any], *kinds: type) -> tuple[list[Any], list[Any]]:
    """The outcomes of these types, and all others."""
    found = list(outcomes)
    wanted = [outcome for outcome in found if isinstance(outcome, kinds)]
    return wanted, [outcome for outcome in found if not isinstance(outcome, kinds)]
