"""How long the long forms are (`make test-all`): minutes, times what `HELIX_TEST_TIMES` says."""

import os

TIMES = int(os.environ.get("HELIX_TEST_TIMES") or 1)


def at_length(count: int) -> int:
    """So many rounds, seconds or examples."""
    return count * TIMES
