"""Fair shares: priorities, and bounds on what runs at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LOWEST_PRIORITY, HIGHEST_PRIORITY = -10, 10
OWNER, AGENT_TYPE = "owner", "agent_type:"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many sessions run at once."""

    owner: int | None
    """Of one owner. Sessions without an owner are not bounded by it."""
    agent_types: Mapping[str, int]

    @classmethod
    def of(cls, given: Mapping[str, int]) -> "Bounds":
        """What a value of `CONCURRENCY` says."""
        types = {key.removeprefix(AGENT_TYPE): most for key, most in given.items() if key != OWNER}
        return cls(given.get(OWNER), types)


def problems(given: Any) -> list[str]:
    """What is wrong with a value of `CONCURRENCY`."""
    if not isinstance(given, Mapping):
        return [f"It is {given!r:.80}, and should be a dict."]
    found = []
    for key, most in given.items():
        named = isinstance(key, str) and key.startswith(AGENT_TYPE) and key != AGENT_TYPE
        if key != OWNER and not named:
            found.append(f"{key!r:.80} is neither 'owner' nor 'agent_type:' and a name.")
        elif isinstance(most, bool) or not isinstance(most, int) or most < 1:
            found.append(f"{key!r:.80} is {most!r:.80}, and should be a number of at least 1.")
    return found
