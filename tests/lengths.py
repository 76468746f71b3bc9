"""How much is run: the long forms of `make test-all` take minutes, times what `HELIX_TEST_TIMES` says."""

import os

LONG = bool(os.environ.get("HELIX_TEST_LONG"))
"""Whether this is `make test-all`."""

IN_TARGETS = bool(os.environ.get("HELIX_TEST_TARGET"))
"""Whether `make test` or `make test-all` chooses what is run, and not a developer who names files."""

TIMES = int(os.environ.get("HELIX_TEST_TIMES") or 1)


def at_length(count: int) -> int:
    """So many rounds, seconds or examples."""
    return count * TIMES
