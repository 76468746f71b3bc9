"""Carries bulk actions out beside a worker."""

from helix_sessions.admin import bulk
from helix_sessions.runtime.companion import Companion


class BulkRunner(Companion):
    """Looks for bulk actions that nobody is at work on."""

    name = "helix-bulk-runner"
    failure = "Bulk actions could not be carried out."

    def step(self, *, to_the_end: bool) -> int:
        """Go on with one of them."""
        return bulk.advance(should_stop=bool if to_the_end else self._stop.is_set) is not None
