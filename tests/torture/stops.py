"""How long a campaign goes on."""

import time
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Stop:
    """So many rounds, or so many seconds, whichever is over first."""

    rounds: int
    seconds: float
    begun: float = field(default_factory=time.monotonic)

    def goes_on(self, rounds: int) -> bool:
        return rounds < self.rounds and time.monotonic() - self.begun < self.seconds

    def share(self, parts: int) -> "Stop":
        return replace(self, rounds=-(-self.rounds // parts))
